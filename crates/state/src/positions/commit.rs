//! The answer to a commit: the ledger's thread gives it once, one task waits for it, and every group that is concerned by what
//! the commit changes can look at it.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll},
};

use futures_util::task::AtomicWaker;

/// Why a commit did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The log cannot write now, or could not since the view was read. Nothing of the batch is effective;
    /// read the database again once [`super::PositionLog::is_open`].
    #[error("the ledger is suspended")]
    Suspended,
    /// The same, because the disk is full.
    #[error("the ledger is suspended: no space is left on the disk")]
    Full,
    /// The log was closed.
    #[error("the ledger is closed")]
    Closed,
}

const OPEN: u8 = 0;
const DONE: u8 = 1;
const SUSPENDED: u8 = 2;
const FULL: u8 = 3;
const CLOSED: u8 = 4;

#[derive(Debug, Default)]
struct Cell {
    decided: AtomicU8,
    waiter: AtomicWaker,
}

impl Cell {
    fn answer(&self) -> Option<Result<(), CommitError>> {
        match self.decided.load(Ordering::Acquire) {
            OPEN => None,
            DONE => Some(Ok(())),
            SUSPENDED => Some(Err(CommitError::Suspended)),
            FULL => Some(Err(CommitError::Full)),
            _ => Some(Err(CommitError::Closed)),
        }
    }
}

/// A commit that was handed in; waits for its answer. Dropping it does not end the commit.
#[derive(Debug)]
#[must_use = "a commit can fail"]
pub struct Commit(Arc<Cell>);

impl Commit {
    /// What was decided, for others to look at.
    pub fn decision(&self) -> Decision {
        Decision(self.0.clone())
    }
}

impl Future for Commit {
    type Output = Result<(), CommitError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(answer) = self.0.answer() {
            return Poll::Ready(answer);
        }
        self.0.waiter.register(cx.waker());
        // It may have been decided in between.
        self.0.answer().map_or(Poll::Pending, Poll::Ready)
    }
}

/// A look at what became of a commit.
#[derive(Clone, Debug)]
pub struct Decision(Arc<Cell>);

impl Decision {
    /// The answer; `None`: it is under way.
    pub fn answer(&self) -> Option<Result<(), CommitError>> {
        self.0.answer()
    }
}

/// Who decides a commit. Dropped without a word, it says that the ledger is closed.
#[derive(Debug)]
pub(super) struct Decider(Arc<Cell>);

impl Decider {
    pub(super) fn new() -> (Self, Commit) {
        let cell = Arc::<Cell>::default();
        (Self(cell.clone()), Commit(cell))
    }

    pub(super) fn decide(self, answer: Result<(), CommitError>) {
        self.set(match answer {
            Ok(()) => DONE,
            Err(CommitError::Suspended) => SUSPENDED,
            Err(CommitError::Full) => FULL,
            Err(CommitError::Closed) => CLOSED,
        });
    }

    fn set(&self, decided: u8) {
        if self.0.decided.compare_exchange(OPEN, decided, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.0.waiter.wake();
        }
    }
}

impl Drop for Decider {
    fn drop(&mut self) {
        self.set(CLOSED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_is_given_once_and_seen_by_all() {
        let (decider, commit) = Decider::new();
        let look = commit.decision();
        assert_eq!(look.answer(), None);
        let decide = async {
            tokio::task::yield_now().await;
            decider.decide(Err(CommitError::Full));
        };
        let (answer, ()) = tokio::join!(commit, decide);
        assert_eq!(answer, Err(CommitError::Full));
        assert_eq!(look.answer(), Some(Err(CommitError::Full)));
        let (decider, commit) = Decider::new();
        drop(decider);
        assert_eq!(commit.await, Err(CommitError::Closed));
    }
}
