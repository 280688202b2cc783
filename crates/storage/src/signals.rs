//! The log's metrics.

use mesh_base::{Counter, CounterFamily, Signals};

/// Counters of the storage handle.
#[derive(Clone, Debug)]
pub(crate) struct StorageSignals {
    pub(crate) cold_reads: Counter,
    pub(crate) errors: CounterFamily,
    pub(crate) dropped_backlog: Counter,
}

/// What the in-memory log counts itself.
pub(crate) fn dropped_memory(signals: &Signals) -> Counter {
    signals.counter("storage_memory_dropped", "Records the in-memory log dropped to stay within its bound")
}

impl StorageSignals {
    pub(crate) fn new(signals: &Signals) -> Self {
        Self {
            cold_reads: signals.counter("storage_cold_reads", "Reads of the log that memory could not serve"),
            errors: signals.counters("storage_errors", "Failed operations of the log by kind of failure"),
            dropped_backlog: signals
                .counter("storage_dropped_backlog", "Offsets dropped before every group was done with them"),
        }
    }
}
