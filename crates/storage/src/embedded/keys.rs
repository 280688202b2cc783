//! The layout of the embedded log's database.
//!
//! `records`: `u32 partition key, u64 offset` → `u64 bytes of the partition up to and with this record`,
//! then the record's envelope (`docs/storage-format.md`). `bounds`: `u32 partition key` → `u64 start, u64
//! end`, written when the start or an empty log's end moves. `topics`: name → the topic as JSON. All
//! numbers big-endian, so that keys sort as the log does.

use mesh_base::{BackendError, BackendErrorKind};
use mesh_frame::Offset;

/// What messages call the log.
pub(super) const NAME: &str = "embedded log";

pub(super) const RECORDS: &str = "records";
pub(super) const BOUNDS: &str = "bounds";
pub(super) const TOPICS: &str = "topics";
/// In `default`: the next partition key, and the format of the database.
pub(super) const NEXT_PARTITION: &[u8] = b"next_partition";
/// Written to find out whether writes are taken again.
pub(super) const PROBE: &[u8] = b"probe";
pub(super) const FORMAT: &[u8] = b"format";
pub(super) const FORMAT_VERSION: u32 = 1;

/// How many bytes precede the envelope in a value of `records`.
pub(super) const CUMULATIVE: usize = 8;

/// Something in the database is not what it must be.
pub(super) fn corrupt(what: impl Into<String>) -> BackendError {
    BackendError::new(BackendErrorKind::Corrupt, NAME, "reading").with_source(what.into())
}

pub(super) fn record(partition: u32, offset: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&partition.to_be_bytes());
    key[4..].copy_from_slice(&offset.to_be_bytes());
    key
}

pub(super) fn offset_of(key: &[u8], partition: u32) -> Option<Offset> {
    let (head, tail) = key.split_first_chunk::<4>()?;
    (*head == partition.to_be_bytes()).then_some(())?;
    Some(Offset(u64::from_be_bytes(tail.try_into().ok()?)))
}

pub(super) fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.first_chunk::<8>()?))
}

pub(super) fn bounds(start: u64, end: u64) -> [u8; 16] {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&start.to_be_bytes());
    value[8..].copy_from_slice(&end.to_be_bytes());
    value
}

pub(super) fn read_bounds(value: &[u8]) -> Option<(u64, u64)> {
    Some((number(value)?, number(value.get(8..)?)?))
}
