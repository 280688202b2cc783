//! The lane: cursor and ledger of one group on one partition, as a machine without I/O.
//!
//! Every method changes the view in memory and stages the same change into a [`PositionBatch`]; the
//! caller commits batches in the order they were made and reports back: [`Lane::handed`] and
//! [`Lane::ended`] after a success. After a failure the lane is thrown away and loaded again from the
//! database: there is no roll-back to get wrong.
//!
//! It guarantees: an event below `next_to_read` without a row is done, for ever; a row ends only by ack,
//! dead letter, expiry, filter or because the log lost the event; the events of one key are with one
//! member at a time, in order; attempts only rise, except for hand-outs that never reached anybody.

mod gap;
mod hand_out;
mod keys;
mod load;
mod member;
mod settle;
mod timers;

#[cfg(test)]
mod model;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use mesh_base::{Backoff, Chance, UnixMillis};
use mesh_frame::{Epoch, Incarnation, Offset};
use mesh_state::positions::{Cursor, EndReason, LaneKey, LastError, PositionBatch, Row, RowState};
use mesh_storage::{Cached, LogRecord};

use gap::Gaps;
pub use gap::{Gap, GapReason};
pub use hand_out::{Judge, key_hash};
pub(crate) use hand_out::{LOOK, delivery_bytes};
use keys::Keys;
pub use member::{Member, Windows};

/// How a group acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckMode {
    /// A delivery is done when its client says so.
    Explicit,
    /// A delivery is done when it is handed out: at most once.
    Auto,
}

/// The settings of a group that a lane obeys.
#[derive(Clone, Debug)]
pub struct Terms {
    /// When a delivery is done.
    pub ack: AckMode,
    /// How long a member may keep a delivery.
    pub ack_timeout: Duration,
    /// Hand-outs before the dead letters; 0 = no limit.
    pub max_attempts: u32,
    /// The wait before a redelivery.
    pub backoff: Backoff,
    /// Outstanding rows at most.
    pub max_outstanding: usize,
    /// The epoch of this owner, written into rows.
    pub epoch: Epoch,
    /// Where the jitter of waits comes from.
    pub chance: Chance,
}

/// Where a lane's records come from: the caches, never a disk.
pub trait Source {
    /// Copies out records at and after `from`, at most `most`; see [`Cached`].
    fn records(&mut self, from: Offset, most: usize, out: &mut Vec<Arc<LogRecord>>) -> Cached;
}

/// What the group makes of a record that could be handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is wanted.
    Deliver,
    /// No filter wants it.
    Filtered,
    /// Its time is over.
    Expired,
}

/// Why a delivery ended without an ack or a dead letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// No filter wanted it.
    pub filtered: u64,
    /// Its time was over.
    pub expired: u64,
    /// The log no longer had it.
    pub gone: u64,
}

/// A delivery that was handed out; effective once its batch is committed and [`Lane::handed`] confirmed it.
#[derive(Clone, Debug)]
pub struct HandOut {
    /// The event with its place.
    pub record: Arc<LogRecord>,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// The number of this hand-out, for the delivery id.
    pub serial: u32,
    /// Until when it is locked.
    pub locked_until: UnixMillis,
    /// What the group was not given before it.
    pub gap: Option<Box<Gap>>,
}

/// What a take gave.
#[derive(Debug, Default)]
pub struct Taken {
    /// To commit, before anything in `hand_outs` is told to anybody. May hold changes without a hand-out.
    pub batch: PositionBatch,
    /// What the member gets.
    pub hand_outs: Vec<HandOut>,
    /// `next_to_read` once the batch is committed.
    pub next: Offset,
    /// Rows that end with this batch; for [`Lane::ended`].
    pub ends: Vec<Offset>,
    /// The take stopped because the record at this offset is not in memory.
    pub cold: Option<Offset>,
    /// The take stopped at its own bound of work: there may be more at once.
    pub more: bool,
    /// What is left of the work that was allowed.
    pub work: usize,
    /// Members that are to have what was left to them.
    pub left_to: Vec<Member>,
    /// What it dropped on the way.
    pub dropped: Dropped,
    /// The hand-outs are done when they are handed out: there are no rows.
    pub auto: bool,
    /// There is one hand-out, and nothing may be beside it.
    pub alone: bool,
    /// It left one that goes alone, which this member cannot have now.
    pub left_alone: bool,
}

/// Which member takes, and how much.
#[derive(Debug)]
pub struct Demand {
    /// Who.
    pub member: Member,
    /// Deliveries at most: the smallest of what was asked, the share and the window.
    pub most: usize,
    /// Bytes of the answer at most.
    pub bytes: usize,
    /// Whether one delivery is given whatever its size.
    pub at_least_one: bool,
    /// Whether the answer, or the member's stream, has something already: what goes alone is left then.
    pub holds: bool,
    /// What may be spent on looking, see [`Judge::cost`].
    pub work: usize,
    /// Whether it goes to a stream: after a restart such deliveries are due at once.
    pub by_stream: bool,
}

/// How a verb about one delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The change is staged.
    Staged,
    /// There is no live delivery of that id.
    Unknown,
    /// The change is staged and makes it a dead letter: see [`Lane::dead`].
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// To be handed out once due and its key is free.
    Waiting,
    /// Staged to a member, not committed.
    Handing,
    /// With a member.
    Held,
    /// Staged to be a dead letter, or being made one.
    Dead(EndReason),
    /// Staged to end.
    Ending,
}

#[derive(Clone, Debug)]
struct Entry {
    row: Row,
    phase: Phase,
    /// Whether the database has it or will have it with a staged batch. Other entries are at or above `next`.
    durable: bool,
    timer: Option<u64>,
}

impl Entry {
    fn member(&self) -> Member {
        Member(self.row.member)
    }

    fn in_window(&self) -> bool {
        matches!(self.phase, Phase::Handing | Phase::Held)
    }
}

/// The machine of one group on one partition.
#[derive(Debug)]
pub struct Lane {
    key: LaneKey,
    incarnation: Incarnation,
    /// Staged `next_to_read`.
    next: u64,
    /// Committed `next_to_read`.
    committed: u64,
    /// Everything below was looked at. At or above `next`; offsets between that are not in `entries` are done.
    scan: u64,
    entries: BTreeMap<u64, Entry>,
    keys: Keys,
    /// Offsets anybody may take now.
    free: BTreeSet<u64>,
    /// Offsets that continue a member's run of a key: only that member may take them now.
    runs: BTreeMap<Member, BTreeSet<u64>>,
    timers: BTreeSet<(u64, u64)>,
    dead: BTreeSet<u64>,
    /// Offsets of events that lost two locks: see [`Lane::is_suspect`]. Hardly a lane has any.
    suspects: Option<BTreeSet<u64>>,
    gaps: Gaps,
}

/// An event that lost so many locks may be what ends its consumers.
const SUSPECT: u8 = 2;

const _: () = assert!(size_of::<Lane>() <= 256, "there is a lane for each group and partition");

impl Lane {
    /// Which lane.
    pub fn key(&self) -> LaneKey {
        self.key
    }

    /// The committed ack floor: everything below is done. Never falls.
    pub fn floor(&self) -> Offset {
        let lowest = self.entries.first_key_value().map_or(u64::MAX, |(offset, _)| *offset);
        Offset(self.committed.min(lowest))
    }

    /// The committed `next_to_read`.
    pub fn next_to_read(&self) -> Offset {
        Offset(self.committed)
    }

    /// Up to where the log was looked at.
    pub fn scanned(&self) -> Offset {
        Offset(self.scan)
    }

    /// Deliveries that were handed out and are not finished.
    pub fn pending(&self) -> usize {
        self.entries.values().filter(|entry| entry.row.attempt > 0).count()
    }

    /// The same of one member.
    pub fn pending_of(&self, member: Member) -> usize {
        self.entries.values().filter(|entry| entry.row.attempt > 0 && entry.member() == member).count()
    }

    /// Whether a delivery is staged to end: its fate is that of the commit.
    pub fn is_ending(&self, offset: Offset) -> bool {
        self.entries.get(&offset.0).is_some_and(|entry| entry.phase == Phase::Ending)
    }

    /// Whether a delivery is about to end, by its dead letter or by an ack, and has not ended yet.
    pub fn is_leaving(&self, offset: Offset) -> bool {
        let leaving = |entry: &Entry| matches!(entry.phase, Phase::Dead(_) | Phase::Ending);
        self.entries.get(&offset.0).is_some_and(leaving)
    }

    /// Whether a delivery is outstanding, in any state.
    pub fn has(&self, offset: Offset) -> bool {
        self.entries.contains_key(&offset.0)
    }

    /// Whether a hand-out stands: it was not settled, withdrawn or timed out.
    pub fn stands(&self, offset: Offset, serial: u32) -> bool {
        self.entries
            .get(&offset.0)
            .is_some_and(|entry| entry.phase == Phase::Held && entry.row.serial == serial)
    }

    /// Whether an event may be what ends its consumers: it lost two locks. It is handed out alone, so that what would
    /// have been beside it does not lose its lock too.
    fn is_suspect(&self, offset: u64) -> bool {
        self.suspects.as_ref().is_some_and(|suspects| suspects.contains(&offset))
    }

    /// Whether any event that is outstanding lost two locks.
    pub(crate) fn has_suspects(&self) -> bool {
        self.suspects.is_some()
    }

    /// Whether a member has such an event: it is given no second one until that is settled, and nothing else at all where
    /// it has it on its stream.
    pub(crate) fn is_alone_with(&self, member: Member, by_stream: bool) -> bool {
        let is_there = |entry: &Entry| {
            entry.in_window() && entry.member() == member && (!by_stream || entry.row.by_stream)
        };
        let mut suspects = self.suspects.iter().flat_map(|suspects| suspects.iter());
        suspects.any(|offset| self.entries.get(offset).is_some_and(is_there))
    }

    /// The first such event that a member may take now.
    pub(crate) fn suspect_for(&self, member: Member) -> Option<u64> {
        let run = self.runs.get(&member);
        let is_takeable =
            |offset: &u64| self.free.contains(offset) || run.is_some_and(|run| run.contains(offset));
        self.suspects.iter().flat_map(|suspects| suspects.iter()).copied().find(is_takeable)
    }

    /// The lock of an event was lost: its client did not say anything of it.
    fn lose_lock(&mut self, offset: u64) {
        let Some(entry) = self.entries.get_mut(&offset) else { return };
        entry.row.lost = entry.row.lost.saturating_add(1).min(SUSPECT + 1);
        self.suspect(offset);
    }

    /// Its client speaks of it after all, while it waits to be handed out again: the lock was late, and not lost.
    fn find_lock(&mut self, offset: u64) {
        let Some(entry) = self.entries.get_mut(&offset) else { return };
        let is_lost = matches!(entry.row.error, LastError::DeadlinePassed | LastError::StreamClosed);
        if entry.phase == Phase::Waiting && is_lost {
            entry.row.lost = entry.row.lost.saturating_sub(1);
            if entry.row.lost < SUSPECT {
                self.clear(offset);
            }
        }
    }

    fn clear(&mut self, offset: u64) {
        if let Some(suspects) = &mut self.suspects
            && suspects.remove(&offset)
            && suspects.is_empty()
        {
            self.suspects = None;
        }
    }

    fn suspect(&mut self, offset: u64) {
        if self.entries.get(&offset).is_some_and(|entry| entry.row.lost >= SUSPECT) {
            self.suspects.get_or_insert_default().insert(offset);
        }
    }

    /// Outstanding entries, of any kind.
    pub fn outstanding(&self) -> usize {
        self.entries.len()
    }

    /// How many deliveries anybody could take at once, the part of the log that was not looked at aside.
    pub fn ready(&self) -> usize {
        self.free.len()
    }

    /// How many deliveries wait to be handed out, at most: those that wait for a key of another member included.
    pub fn waiting(&self) -> usize {
        self.free.len() + self.keys.waiting()
    }

    /// The members that alone may go on with a key of theirs now.
    pub fn runners(&self) -> impl Iterator<Item = Member> + '_ {
        self.runs.keys().copied()
    }

    /// The next point in time at which [`Lane::advance`] has something to do.
    pub fn next_timer(&self) -> Option<UnixMillis> {
        self.timers.first().map(|(at, _)| UnixMillis(*at))
    }

    /// What waits for its dead letter, with the reason.
    pub fn dead(&self) -> impl Iterator<Item = (Offset, EndReason, Row)> + '_ {
        self.dead.iter().filter_map(|offset| {
            let entry = self.entries.get(offset)?;
            match entry.phase {
                Phase::Dead(reason) => Some((Offset(*offset), reason, entry.row.clone())),
                Phase::Waiting | Phase::Handing | Phase::Held | Phase::Ending => None,
            }
        })
    }

    /// The lane is dropped: what it has in flight counts in no window any more.
    pub(crate) fn leave_windows(&self, windows: &mut Windows) {
        for entry in self.entries.values().filter(|entry| entry.in_window()) {
            windows.remove(entry.member());
        }
    }

    /// The last range that was skipped since the lane was loaded.
    pub fn gap(&self) -> Option<Gap> {
        self.gaps.last()
    }

    /// The backlog from `from` up to `start` was dropped: what of it was not looked at is skipped.
    pub fn backlog_dropped(&mut self, from: Offset, start: Offset) {
        let from = self.scan.max(from.0);
        if from < start.0 {
            self.gaps.skip(from, start.0, GapReason::DroppedBacklog);
        }
    }

    /// The hand-out that told of a gap never reached its member.
    pub(crate) fn tell_again(&mut self, gap: &Gap) {
        self.gaps.tell_again(gap);
    }

    /// The key that most outstanding entries share, as its hash, with how many: what holds a full lane.
    pub fn busiest_key(&self) -> Option<(u64, usize)> {
        self.keys.busiest()
    }

    fn stage_put(&self, batch: &mut PositionBatch, offset: u64, row: Row) {
        batch.put_row(self.key, Offset(offset), row);
    }

    fn stage_next(&mut self, batch: &mut PositionBatch, next: u64) {
        debug_assert!(next >= self.next, "a cursor does not move back");
        self.next = next;
        batch.put_cursor(self.key, Cursor { next_to_read: Offset(next), incarnation: self.incarnation });
    }

    /// Puts the first waiting entry of a key where it may be taken from now.
    fn place_key(&mut self, key: u64, now: UnixMillis) {
        match self.keys.take_placed(key) {
            None => {}
            Some((old, None)) => {
                self.free.remove(&old);
            }
            Some((old, Some(member))) => {
                if let Some(run) = self.runs.get_mut(&member) {
                    run.remove(&old);
                    if run.is_empty() {
                        self.runs.remove(&member);
                    }
                }
            }
        }
        let Some((head, owner)) = self.keys.head(key) else { return };
        if self.entries.get(&head).is_none_or(|entry| entry.row.at > now) {
            return;
        }
        match owner {
            None => {
                self.free.insert(head);
            }
            Some(member) => {
                self.runs.entry(member).or_default().insert(head);
            }
        }
        self.keys.set_placed(key, head, owner);
    }

    fn set_timer(&mut self, offset: u64, at: Option<UnixMillis>) {
        let Some(entry) = self.entries.get_mut(&offset) else { return };
        if let Some(old) = entry.timer.take() {
            self.timers.remove(&(old, offset));
        }
        if let Some(at) = at {
            entry.timer = Some(at.0);
            self.timers.insert((at.0, offset));
        }
    }

    /// Makes an entry wait until `due`.
    fn wait(&mut self, offset: u64, due: UnixMillis, now: UnixMillis) {
        let Some(entry) = self.entries.get_mut(&offset) else { return };
        entry.phase = Phase::Waiting;
        entry.row.state = RowState::Waiting;
        entry.row.at = due;
        let key = entry.row.key;
        self.set_timer(offset, (due > now).then_some(due));
        match key {
            None if due <= now => {
                self.free.insert(offset);
            }
            // It may have been due before: a nack can come after the lock ran out.
            None => {
                self.free.remove(&offset);
            }
            Some(key) => {
                self.keys.waits(key, offset);
                self.place_key(key, now);
            }
        }
    }

    /// Records that an entry is with a member (or staged to be), for its key's order.
    fn occupy(&mut self, offset: u64, now: UnixMillis) {
        let Some(entry) = self.entries.get(&offset) else { return };
        match entry.row.key {
            None => {
                self.free.remove(&offset);
            }
            Some(key) => {
                self.keys.flies(key, offset, entry.member());
                self.place_key(key, now);
            }
        }
    }

    /// Records that an entry is about to end: what is behind it of its key waits for that.
    fn settle(&mut self, offset: u64, now: UnixMillis) {
        let Some(entry) = self.entries.get(&offset) else { return };
        match entry.row.key {
            None => {
                self.free.remove(&offset);
            }
            Some(key) => {
                self.keys.settles(key, offset);
                self.place_key(key, now);
            }
        }
    }

    /// Forgets an entry altogether.
    fn remove(&mut self, offset: u64, windows: &mut Windows, now: UnixMillis) {
        self.set_timer(offset, None);
        let Some(entry) = self.entries.remove(&offset) else { return };
        if entry.in_window() {
            windows.remove(entry.member());
        }
        self.dead.remove(&offset);
        self.free.remove(&offset);
        self.clear(offset);
        if let Some(key) = entry.row.key {
            self.keys.ends(key, offset);
            self.place_key(key, now);
        }
        if self.entries.is_empty() {
            self.keep_no_nodes();
        }
    }

    /// Emptied trees keep a node each, more than a kilobyte together, and most lanes are empty most of the time.
    fn keep_no_nodes(&mut self) {
        self.entries = BTreeMap::new();
        self.free = BTreeSet::new();
        self.runs = BTreeMap::new();
        self.timers = BTreeSet::new();
        self.dead = BTreeSet::new();
        self.keys.keep_no_nodes();
    }
}
