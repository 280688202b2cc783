//! When a change of positions is done: commits in order, and what becomes of the answer.
//!
//! A batch is handed in under the lock of the group that it changes, so that the batches of a group are committed in
//! the order they were made. What a commit completes belongs to the group ([`crate::group`]): the request that handed it in
//! only waits to learn of it. While the position database cannot write, everything answers [`LedgerUnavailable`] and
//! stays as it is.

mod outstanding;

use std::sync::Arc;

use mesh_base::{BackendError, BackendErrorKind};
use mesh_rocks::Durability;
use mesh_state::positions::{Commit, CommitError, LedgerEpoch, PositionBatch, Positions};

pub(crate) use outstanding::Outstanding;

/// The ledger cannot write or be read now: the same request can be tried again.
#[derive(Debug, thiserror::Error)]
pub enum LedgerUnavailable {
    /// A commit did not happen.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The position database or the log could not be read.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl LedgerUnavailable {
    /// What happened, with every cause, in one line.
    pub fn chain(&self) -> String {
        match self {
            Self::Commit(error) => error.to_string(),
            Self::Backend(error) => error.chain(),
        }
    }

    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Commit(error) => *error == CommitError::Full,
            Self::Backend(error) => error.kind() == BackendErrorKind::Full,
        }
    }
}

/// The positions of every group, and the rows they may have outstanding together.
pub(crate) struct Ledger {
    pub(crate) positions: Arc<Positions>,
    pub(crate) outstanding: Outstanding,
}

impl Ledger {
    pub(crate) fn new(positions: Arc<Positions>, most_outstanding: usize) -> Self {
        Self { positions, outstanding: Outstanding::new(most_outstanding) }
    }

    /// The view of the database that lanes are to be of: each suspension makes another.
    pub(crate) fn epoch(&self) -> LedgerEpoch {
        self.positions.log().epoch()
    }

    /// Why the ledger cannot write now, when it cannot.
    pub(crate) fn suspension(&self) -> Option<CommitError> {
        self.positions.log().suspension()
    }

    /// Hands a batch in; an empty one is a barrier behind everything before it.
    pub(crate) fn commit(&self, epoch: LedgerEpoch, batch: PositionBatch, durability: Durability) -> Commit {
        self.positions.log().commit(epoch, batch, durability)
    }

    /// Hands a batch in and waits for it.
    ///
    /// # Errors
    /// When it was not carried out.
    pub(crate) async fn write(
        &self,
        batch: PositionBatch,
        durability: Durability,
    ) -> Result<(), CommitError> {
        self.commit(self.epoch(), batch, durability).await
    }

    /// Hands a batch in without waiting; what fails shows as a suspension.
    pub(crate) fn commit_later(&self, epoch: LedgerEpoch, batch: PositionBatch) {
        if !batch.is_empty() {
            drop(self.commit(epoch, batch, Durability::Logged));
        }
    }
}
