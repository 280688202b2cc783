//! Cold chunks: runs of records read back from the log, kept for the next group that comes by.
//!
//! A thousand groups that read the same old stretch cost one read of it: reads of a partition are single
//! flight and leave their chunk here.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use crate::Partition;

/// The cold chunks of all partitions, under one budget: when it is passed, the partitions that were warmed
/// longest ago forget theirs.
#[derive(Debug)]
pub(crate) struct ColdBudget {
    budget_bytes: i64,
    state: Mutex<Warmed>,
}

/// The partitions with chunks, each once, those that were warmed longest ago first.
#[derive(Debug, Default)]
struct Warmed {
    bytes: i64,
    partitions: VecDeque<(Weak<Partition>, i64)>,
}

impl ColdBudget {
    pub(crate) fn new(budget_bytes: i64) -> Self {
        Self { budget_bytes, state: Mutex::default() }
    }

    /// A partition's chunks grew (or shrank) by that many bytes. One that was just warmed keeps them, whatever they
    /// weigh; what one holds that is gone is given back.
    pub(crate) fn changed(&self, partition: &Arc<Partition>, by: i64) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let is_it = |(other, _): &(Weak<Partition>, i64)| other.as_ptr() == Arc::as_ptr(partition);
        let place = state.partitions.iter().position(is_it);
        let held = place.and_then(|place| state.partitions.remove(place)).map_or(0, |(_, bytes)| bytes);
        let holds = (held + by).max(0);
        state.bytes += holds - held;
        if holds > 0 {
            state.partitions.push_back((Arc::downgrade(partition), holds));
        }
        while state.bytes > self.budget_bytes && state.partitions.len() > 1 {
            let Some((oldest, bytes)) = state.partitions.pop_front() else { return };
            state.bytes -= bytes;
            if let Some(oldest) = oldest.upgrade() {
                oldest.cold.lock().clear();
            }
        }
    }
}
