//! The intake's counters, as metrics and for the administration's own view.

use mesh_base::{Counter, Signals};

/// What came in and what did not.
#[derive(Clone, Debug)]
pub struct IntakeSignals {
    /// Events stored.
    pub published: Counter,
    /// Events that were admitted and could not be stored.
    pub publish_failed: Counter,
    /// Requests refused because of their rate.
    pub rate_limited: Counter,
}

impl IntakeSignals {
    /// Registers the counters.
    pub fn new(signals: &Signals) -> Self {
        Self {
            published: signals.counter("publish", "Events stored"),
            publish_failed: signals.counter("publish_failed", "Events admitted that could not be stored"),
            rate_limited: signals.counter("rate_limited", "Requests refused because of their rate"),
        }
    }
}
