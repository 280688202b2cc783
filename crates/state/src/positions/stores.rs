//! The two local stores, as traits and on RocksDB: what they stage and what they read back.

use std::sync::Arc;

use mesh_base::{BackendError, BackendErrorKind};
use mesh_frame::{Incarnation, Offset};
use mesh_rocks::{Batch, LocalDb};

use super::{
    LaneKey, Row,
    keys::{CURSORS, LEDGER, NAME},
};

/// How far a group is on a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Everything below is done, or has a row in the ledger. Never "the last one done".
    pub next_to_read: Offset,
    /// The log the offset belongs to.
    pub incarnation: Incarnation,
}

impl Cursor {
    fn encode(self) -> [u8; 17] {
        let mut out = [1; 17];
        out[1..9].copy_from_slice(&self.next_to_read.0.to_be_bytes());
        out[9..].copy_from_slice(&self.incarnation.0.to_be_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 17] = bytes.try_into().ok()?;
        (bytes[0] == 1).then(|| Self {
            next_to_read: Offset(u64::from_be_bytes(*bytes[1..].first_chunk().expect("17 bytes"))),
            incarnation: Incarnation(u64::from_be_bytes(*bytes[9..].first_chunk().expect("17 bytes"))),
        })
    }
}

/// One change of the position database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Cursor(LaneKey, Cursor),
    Put(LaneKey, Offset, Row),
    Delete(LaneKey, Offset),
    Forget(LaneKey),
}

/// Changes that happen together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PositionBatch {
    changes: Vec<Change>,
}

impl PositionBatch {
    /// Nothing to change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it would change nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Adds everything of another batch behind what is there.
    pub fn extend(&mut self, other: Self) {
        self.changes.extend(other.changes);
    }

    /// Removes a lane: its cursor and all its rows.
    pub fn forget(&mut self, lane: LaneKey) {
        self.changes.push(Change::Forget(lane));
    }

    /// Sets a lane's cursor.
    pub fn put_cursor(&mut self, lane: LaneKey, cursor: Cursor) {
        self.changes.push(Change::Cursor(lane, cursor));
    }

    /// Writes a row.
    pub fn put_row(&mut self, lane: LaneKey, offset: Offset, row: Row) {
        self.changes.push(Change::Put(lane, offset, row));
    }

    /// Ends a row.
    pub fn delete_row(&mut self, lane: LaneKey, offset: Offset) {
        self.changes.push(Change::Delete(lane, offset));
    }

    /// The rows it writes (`Some`) and ends (`None`), in order.
    pub fn rows(&self) -> impl Iterator<Item = (Offset, Option<Row>)> + '_ {
        self.changes.iter().filter_map(|change| match change {
            Change::Put(_, offset, row) => Some((*offset, Some(row.clone()))),
            Change::Delete(_, offset) => Some((*offset, None)),
            Change::Cursor(..) | Change::Forget(_) => None,
        })
    }

    /// The last cursor it sets.
    pub fn cursor(&self) -> Option<Cursor> {
        self.changes.iter().rev().find_map(|change| match change {
            Change::Cursor(_, cursor) => Some(*cursor),
            Change::Put(..) | Change::Delete(..) | Change::Forget(_) => None,
        })
    }

    pub(super) fn write_into(&self, batch: &mut Batch) {
        for change in &self.changes {
            match change {
                Change::Cursor(lane, cursor) => {
                    batch.put(CURSORS, lane.bytes(), cursor.encode());
                }
                Change::Put(lane, offset, row) => {
                    batch.put(LEDGER, lane.row(*offset), row.encode());
                }
                Change::Delete(lane, offset) => batch.delete(LEDGER, lane.row(*offset)),
                Change::Forget(lane) => {
                    batch.delete(CURSORS, lane.bytes());
                    batch.delete_range(LEDGER, lane.row(Offset(0)), lane.row(Offset(u64::MAX)));
                }
            }
        }
    }
}

/// How far every group is. Staged changes are durable once the batch was committed.
pub trait OffsetStore: Send + Sync {
    /// Stages a cursor.
    fn stage(&self, batch: &mut PositionBatch, lane: LaneKey, cursor: Cursor);

    /// The cursor of a lane as it was committed; `None` when it never was.
    ///
    /// # Errors
    /// When it cannot be read, which is never the same as absent.
    fn cursor(&self, lane: LaneKey) -> Result<Option<Cursor>, BackendError>;

    /// Every cursor.
    ///
    /// # Errors
    /// When one cannot be read.
    fn cursors(&self) -> Result<Vec<(LaneKey, Cursor)>, BackendError>;
}

/// What every group has in flight. Staged changes are durable once the batch was committed.
pub trait DeliveryStateStore: Send + Sync {
    /// Stages a row.
    fn stage_put(&self, batch: &mut PositionBatch, lane: LaneKey, offset: Offset, row: Row);

    /// Stages the end of a row.
    fn stage_delete(&self, batch: &mut PositionBatch, lane: LaneKey, offset: Offset);

    /// The rows of a lane, by offset.
    ///
    /// # Errors
    /// When one cannot be read.
    fn rows(&self, lane: LaneKey) -> Result<Vec<(Offset, Row)>, BackendError>;

    /// Every lane that has rows, with how many.
    ///
    /// # Errors
    /// When they cannot be read.
    fn lanes(&self) -> Result<Vec<(LaneKey, u64)>, BackendError>;
}

/// [`OffsetStore`] on the position database.
#[derive(Clone)]
pub struct RocksDbOffsetStore(pub(super) Arc<LocalDb>);

impl OffsetStore for RocksDbOffsetStore {
    fn stage(&self, batch: &mut PositionBatch, lane: LaneKey, cursor: Cursor) {
        batch.put_cursor(lane, cursor);
    }

    fn cursor(&self, lane: LaneKey) -> Result<Option<Cursor>, BackendError> {
        self.0
            .get(CURSORS, &lane.bytes())?
            .map(|value| Cursor::decode(&value).ok_or_else(|| unreadable(&lane.bytes())))
            .transpose()
    }

    fn cursors(&self) -> Result<Vec<(LaneKey, Cursor)>, BackendError> {
        let mut found = Vec::new();
        let mut bad = None;
        self.0.scan(CURSORS, b"", None, |key, value| {
            match LaneKey::read(key).zip(Cursor::decode(value)) {
                Some(pair) => found.push(pair),
                None => bad = Some(unreadable(key)),
            }
            bad.is_none()
        })?;
        bad.map_or(Ok(found), Err)
    }
}

/// [`DeliveryStateStore`] on the position database.
#[derive(Clone)]
pub struct RocksDbDeliveryStateStore(pub(super) Arc<LocalDb>);

impl DeliveryStateStore for RocksDbDeliveryStateStore {
    fn stage_put(&self, batch: &mut PositionBatch, lane: LaneKey, offset: Offset, row: Row) {
        batch.put_row(lane, offset, row);
    }

    fn stage_delete(&self, batch: &mut PositionBatch, lane: LaneKey, offset: Offset) {
        batch.delete_row(lane, offset);
    }

    fn rows(&self, lane: LaneKey) -> Result<Vec<(Offset, Row)>, BackendError> {
        let mut found = Vec::new();
        let mut bad = None;
        let to = lane.row(Offset(u64::MAX));
        self.0.scan(LEDGER, &lane.row(Offset(0)), Some(&to), |key, value| {
            match LaneKey::read_row(key).zip(Row::decode(value)) {
                Some(((_, offset), row)) => found.push((offset, row)),
                None => bad = Some(unreadable(key)),
            }
            bad.is_none()
        })?;
        bad.map_or(Ok(found), Err)
    }

    fn lanes(&self) -> Result<Vec<(LaneKey, u64)>, BackendError> {
        let mut found: Vec<(LaneKey, u64)> = Vec::new();
        let mut bad = None;
        self.0.scan(LEDGER, b"", None, |key, _| {
            match LaneKey::read_row(key) {
                Some((lane, _)) => match found.last_mut() {
                    Some((last, rows)) if *last == lane => *rows += 1,
                    _ => found.push((lane, 1)),
                },
                None => bad = Some(unreadable(key)),
            }
            bad.is_none()
        })?;
        bad.map_or(Ok(found), Err)
    }
}

fn unreadable(key: &[u8]) -> BackendError {
    BackendError::new(BackendErrorKind::Corrupt, NAME, "reading")
        .with_source(format!("the value under key {key:02x?} is damaged or of a newer release"))
}
