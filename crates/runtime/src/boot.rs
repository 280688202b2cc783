//! Build and run: what happens once the settings are known to be right.
//!
//! Building binds, opens and wires everything in the order of the line and starts nothing; running
//! recovers, serves, and stops in the reverse order. What fails in between is named, and what was opened is
//! closed again.

mod audit_events;
mod build;
mod capabilities;
mod check;
mod data_dir;
mod document;
mod gate;
mod identity;
mod key_fetcher;
mod serve;
mod told;

pub use check::check;
pub(crate) use data_dir::ADMIN_TOKEN_FILE;

use std::process::ExitCode;

use anyhow::Context as _;

use crate::{
    config::{Mode, Settings, Warning},
    logging::{self, LogLines},
};

/// What a start writes at the most before it serves, in MiB: RocksDB reserves space for its write-ahead logs.
const SPACE_TO_START: u32 = 64;

/// Builds every component, serves until it is told to stop, and stops.
///
/// # Errors
/// What could not be built or brought back, named, with its causes.
pub fn run(settings: Settings, mode: Mode, log: &LogLines, warnings: &[Warning]) -> anyhow::Result<ExitCode> {
    // What is made from here on, by RocksDB too, is for the owner alone, whatever the process was started with.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("worker")
        .build()
        .context("the system gives no threads")?;
    let ended = runtime.block_on(async {
        let told = told::Told::listen(log.clone())?;
        logging::announce(&settings, warnings);
        let built = tokio::select! {
            built = build::build(&settings, mode, log) => built?,
            () = told.stopping.wait() => {
                tracing::info!("stopped before it was built");
                return Ok(ExitCode::SUCCESS);
            }
        };
        serve::serve(built, &settings, told).await
    });
    // What is left (a connection that did not drain, a read that hangs) does not hold the process up.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    ended.map_err(|error| explained(error, &settings))
}

/// What the system says of a full disk, with what that means and what helps.
fn explained(error: anyhow::Error, settings: &Settings) -> anyhow::Error {
    let said = format!("{error:#}");
    let is_full = ["No space left", "Disk quota exceeded", "quota exceeded", "disk is full"];
    if !is_full.iter().any(|sign| said.contains(sign)) {
        return error;
    }
    let data = settings.storage.data_dir.display();
    error.context(format!(
        "the disk of the data directory {data} is full. Nothing was lost, and nothing in the data directory is to be \
         removed: free {SPACE_TO_START} MiB elsewhere on that disk, then start again"
    ))
}
