//! What keeps positions: the contract of a driver, and the two stores that it is read through.
//!
//! Writes go through [`PositionStore::commit`] only, so that cursor and ledger are written together. Who decides when
//! to write, and what a failed write means for a view in memory, is [`super::PositionLog`].

use mesh_base::BackendError;
use mesh_frame::Offset;
use mesh_rocks::Durability;

use super::{Cursor, LaneKey, PositionBatch, Row};

/// A driver: where positions are kept.
///
/// * A commit is one effect: all its changes happen or none does. Its batches are carried out in their order, and the
///   changes of a batch in theirs: of two changes of the same thing the later one holds. A commit without any change
///   has no effect.
/// * Every read that starts after a commit was answered shows it, or a later one. A single read shows a commit whole
///   or not at all.
/// * What was committed [`Durability::Logged`] is kept when the process is killed, and within a second kept when power
///   is lost; with [`Durability::Synced`], or after [`PositionStore::sync`], it is kept when power is lost.
/// * One thread writes at a time. Reads come from any thread at any time, and do not wait for a commit that syncs.
/// * Every group number, generation and partition can be a lane's; offsets of rows are below `u64::MAX`.
///
/// # Errors
/// `Err` means that the backend failed: `Full` when it has no space, `Corrupt` when what it holds cannot be read,
/// `Unavailable` otherwise. A commit that failed may have happened or may happen at the next start, whole or not at
/// all: a caller that keeps a view in memory reads again. After it commits may fail until [`PositionStore::heal`] has
/// succeeded. A driver neither waits for ever nor retries.
pub trait PositionStore: Send + Sync + 'static {
    /// Carries out these batches in their order, as one effect. Blocks; with [`Durability::Synced`] for a device sync.
    fn commit(&self, batches: &[PositionBatch], durability: Durability) -> Result<(), BackendError>;

    /// Puts what was committed on the disk. After a commit that failed it may do nothing until one has succeeded.
    /// Blocks.
    fn sync(&self) -> Result<(), BackendError>;

    /// Tries whether commits succeed, and does what makes them succeed again after one has failed. `Ok`: they do, and
    /// a read after it sees what is there for good. No read ever shows the attempt. To be called about twice a
    /// second until it succeeds. Blocks.
    fn heal(&self) -> Result<(), BackendError>;

    /// How far every group is.
    fn offsets(&self) -> &dyn OffsetStore;

    /// What every group has in flight.
    fn deliveries(&self) -> &dyn DeliveryStateStore;
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

    /// Every cursor, in the order of the lanes.
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

    /// Every lane that has rows, with how many, in the order of the lanes.
    ///
    /// # Errors
    /// When they cannot be read.
    fn lanes(&self) -> Result<Vec<(LaneKey, u64)>, BackendError>;
}
