//! Settling deliveries: ack, nack, extend, reject, giving back, and their ends.

use mesh_base::UnixMillis;
use mesh_frame::Offset;
use mesh_state::positions::{EndReason, LastError, PositionBatch, RowState};

use super::{Entry, Lane, Member, Phase, Settled, Terms, Windows, timers::Back};

/// Which hand-out of an entry a verb speaks of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// Any, also one that was withdrawn while the event was not handed out again.
    Any,
    /// The newest only, unless it was withdrawn.
    Newest,
}

impl Lane {
    /// The live entry that a delivery id speaks of.
    fn live(&self, offset: Offset, serial: u32, of: Of) -> Option<&Entry> {
        let entry = self.entries.get(&offset.0)?;
        let row = &entry.row;
        let is_newest = serial == row.serial;
        let reached = serial > 0 && serial <= row.serial && !(is_newest && row.returned);
        let stands = serial >= row.void_below;
        let fits = match of {
            Of::Any => stands || entry.phase == Phase::Waiting,
            Of::Newest => stands && is_newest,
        };
        let alive = match entry.phase {
            Phase::Waiting | Phase::Held => true,
            // Staged to another member this moment: an older id still ends it.
            Phase::Handing => !is_newest,
            Phase::Dead(_) | Phase::Ending => false,
        };
        (reached && fits && alive).then_some(entry)
    }

    /// Who has a delivery, or had it last.
    pub fn member_of(&self, offset: Offset) -> Option<Member> {
        self.entries.get(&offset.0).map(Entry::member)
    }

    /// Acknowledges: the row ends. Any id of a live delivery will do. After the commit: [`Lane::ended`].
    pub fn ack(
        &mut self,
        offset: Offset,
        serial: u32,
        now: UnixMillis,
        windows: &mut Windows,
        batch: &mut PositionBatch,
    ) -> Settled {
        if self.live(offset, serial, Of::Any).is_none() {
            return Settled::Unknown;
        }
        batch.delete_row(self.key, offset);
        self.leave_window(offset.0, windows);
        self.begin_end(offset.0, now);
        Settled::Staged
    }

    /// Gives a delivery back for another attempt, due after `delay` or after the backoff.
    #[expect(clippy::too_many_arguments, reason = "the verb's own arguments and the lane's surroundings")]
    pub fn nack(
        &mut self,
        offset: Offset,
        serial: u32,
        delay: Option<std::time::Duration>,
        error: LastError,
        now: UnixMillis,
        terms: &Terms,
        windows: &mut Windows,
        batch: &mut PositionBatch,
    ) -> Settled {
        let Some(entry) = self.live(offset, serial, Of::Newest) else { return Settled::Unknown };
        let delay = delay.unwrap_or_else(|| terms.backoff.random_delay(entry.row.attempt, &terms.chance));
        self.find_lock(offset.0);
        self.fail(offset.0, error, now.plus(delay), now, terms, windows, batch);
        let entry = &self.entries[&offset.0];
        if matches!(entry.phase, Phase::Dead(_)) {
            return Settled::Dead;
        }
        let row = entry.row.clone();
        self.stage_put(batch, offset.0, row);
        Settled::Staged
    }

    /// Locks a delivery until `until`, also after its lock ran out while nobody else has it.
    pub fn extend(
        &mut self,
        offset: Offset,
        serial: u32,
        until: UnixMillis,
        now: UnixMillis,
        windows: &mut Windows,
        batch: &mut PositionBatch,
    ) -> Settled {
        let Some(entry) = self.live(offset, serial, Of::Newest) else { return Settled::Unknown };
        let (waiting, member, key) = (entry.phase == Phase::Waiting, entry.member(), entry.row.key);
        let with_another = key
            .and_then(|key| self.keys.head(key))
            .is_some_and(|(head, owner)| head != offset.0 || owner.is_some_and(|owner| owner != member));
        if waiting && with_another {
            return Settled::Unknown;
        }
        self.find_lock(offset.0);
        let entry = self.entries.get_mut(&offset.0).expect("found above");
        entry.phase = Phase::Held;
        entry.row.state = RowState::InFlight;
        entry.row.at = until;
        if waiting {
            windows.add(member);
            // Its member keeps it, whatever becomes of a stream.
            entry.row.by_stream = false;
        }
        let row = entry.row.clone();
        self.stage_put(batch, offset.0, row);
        self.occupy(offset.0, now);
        self.set_timer(offset.0, Some(until));
        Settled::Staged
    }

    /// Whether the lock of a delivery ran out: to extend it is to hand it out again.
    pub fn is_unlocked(&self, offset: Offset) -> bool {
        self.entries.get(&offset.0).is_some_and(|entry| entry.phase == Phase::Waiting)
    }

    /// Makes a delivery a dead letter now. Any id of a live delivery will do.
    pub fn reject(
        &mut self,
        offset: Offset,
        serial: u32,
        error: LastError,
        now: UnixMillis,
        windows: &mut Windows,
        batch: &mut PositionBatch,
    ) -> Settled {
        let Some(entry) = self.live(offset, serial, Of::Any) else { return Settled::Unknown };
        let (handing, key) = (entry.phase == Phase::Handing, entry.row.key);
        self.leave_window(offset.0, windows);
        if let Some(entry) = self.entries.get_mut(&offset.0) {
            entry.row.error = error;
        }
        self.make_dead(offset.0, EndReason::Rejected, now, batch);
        // What is staged behind it was not seen yet: it waits for the dead letter.
        if let Some(key) = key.filter(|_| handing) {
            self.withdraw_behind(key, offset.0, now, windows, batch);
        }
        Settled::Dead
    }

    /// Takes back a hand-out that never reached its member: uncounted, due at once.
    pub fn give_back(
        &mut self,
        offset: Offset,
        serial: u32,
        now: UnixMillis,
        windows: &mut Windows,
        batch: &mut PositionBatch,
    ) {
        let stands = self.entries.get(&offset.0).is_some_and(|entry| entry.row.serial == serial);
        if stands && self.withdraw(offset.0, Back::Unread, now, windows, batch) {
            let key = self.entries[&offset.0].row.key;
            if let Some(key) = key {
                self.withdraw_behind(key, offset.0, now, windows, batch);
            }
        }
    }

    /// A member left: everything it has is due at once, its attempts count, its ids stay good.
    pub fn member_left(
        &mut self,
        member: Member,
        now: UnixMillis,
        terms: &Terms,
        windows: &mut Windows,
        batch: &mut PositionBatch,
    ) {
        let its: Vec<u64> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.in_window() && entry.member() == member)
            .map(|(offset, _)| *offset)
            .collect();
        // The last first: nothing of a key is behind an entry that fails, so nothing is withdrawn uncounted.
        for offset in its.into_iter().rev() {
            self.fail(offset, LastError::ClientLeft, now, now, terms, windows, batch);
            let row = self.entries[&offset].row.clone();
            self.stage_put(batch, offset, row);
        }
    }

    /// A member's stream ended: what was written to it and is not settled is due at once the first time, with
    /// backoff afterwards, and a dead letter after its last attempt. What lies behind one of them of its key is
    /// withdrawn. What never was written is to be given back before. `by_client`: the client ended it, or was gone, and
    /// what it had lost its lock by that.
    pub fn stream_closed(
        &mut self,
        member: Member,
        by_client: bool,
        now: UnixMillis,
        terms: &Terms,
        windows: &mut Windows,
        batch: &mut PositionBatch,
    ) {
        let written =
            |entry: &Entry| entry.phase == Phase::Held && entry.row.by_stream && entry.member() == member;
        let its: Vec<u64> =
            self.entries.iter().filter(|(_, entry)| written(entry)).map(|(offset, _)| *offset).collect();
        for offset in its {
            // One before it of its key may have withdrawn it.
            let Some(entry) = self.entries.get(&offset).filter(|entry| written(entry)) else { continue };
            let attempt = entry.row.attempt;
            let due =
                if attempt <= 1 { now } else { now.plus(terms.backoff.random_delay(attempt, &terms.chance)) };
            if by_client {
                self.lose_lock(offset);
            }
            self.fail(offset, LastError::StreamClosed, due, now, terms, windows, batch);
            let row = self.entries[&offset].row.clone();
            self.stage_put(batch, offset, row);
        }
    }

    /// A dead letter is stored: its row ends. After the commit: [`Lane::ended`].
    pub fn dead_lettered(&mut self, offset: Offset, now: UnixMillis, batch: &mut PositionBatch) -> bool {
        let dead = self.entries.get(&offset.0).is_some_and(|entry| matches!(entry.phase, Phase::Dead(_)));
        if dead {
            batch.delete_row(self.key, offset);
            self.dead.remove(&offset.0);
            self.begin_end(offset.0, now);
        }
        dead
    }

    /// Staged to end: no verb reaches it any more, its key stays occupied until the commit.
    pub(super) fn begin_end(&mut self, offset: u64, now: UnixMillis) {
        self.set_timer(offset, None);
        if let Some(entry) = self.entries.get_mut(&offset) {
            entry.phase = Phase::Ending;
            self.settle(offset, now);
        }
    }

    /// Confirms ends whose batch was committed.
    pub fn ended(&mut self, offsets: &[Offset], windows: &mut Windows, now: UnixMillis) {
        for offset in offsets {
            if self.entries.get(&offset.0).is_some_and(|entry| entry.phase == Phase::Ending) {
                self.remove(offset.0, windows, now);
            }
        }
    }

    fn leave_window(&mut self, offset: u64, windows: &mut Windows) {
        if let Some(entry) = self.entries.get(&offset)
            && entry.in_window()
        {
            windows.remove(entry.member());
        }
    }
}
