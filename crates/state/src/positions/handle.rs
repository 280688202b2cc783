//! Positions as their users hold them, whatever driver keeps them: where changes are committed, and what is read.

use std::sync::Arc;

use mesh_base::Signals;

use super::{DeliveryStateStore, OffsetStore, PositionLog, PositionStore};

/// The positions of this instance.
pub struct Positions {
    store: Arc<dyn PositionStore>,
    log: PositionLog,
}

impl Positions {
    /// Starts the thread that commits to `store`. Nobody else may commit to it from then on.
    pub fn start(store: Arc<dyn PositionStore>, signals: &Signals) -> Self {
        let log = PositionLog::start(store.clone(), signals);
        Self { store, log }
    }

    /// Where changes are committed.
    pub fn log(&self) -> &PositionLog {
        &self.log
    }

    /// The store of cursors.
    pub fn offsets(&self) -> &dyn OffsetStore {
        self.store.offsets()
    }

    /// The store of rows.
    pub fn deliveries(&self) -> &dyn DeliveryStateStore {
        self.store.deliveries()
    }

    /// Commits what waits, ends the thread that commits, and syncs. Later commits fail, reads go on. Blocks.
    pub fn close(&self) {
        self.log.close();
        if let Err(error) = self.store.sync() {
            tracing::error!(error = %error.chain(), "positions could not be synced at close");
        }
    }
}

impl Drop for Positions {
    /// No thread of it outlives it.
    fn drop(&mut self) {
        self.close();
    }
}
