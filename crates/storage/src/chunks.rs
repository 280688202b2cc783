//! Runs of records of one partition that were read back from the log.

use std::{collections::VecDeque, sync::Arc};

use mesh_frame::Offset;

use crate::{Cached, LogRecord};

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
