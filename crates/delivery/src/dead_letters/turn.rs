//! Whose turn it is, how fast, and what earlier turns left open.

use std::{sync::Arc, time::Duration};

use mesh_base::Clock;
use mesh_state::shared::ReplayAttempt;
use tokio::sync::OwnedMutexGuard;

/// Copies a second, over all replays of the process.
const REPLAYS_A_SECOND: u64 = 1_000;

/// So many attempts that a log answered with an error may be open.
const MOST_UNSURE: usize = 16;

/// One for the process.
#[derive(Debug, Default)]
pub(super) struct Turns(Arc<tokio::sync::Mutex<Turn>>);

/// What one turn hands to the next.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// When the next copies may be made.
    next: Duration,
    /// Attempts that the log answered with an error.
    pub(super) unsure: Vec<Unsure>,
    /// Whether what is written down may say more than that.
    pub(super) stale: bool,
    /// Whether a task sees to both.
    pub(super) tidying: bool,
}

/// An attempt that the log answered with an error: its copies may be there all the same, or come back at the next
/// start, until the log has stored something after them.
#[derive(Debug)]
pub(super) struct Unsure {
    pub(super) attempt: ReplayAttempt,
    /// By partition: where the log ended when it had answered.
    pub(super) ends: Vec<u64>,
}

impl Turn {
    /// Whether nothing is left open.
    pub(super) fn is_tidy(&self) -> bool {
        self.unsure.is_empty() && !self.stale
    }

    /// Whether an attempt could be remembered: none that is open is forgotten.
    pub(super) fn has_room_for(&mut self, attempt: &ReplayAttempt) -> bool {
        self.unsure.len() < MOST_UNSURE || self.same(attempt).is_some()
    }

    /// The attempt at the same letters that is open.
    pub(super) fn same(&mut self, attempt: &ReplayAttempt) -> Option<&mut Unsure> {
        let is_same = |known: &&mut Unsure| {
            known.attempt.incarnation == attempt.incarnation && known.attempt.groups == attempt.groups
        };
        self.unsure.iter_mut().find(is_same)
    }

    /// That many copies were made.
    pub(super) fn spent(&mut self, copies: usize, clock: &Clock) {
        let took = Duration::from_secs(1) * u32::try_from(copies).unwrap_or(u32::MAX)
            / u32::try_from(REPLAYS_A_SECOND).unwrap_or(1);
        self.next = self.next.max(clock.elapsed()) + took;
    }
}

impl Turns {
    /// Waits for a turn, at most that long; `None`: an earlier one is not finished.
    pub(super) async fn turn(&self, patience: Duration) -> Option<OwnedMutexGuard<Turn>> {
        tokio::time::timeout(patience, self.0.clone().lock_owned()).await.ok()
    }

    /// Waits for a turn likewise, and until copies may be made.
    pub(super) async fn paced_turn(
        &self,
        patience: Duration,
        clock: &Clock,
    ) -> Option<OwnedMutexGuard<Turn>> {
        let turn = self.turn(patience).await?;
        tokio::time::sleep(turn.next.saturating_sub(clock.elapsed())).await;
        Some(turn)
    }
}
