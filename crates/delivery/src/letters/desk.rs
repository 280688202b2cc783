//! Whose turn it is, how fast, and which rows have a copy already.

use std::{collections::HashSet, sync::Arc, time::Duration};

use mesh_base::Clock;
use mesh_state::shared::{DeadLetter, Stored};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// Copies a second, over all replays of the process.
const REPLAYS_A_SECOND: u64 = 1_000;

/// One for the process.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    turn: Arc<tokio::sync::Mutex<Pace>>,
    /// The stamps of rows whose copy is in the log while the row could not be removed.
    copied: Mutex<HashSet<(String, u64)>>,
}

/// When the next copies may be made.
#[derive(Debug, Default)]
pub(super) struct Pace {
    next: Duration,
}

impl Pace {
    /// That many copies were made.
    pub(super) fn spent(&mut self, copies: usize, clock: &Clock) {
        let took = Duration::from_secs(1) * u32::try_from(copies).unwrap_or(u32::MAX)
            / u32::try_from(REPLAYS_A_SECOND).unwrap_or(1);
        self.next = self.next.max(clock.elapsed()) + took;
    }
}

impl Desk {
    /// Waits for a turn.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<Pace> {
        self.turn.clone().lock_owned().await
    }

    /// Waits for a turn, and until copies may be made.
    pub(super) async fn paced_turn(&self, clock: &Clock) -> OwnedMutexGuard<Pace> {
        let turn = self.turn().await;
        tokio::time::sleep(turn.next.saturating_sub(clock.elapsed())).await;
        turn
    }

    /// Whether a row's copy is in the log.
    pub(super) fn is_copied(&self, row: &Stored<DeadLetter>) -> bool {
        self.copied.lock().contains(&stamp(row))
    }

    pub(super) fn copied(&self, row: &Stored<DeadLetter>) {
        self.copied.lock().insert(stamp(row));
    }

    /// The row is gone, or its copy counts no longer.
    pub(super) fn forget(&self, row: &Stored<DeadLetter>) {
        self.copied.lock().remove(&stamp(row));
    }
}

fn stamp(row: &Stored<DeadLetter>) -> (String, u64) {
    (row.stamp.writer.clone(), row.stamp.counter)
}
