//! Positions in memory, for tests and simulations: no server can have them.
//!
//! What was committed is there as long as the value is: a "restart" over the same value keeps all of it, as a killed
//! process does. It never fails; [`super::faulty`] around it does.

use std::collections::BTreeMap;

use mesh_base::BackendError;
use mesh_frame::Offset;
use mesh_rocks::Durability;
use parking_lot::RwLock;

use super::{
    Cursor, DeliveryStateStore, LaneKey, OffsetStore, PositionBatch, PositionChange, PositionStore, Row,
};

/// Positions in memory.
#[derive(Debug, Default)]
pub struct MemoryPositions(RwLock<Held>);

#[derive(Debug, Default)]
struct Held {
    cursors: BTreeMap<LaneKey, Cursor>,
    /// No lane is here without a row.
    rows: BTreeMap<LaneKey, BTreeMap<Offset, Row>>,
}

impl MemoryPositions {
    /// No positions.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Held {
    fn make(&mut self, change: &PositionChange) {
        match change {
            PositionChange::Cursor(lane, cursor) => {
                self.cursors.insert(*lane, *cursor);
            }
            PositionChange::Put(lane, offset, row) => {
                self.rows.entry(*lane).or_default().insert(*offset, row.clone());
            }
            PositionChange::Delete(lane, offset) => {
                if let Some(rows) = self.rows.get_mut(lane) {
                    rows.remove(offset);
                    if rows.is_empty() {
                        self.rows.remove(lane);
                    }
                }
            }
            PositionChange::Forget(lane) => {
                self.cursors.remove(lane);
                self.rows.remove(lane);
            }
        }
    }
}

impl PositionStore for MemoryPositions {
    fn commit(&self, batches: &[PositionBatch], _durability: Durability) -> Result<(), BackendError> {
        let mut held = self.0.write();
        batches.iter().flat_map(PositionBatch::changes).for_each(|change| held.make(change));
        Ok(())
    }

    fn sync(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn heal(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn offsets(&self) -> &dyn OffsetStore {
        self
    }

    fn deliveries(&self) -> &dyn DeliveryStateStore {
        self
    }
}

impl OffsetStore for MemoryPositions {
    fn stage(&self, batch: &mut PositionBatch, lane: LaneKey, cursor: Cursor) {
        batch.put_cursor(lane, cursor);
    }

    fn cursor(&self, lane: LaneKey) -> Result<Option<Cursor>, BackendError> {
        Ok(self.0.read().cursors.get(&lane).copied())
    }

    fn cursors(&self) -> Result<Vec<(LaneKey, Cursor)>, BackendError> {
        Ok(self.0.read().cursors.iter().map(|(lane, cursor)| (*lane, *cursor)).collect())
    }
}

impl DeliveryStateStore for MemoryPositions {
    fn stage_put(&self, batch: &mut PositionBatch, lane: LaneKey, offset: Offset, row: Row) {
        batch.put_row(lane, offset, row);
    }

    fn stage_delete(&self, batch: &mut PositionBatch, lane: LaneKey, offset: Offset) {
        batch.delete_row(lane, offset);
    }

    fn rows(&self, lane: LaneKey) -> Result<Vec<(Offset, Row)>, BackendError> {
        let held = self.0.read();
        let rows = held.rows.get(&lane).into_iter().flatten();
        Ok(rows.map(|(offset, row)| (*offset, row.clone())).collect())
    }

    fn lanes(&self) -> Result<Vec<(LaneKey, u64)>, BackendError> {
        Ok(self.0.read().rows.iter().map(|(lane, rows)| (*lane, rows.len() as u64)).collect())
    }
}
