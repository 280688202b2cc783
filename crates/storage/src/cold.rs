//! Cold chunks: runs of records read back from the log, kept for the next group that comes by.
//!
//! A thousand groups that read the same old stretch cost one read of it: reads of a partition are single
//! flight and leave their chunk here.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use mesh_frame::Offset;
use parking_lot::Mutex;

use crate::{Cached, LogRecord, Partition};

/// How many chunks a partition keeps.
const CHUNKS: usize = 4;

/// A run of records without a gap.
#[derive(Debug)]
struct Chunk {
    from: Offset,
    to: Offset,
    records: Vec<Arc<LogRecord>>,
}

impl Chunk {
    fn weight(&self) -> i64 {
        self.records.iter().map(|record| record.weight() as i64).sum()
    }
}

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

/// The chunks of one partition, newest last.
#[derive(Debug, Default)]
pub(crate) struct ColdChunks(VecDeque<Chunk>);

impl ColdChunks {
    /// Keeps what a read from `from` gave; `to` is one past the last offset it speaks for. Gives how many
    /// bytes that added, less what had to go.
    pub(crate) fn keep(&mut self, from: Offset, to: Offset, records: Vec<Arc<LogRecord>>) -> i64 {
        let gone =
            if self.0.len() == CHUNKS { self.0.pop_front().map_or(0, |chunk| chunk.weight()) } else { 0 };
        let chunk = Chunk { from, to, records };
        let added = chunk.weight();
        self.0.push_back(chunk);
        added - gone
    }

    pub(crate) fn from(&self, from: Offset, most: usize, out: &mut Vec<Arc<LogRecord>>) -> Option<Cached> {
        let chunk = self.0.iter().rev().find(|chunk| chunk.from <= from && from < chunk.to)?;
        let first = chunk.records.partition_point(|record| record.offset() < from);
        let rest = &chunk.records[first..];
        out.extend(rest.iter().take(most).cloned());
        Some(Cached::UpTo(rest.get(most).map_or(chunk.to, |record| record.offset())))
    }

    /// Forgets everything: the partition was trimmed, or the budget of all partitions is passed. Gives how
    /// many bytes that freed.
    pub(crate) fn clear(&mut self) -> i64 {
        self.0.drain(..).map(|chunk| chunk.weight()).sum()
    }
}
