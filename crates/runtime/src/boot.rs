//! Build and run: what happens once the settings are known to be right.
//!
//! Building binds, opens and wires everything in the order of the line and starts nothing; running
//! recovers, serves, and stops in the reverse order. What fails in between is named, and what was opened is
//! closed again.

mod audit_events;
mod build;
mod capabilities;
mod data_dir;
mod document;
mod gate;
mod identity;
mod key_fetcher;
mod serve;

use std::process::ExitCode;

use anyhow::Context as _;

use crate::config::{Mode, Settings};

/// Builds every component, serves until it is told to stop, and stops.
///
/// # Errors
/// What could not be built or brought back, named, with its causes.
pub fn run(settings: Settings, mode: Mode) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("worker")
        .build()
        .context("the system gives no threads")?;
    let ended = runtime.block_on(async {
        let built = build::build(&settings, mode).await?;
        serve::serve(built, &settings).await
    });
    // What is left (a connection that did not drain, a read that hangs) does not hold the process up.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    ended
}
