//! What time does to a lane: locks run out, waits end, attempts are used up.

use mesh_base::UnixMillis;
use mesh_frame::Offset;
use mesh_state::positions::{EndReason, LastError, PositionBatch, RowState};

use super::{Lane, Member, Phase, Terms, Windows};

/// Why a hand-out is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Back {
    /// An event before it of its key comes again first. Until it is handed out again its id acks and rejects.
    Withdrawn,
    /// It never reached its member: its id is void, those before it are not.
    Unread,
}

impl Lane {
    /// Brings the lane to `now`. What it stages need not be waited for: a lock that ran out says the same
    /// after a restart. `true`: something became ready, or a dead letter is due.
    pub fn advance(
        &mut self,
        now: UnixMillis,
        terms: &Terms,
        windows: &mut Windows,
        batch: &mut PositionBatch,
    ) -> bool {
        let mut changed = false;
        while let Some((at, offset)) = self.timers.first().copied() {
            if at > now.0 {
                break;
            }
            self.timers.pop_first();
            let Some(entry) = self.entries.get_mut(&offset) else { continue };
            entry.timer = None;
            let (at, attempt) = (entry.row.at, entry.row.attempt);
            match entry.phase {
                Phase::Held => {
                    let due = at.plus(terms.backoff.random_delay(attempt, &terms.chance));
                    self.lose_lock(offset);
                    self.fail(offset, LastError::DeadlinePassed, due, now, terms, windows, batch);
                }
                Phase::Waiting => self.wait(offset, at.min(now), now),
                Phase::Handing | Phase::Dead(_) | Phase::Ending => continue,
            }
            changed = true;
        }
        changed
    }

    /// An attempt failed: wait until `due`, or become a dead letter when it was the last. What the member
    /// has of the same key behind it is withdrawn.
    #[expect(clippy::too_many_arguments, reason = "what failed and the lane's surroundings")]
    pub(super) fn fail(
        &mut self,
        offset: u64,
        error: LastError,
        due: UnixMillis,
        now: UnixMillis,
        terms: &Terms,
        windows: &mut Windows,
        batch: &mut PositionBatch,
    ) {
        let Some(entry) = self.entries.get_mut(&offset) else { return };
        if entry.in_window() {
            windows.remove(Member(entry.row.member));
        }
        entry.row.error = error;
        let (key, attempt) = (entry.row.key, entry.row.attempt);
        if terms.max_attempts > 0 && attempt >= terms.max_attempts {
            self.make_dead(offset, EndReason::AttemptsExhausted, now, batch);
        } else {
            self.wait(offset, due, now);
        }
        if let Some(key) = key {
            self.withdraw_behind(key, offset, now, windows, batch);
        }
    }

    /// Makes an entry a dead letter to be.
    pub(super) fn make_dead(
        &mut self,
        offset: u64,
        reason: EndReason,
        now: UnixMillis,
        batch: &mut PositionBatch,
    ) {
        self.set_timer(offset, None);
        let Some(entry) = self.entries.get_mut(&offset) else { return };
        entry.phase = Phase::Dead(reason);
        entry.row.state = RowState::Dead(reason);
        entry.row.at = now;
        let row = entry.row.clone();
        self.stage_put(batch, offset, row);
        self.dead.insert(offset);
        self.settle(offset, now);
    }

    /// Takes back what a member has of a key behind an event that comes again first: uncounted. Its ids still ack and
    /// reject, so that a client which goes on all the same loses nothing by it.
    pub(super) fn withdraw_behind(
        &mut self,
        key: u64,
        offset: u64,
        now: UnixMillis,
        windows: &mut Windows,
        batch: &mut PositionBatch,
    ) {
        for behind in self.keys.flying_behind(key, offset) {
            self.withdraw(behind, Back::Withdrawn, now, windows, batch);
        }
        self.place_key(key, now);
    }

    /// Takes back one hand-out: uncounted, due at once. `false`: it is not with a member.
    pub(super) fn withdraw(
        &mut self,
        offset: u64,
        back: Back,
        now: UnixMillis,
        windows: &mut Windows,
        batch: &mut PositionBatch,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(&offset).filter(|entry| entry.in_window()) else {
            return false;
        };
        windows.remove(Member(entry.row.member));
        entry.row.attempt = entry.row.attempt.saturating_sub(1);
        match back {
            Back::Withdrawn => entry.row.void_below = entry.row.serial + 1,
            Back::Unread => entry.row.returned = true,
        }
        self.wait(offset, now, now);
        let row = self.entries[&offset].row.clone();
        batch.put_row(self.key, Offset(offset), row);
        true
    }
}
