//! Cold chunks: runs of records read back from the log, kept for the next group that comes by.
//!
//! A thousand groups that read the same old stretch cost one read of it: reads of a partition are single
//! flight and leave their chunk here.

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

/// The chunks of one partition, newest last.
#[derive(Debug, Default)]
pub(crate) struct ColdChunks(VecDeque<Chunk>);

impl ColdChunks {
    /// Keeps what a read from `from` gave; `to` is one past the last offset it speaks for.
    pub(crate) fn keep(&mut self, from: Offset, to: Offset, records: Vec<Arc<LogRecord>>) {
        if self.0.len() == CHUNKS {
            self.0.pop_front();
        }
        self.0.push_back(Chunk { from, to, records });
    }

    pub(crate) fn from(&self, from: Offset, most: usize, out: &mut Vec<Arc<LogRecord>>) -> Option<Cached> {
        let chunk = self.0.iter().rev().find(|chunk| chunk.from <= from && from < chunk.to)?;
        let first = chunk.records.partition_point(|record| record.offset() < from);
        let rest = &chunk.records[first..];
        out.extend(rest.iter().take(most).cloned());
        Some(Cached::UpTo(rest.get(most).map_or(chunk.to, |record| record.offset())))
    }

    /// Forgets everything: the partition was trimmed or removed.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
