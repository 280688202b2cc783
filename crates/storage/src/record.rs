//! A record with its place in the log, shared by everyone who delivers it.

use std::sync::OnceLock;

use bytes::Bytes;
use mesh_frame::{Offset, Record};

/// One record of a partition. Its event's JSON is made at most once, however many subscribers get it.
#[derive(Debug)]
pub struct LogRecord {
    offset: Offset,
    record: Record,
    json: OnceLock<Bytes>,
}

impl LogRecord {
    /// The record at `offset`.
    pub fn new(offset: Offset, record: Record) -> Self {
        Self { offset, record, json: OnceLock::new() }
    }

    /// Its place in the partition.
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// What was stored.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The event as structured CloudEvents JSON.
    pub fn json(&self) -> &Bytes {
        self.json.get_or_init(|| self.record.event.json())
    }

    /// About how many bytes of memory it holds, its JSON included.
    pub fn weight(&self) -> usize {
        2 * self.record.event.frame().as_bytes().len() + 160
    }
}
