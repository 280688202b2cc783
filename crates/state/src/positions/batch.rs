//! Changes of positions that happen together or not at all.

use mesh_frame::Offset;

use super::{Cursor, LaneKey, Row};

/// One change of positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PositionChange {
    /// The lane's cursor is this one from now on.
    Cursor(LaneKey, Cursor),
    /// The lane's row at this offset is this one from now on.
    Put(LaneKey, Offset, Row),
    /// The lane has no row at this offset any more.
    Delete(LaneKey, Offset),
    /// The lane has no cursor and no rows any more.
    Forget(LaneKey),
}

/// Changes that happen together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PositionBatch {
    changes: Vec<PositionChange>,
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

    /// Its changes, in their order: what a driver carries out.
    pub fn changes(&self) -> &[PositionChange] {
        &self.changes
    }

    /// Adds everything of another batch behind what is there.
    pub fn extend(&mut self, other: Self) {
        self.changes.extend(other.changes);
    }

    /// Removes a lane: its cursor and all its rows.
    pub fn forget(&mut self, lane: LaneKey) {
        self.changes.push(PositionChange::Forget(lane));
    }

    /// Sets a lane's cursor.
    pub fn put_cursor(&mut self, lane: LaneKey, cursor: Cursor) {
        self.changes.push(PositionChange::Cursor(lane, cursor));
    }

    /// Writes a row.
    pub fn put_row(&mut self, lane: LaneKey, offset: Offset, row: Row) {
        self.changes.push(PositionChange::Put(lane, offset, row));
    }

    /// Ends a row.
    pub fn delete_row(&mut self, lane: LaneKey, offset: Offset) {
        self.changes.push(PositionChange::Delete(lane, offset));
    }

    /// The rows it writes (`Some`) and ends (`None`), in order.
    pub fn rows(&self) -> impl Iterator<Item = (Offset, Option<Row>)> + '_ {
        self.changes.iter().filter_map(|change| match change {
            PositionChange::Put(_, offset, row) => Some((*offset, Some(row.clone()))),
            PositionChange::Delete(_, offset) => Some((*offset, None)),
            PositionChange::Cursor(..) | PositionChange::Forget(_) => None,
        })
    }

    /// The last cursor it sets.
    pub fn cursor(&self) -> Option<Cursor> {
        self.changes.iter().rev().find_map(|change| match change {
            PositionChange::Cursor(_, cursor) => Some(*cursor),
            PositionChange::Put(..) | PositionChange::Delete(..) | PositionChange::Forget(_) => None,
        })
    }
}
