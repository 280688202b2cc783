//! What all local databases of a process share: one block cache and one write-buffer budget.

use rocksdb::{Cache, WriteBufferManager};

/// The shared memory of every local database; cheap to clone.
#[derive(Clone)]
pub struct Machine {
    pub(crate) block_cache: Cache,
    pub(crate) write_buffers: WriteBufferManager,
}

impl Machine {
    /// A block cache of `block_cache_bytes` and at most about `write_buffer_bytes` in memtables before
    /// they are flushed early.
    pub fn new(block_cache_bytes: usize, write_buffer_bytes: usize) -> Self {
        Self {
            block_cache: Cache::new_lru_cache(block_cache_bytes),
            write_buffers: WriteBufferManager::new_write_buffer_manager(write_buffer_bytes, false),
        }
    }
}

impl Default for Machine {
    /// 64 MiB of blocks, 96 MiB of write buffers.
    fn default() -> Self {
        Self::new(64 << 20, 96 << 20)
    }
}
