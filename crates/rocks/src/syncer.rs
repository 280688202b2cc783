//! The thread that syncs a database and moves its marker, once a period.
//!
//! It bounds what power loss can undo to one period. A sync that fails is logged once a state change and
//! tried again at the next period.

use std::{sync::Arc, thread::JoinHandle, time::Duration};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use mesh_base::Tasks;

use crate::LocalDb;

/// Syncs a database every period until it is dropped.
#[derive(Debug)]
pub struct Syncer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts the thread. `also` runs before every sync: a place for cheap periodic checks.
    pub fn spawn(db: Arc<LocalDb>, period: Duration, mut also: impl FnMut() + Send + 'static) -> Self {
        let (stop, stopped) = bounded::<()>(0);
        let thread = Tasks::thread("sync", move || run(&db, period, &stopped, &mut also));
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

fn run(db: &LocalDb, period: Duration, stopped: &Receiver<()>, also: &mut dyn FnMut()) {
    let mut healthy = true;
    while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
        also();
        match db.sync() {
            Ok(()) if !healthy => {
                healthy = true;
                tracing::info!(store = db.name(), "syncing again");
            }
            Ok(()) => {}
            Err(error) if healthy => {
                healthy = false;
                tracing::error!(store = db.name(), error = %error.chain(), "cannot sync");
            }
            Err(_) => {}
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the sync thread panicked");
        }
    }
}
