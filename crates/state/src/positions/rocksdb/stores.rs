//! What is read of the position database. A value that cannot be read is an error, never an absent one.

use std::sync::Arc;

use mesh_base::{BackendError, BackendErrorKind};
use mesh_frame::Offset;
use mesh_rocks::LocalDb;

use super::super::{
    Cursor, DeliveryStateStore, LaneKey, OffsetStore, PositionBatch, Row,
    keys::{CURSORS, LEDGER, NAME},
};

/// [`OffsetStore`] on the position database.
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
