//! Loading a lane from what the database holds: at boot, and after the ledger was suspended.
//!
//! The log is not read. A delivery handed out by poll keeps its lock; one written to a stream is due at
//! once the first time, with backoff afterwards. Times in rows are clamped to twelve hours from now.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use mesh_base::UnixMillis;
use mesh_frame::Offset;
use mesh_state::positions::{Cursor, EndReason, LaneKey, LastError, PositionBatch, Row, RowState};

use super::{Entry, Lane, Member, Phase, Terms, Windows, keys::Keys};

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
            condemned: BTreeSet::new(),
        };
        for (offset, row) in rows {
            lane.load_row(offset.0, row, terms, windows, now);
        }
        // A stream's delivery is due again while a poll still has one behind it: that one comes after it.
        // The next load says the same, so nothing needs to be written.
        for (key, head) in lane.keys.out_of_order() {
            lane.withdraw_behind(key, head, now, windows, &mut PositionBatch::new());
        }
        lane
    }

    fn load_row(&mut self, offset: u64, mut row: Row, terms: &Terms, windows: &mut Windows, now: UnixMillis) {
        row.at = row.at.min(now.plus(LONGEST));
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
                self.condemn(offset, EndReason::AttemptsExhausted, now, &mut PositionBatch::new());
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
            RowState::Condemned(reason) => {
                entry.phase = Phase::Condemned(reason);
                self.entries.insert(offset, entry);
                self.settle(offset, now);
                self.condemned.insert(offset);
            }
        }
    }
}
