//! What the process is told by signals, from before anything is built to its end.
//!
//! The first SIGTERM or SIGINT stops in order, the second ends at once. SIGHUP has the files read again that may change,
//! and the audit log opened again. SIGUSR1 and SIGUSR2 mean nothing here and end nothing.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use mesh_base::{Stop, Tasks};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
};

use crate::logging::LogLines;

/// What signals have said.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// Stop in order.
    pub(super) stopping: Stop,
    /// Read the files again.
    pub(super) hung_up: Arc<Notify>,
}

impl Told {
    /// Listens from now on. `log` is given a moment before the process ends at once.
    ///
    /// # Errors
    /// The system lets no signal be handled.
    pub(super) fn listen(log: LogLines) -> anyhow::Result<Self> {
        let on =
            |kind: SignalKind, name: &str| signal(kind).with_context(|| format!("{name} cannot be handled"));
        let (terminate, interrupt) =
            (on(SignalKind::terminate(), "SIGTERM")?, on(SignalKind::interrupt(), "SIGINT")?);
        let hang_up = on(SignalKind::hangup(), "SIGHUP")?;
        let (one, two) =
            (on(SignalKind::user_defined1(), "SIGUSR1")?, on(SignalKind::user_defined2(), "SIGUSR2")?);
        let told = Self::default();
        let tasks = Tasks::new();
        tasks.spawn("stop signals", told.clone().stop(terminate, interrupt, log));
        tasks.spawn("other signals", told.clone().obey(hang_up, one, two));
        Ok(told)
    }

    async fn stop(self, mut terminate: Signal, mut interrupt: Signal, log: LogLines) {
        for last in [false, true] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if last {
                tracing::warn!("a second signal: ending at once");
                log.flush(Duration::from_millis(100));
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the composition root ends the process when told twice"
                )]
                std::process::exit(1);
            }
            self.stopping.signal();
        }
    }

    async fn obey(self, mut hang_up: Signal, mut one: Signal, mut two: Signal) {
        loop {
            tokio::select! {
                _ = hang_up.recv() => self.hung_up.notify_one(),
                _ = one.recv() => tracing::info!("SIGUSR1 means nothing here and is ignored"),
                _ = two.recv() => tracing::info!("SIGUSR2 means nothing here and is ignored"),
            }
        }
    }
}
