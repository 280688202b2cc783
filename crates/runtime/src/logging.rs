//! The log: text or JSON on the standard output.

use std::io::IsTerminal;

use tracing::{info, warn};

use crate::config::{
    Settings, Warning,
    settings::{LogFormat, LogSettings},
};

/// Sends what the process logs from now on to the standard output. A second call changes nothing.
pub fn start(settings: &LogSettings) {
    let builder = tracing_subscriber::fmt()
        .with_max_level(settings.level)
        .with_ansi(std::io::stdout().is_terminal())
        // A line that cannot be written is lost: telling so on the standard error panics when that cannot be written
        // either, and would end the thread that had something to say.
        .log_internal_errors(false)
        .with_writer(std::io::stdout);
    let started = match settings.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    // Only a subscriber that is already there makes this fail, and then it is the one to use.
    drop(started);
}

/// Says what is started with: the topology, every key that somebody gave and where, and every warning.
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
