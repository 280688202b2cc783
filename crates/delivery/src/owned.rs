//! Work that the process owns once it has begun: the tasks it runs in, and whether any may begin.
//!
//! A request, its connection and its future can go at any moment; what changes more than one thing runs here and is
//! only waited for.

use std::sync::atomic::{AtomicBool, Ordering};

use mesh_base::Tasks;

/// Why nothing is begun now, or why it is not known how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unable {
    /// The groups are being brought back.
    #[error("the instance is starting")]
    Recovering,
    /// Another change of the same thing, or very many changes, are still under way.
    #[error("another change is still being finished; try again")]
    Busy,
    /// The process ends; the next start finds out what became of it.
    #[error("the process is stopping")]
    Stopping,
}

/// The tasks of the process that finish what was begun.
#[derive(Debug)]
pub(crate) struct Owned {
    recovered: AtomicBool,
    pub(crate) tasks: Tasks,
}

impl Owned {
    pub(crate) fn new() -> Self {
        Self { recovered: AtomicBool::new(false), tasks: Tasks::new() }
    }

    /// Every group is there: from now on they can be changed.
    pub(crate) fn recovered(&self) {
        self.recovered.store(true, Ordering::Release);
    }

    /// Whether anything may be changed.
    ///
    /// # Errors
    /// Before recovery is done: what is there is not known yet.
    pub(crate) fn ready(&self) -> Result<(), Unable> {
        if self.recovered.load(Ordering::Acquire) { Ok(()) } else { Err(Unable::Recovering) }
    }
}
