//! The log: text or JSON on the standard output, written by a thread of its own.
//!
//! A thread that logs puts its line into a bounded queue and goes on: a reader of the standard output that is
//! slow, stands still or is gone holds up nobody. Lines that find the queue full, or that cannot be written, are lost and
//! counted; once lines can be written again the log says how many.

mod lines;

use std::{io::IsTerminal, panic};

use tracing::{info, warn};

pub use lines::LogLines;

use crate::config::{
    Settings, Warning,
    settings::{LogFormat, LogSettings},
};

/// Sends what the process logs from now on to the standard output. A second call changes nothing.
///
/// A panic is logged too, in place of a text on the standard error, which may be a pipe that nobody reads.
pub fn start(settings: &LogSettings) -> LogLines {
    let lines = LogLines::start(lines::standard_output());
    let queue = lines.clone();
    let builder = tracing_subscriber::fmt()
        .with_max_level(settings.level)
        .with_ansi(std::io::stdout().is_terminal())
        // Telling so on the standard error panics when that cannot be written either.
        .log_internal_errors(false)
        .with_writer(move || queue.clone());
    let started = match settings.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    // Only a subscriber that is already there makes this fail, and then it is the one to use.
    if started.is_ok() {
        panic::set_hook(Box::new(|panicked| {
            let place = panicked.location().map(ToString::to_string).unwrap_or_default();
            let thread = std::thread::current();
            let what = panicked.payload_as_str().unwrap_or("a panic without a text");
            tracing::error!(place, thread = thread.name(), "panic: {what}");
        }));
    }
    lines
}

/// Says what is started with: the topology, every key that was given and where, and every warning.
pub fn announce(settings: &Settings, warnings: &[Warning]) {
    let topology = settings.delivery.topology.map_or("PARTITION_OWNED_PULL", |topology| topology.as_str());
    info!(
        "starting as {}, version {}, delivery topology={topology}",
        settings.mode,
        env!("CARGO_PKG_VERSION")
    );
    for given in settings.given() {
        info!(origin = %given.origin, "{}={}", given.key, given.value.as_deref().unwrap_or_default());
    }
    for warning in warnings {
        warn!("{warning}");
    }
}
