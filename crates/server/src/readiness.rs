//! Whether the instance takes requests. Boot opens it last, a stop closes it first.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// The switch; clones share it. Closed when made.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// A closed switch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests are taken from now on.
    pub fn open(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Requests are answered `not_ready` from now on.
    pub fn close(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Whether requests are taken.
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
