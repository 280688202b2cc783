//! Loading a lane from what the database holds: at boot, and after the ledger was suspended.
//!
//! The log is not read. A delivery handed out by poll keeps its lock; one written to a stream is due at
//! once the first time, with backoff afterwards. No lock and no wait lasts longer from now on than it was meant to: the
//! clock may have been wrong when it began.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use mesh_base::UnixMillis;
use mesh_frame::Offset;
use mesh_state::positions::{Cursor, EndReason, LaneKey, LastError, PositionBatch, Row, RowState};

use super::{Entry, Lane, Member, Phase, Terms, Windows, gap::Gaps, keys::Keys};

/// No lock and no wait is longer than this.
const LONGEST: Duration = Duration::from_secs(12 * 3_600);

impl Lane {
    /// The lane as the database has it.
    pub fn load(
        key: LaneKey,
        cursor: Cursor,
        rows: Vec<(Offset, Row)>,
        terms: &Terms,
        windows: &mut Windows,
        now: UnixMillis,
    ) -> Self {
        let next = cursor.next_to_read.0;
        let mut lane = Self {
            key,
            incarnation: cursor.incarnation,
            next,
            committed: next,
            scan: next,
            entries: BTreeMap::new(),
            keys: Keys::default(),
            free: BTreeSet::new(),
            runs: BTreeMap::new(),
            timers: BTreeSet::new(),
            dead: BTreeSet::new(),
            suspects: None,
            gaps: Gaps::default(),
        };
        for (offset, row) in rows {
            // A stream that the end of the process cut counts for no lost lock: that was not its client.
            lane.load_row(offset.0, row, terms, windows, now);
            lane.suspect(offset.0);
        }
        // A stream's delivery is due again while a poll still has one behind it: that one comes after it.
        // The next load says the same, so nothing needs to be written.
        for (key, head) in lane.keys.out_of_order() {
            lane.withdraw_behind(key, head, now, windows, &mut PositionBatch::new());
        }
        lane
    }

    fn load_row(&mut self, offset: u64, mut row: Row, terms: &Terms, windows: &mut Windows, now: UnixMillis) {
        // From the hand-out to its end: what it can have left, whatever the clock said then.
        let length = row.at.since(row.last).min(LONGEST);
        row.at = row.at.min(now.plus(length));
        if row.state == RowState::InFlight && row.by_stream {
            row.error = LastError::StreamClosed;
        }
        let mut entry = Entry { row: row.clone(), phase: Phase::Waiting, durable: true, timer: None };
        match row.state {
            RowState::Waiting => {
                self.entries.insert(offset, entry);
                self.wait(offset, row.at, now);
            }
            RowState::InFlight
                if row.by_stream && terms.max_attempts > 0 && row.attempt >= terms.max_attempts =>
            {
                self.entries.insert(offset, entry);
                self.make_dead(offset, EndReason::AttemptsExhausted, now, &mut PositionBatch::new());
            }
            RowState::InFlight if row.by_stream => {
                let due = if row.attempt <= 1 {
                    now
                } else {
                    now.plus(terms.backoff.random_delay(row.attempt, &terms.chance))
                };
                self.entries.insert(offset, entry);
                self.wait(offset, due, now);
            }
            RowState::InFlight => {
                entry.phase = Phase::Held;
                windows.add(Member(row.member));
                self.entries.insert(offset, entry);
                self.occupy(offset, now);
                if let Some(key) = row.key {
                    self.keys.stall(key);
                    self.place_key(key, now);
                }
                self.set_timer(offset, Some(row.at));
            }
            RowState::Dead(reason) => {
                entry.phase = Phase::Dead(reason);
                self.entries.insert(offset, entry);
                self.settle(offset, now);
                self.dead.insert(offset);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mesh_base::{Backoff, Chance};
    use mesh_frame::{Epoch, Incarnation, PartitionId};

    use super::*;
    use crate::lane::AckMode;

    /// When a lane that is loaded `now` ends a lock, or a wait, that the row says ends at `at`.
    fn ends(state: RowState, last: u64, at: u64, now: u64) -> Option<u64> {
        let row = Row {
            state,
            by_stream: false,
            attempt: 1,
            serial: 1,
            void_below: 0,
            returned: false,
            lost: 0,
            first: UnixMillis(last),
            last: UnixMillis(last),
            at: UnixMillis(at),
            key: None,
            member: 5,
            epoch: Epoch(1),
            error: LastError::Unknown,
        };
        let terms = Terms {
            ack: AckMode::Explicit,
            ack_timeout: Duration::from_secs(30),
            max_attempts: 6,
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(16), 0.2),
            max_outstanding: 10,
            epoch: Epoch(1),
            chance: Chance::seeded(1),
        };
        let key = LaneKey { group: 1, generation: 0, partition: PartitionId(0) };
        let cursor = Cursor { next_to_read: Offset(1), incarnation: Incarnation(1) };
        let rows = vec![(Offset(0), row)];
        let lane = Lane::load(key, cursor, rows, &terms, &mut Windows::default(), UnixMillis(now));
        lane.next_timer().map(|at| at.0)
    }

    #[test]
    fn a_lock_that_began_while_the_clock_was_wrong_lasts_no_longer_than_it_was_meant_to() {
        let (hour, now) = (3_600_000, 100_000_000);
        for state in [RowState::InFlight, RowState::Waiting] {
            assert_eq!(
                ends(state, now - 10_000, now + 20_000, now),
                Some(now + 20_000),
                "the clock is right"
            );
            assert_eq!(ends(state, now + hour, now + hour + 30_000, now), Some(now + 30_000), "it was ahead");
            assert_eq!(
                ends(state, now - hour, now + 20 * hour, now),
                Some(now + 12 * hour),
                "nothing lasts longer"
            );
        }
        // It was behind: what is over is over.
        assert_eq!(ends(RowState::Waiting, now - hour, now - hour + 30_000, now), None);
    }
}
