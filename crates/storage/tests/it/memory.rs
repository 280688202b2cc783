//! The in-memory log.

use std::sync::Arc;

use mesh_base::{Clock, Signals};
use mesh_storage::{Memory, StoragePlugin, Tail, conformance::Subject};

struct InMemory;

impl Subject for InMemory {
    fn open(&self, clock: Clock, tail: Arc<Tail>) -> Arc<dyn StoragePlugin> {
        Arc::new(Memory::new(clock, tail, &Signals::new()))
    }
}

mesh_storage::storage_conformance!(InMemory);
