//! Handing out: first what waits, then what the log has next.

use std::sync::Arc;

use mesh_base::UnixMillis;
use mesh_frame::Offset;
use mesh_state::positions::{LastError, PositionBatch, Row, RowState};
use mesh_storage::{Cached, LogRecord};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    AckMode, Demand, Entry, GapReason, HandOut, Lane, Member, Phase, Source, Taken, Terms, Verdict, Windows,
};

/// What one look at a group may cost, so that its lock is held shortly: an event costs one, and one more for each
/// comparison that its filters can make.
pub(crate) const LOOK: usize = 2_048;
/// What a delivery takes in an answer beside its event, about.
const ENVELOPE_BYTES: usize = 512;
/// And at no more waiting deliveries that another member should have.
const SKIP: usize = 512;

/// What a take asks of its group.
pub struct Judge<'a> {
    /// Whether a record is wanted.
    pub verdict: &'a dyn Fn(&LogRecord) -> Verdict,
    /// What it costs to judge a record.
    pub cost: usize,
    /// Whether another member waits for something right now and may have it, so that its keys are left to it.
    pub has_demand: &'a dyn Fn(Member) -> bool,
}

/// The hash by which a lane knows a key.
pub fn key_hash(key: &str) -> u64 {
    xxh3_64(key.as_bytes())
}

/// About what a delivery takes in an answer or a mailbox.
pub(crate) fn delivery_bytes(record: &LogRecord) -> usize {
    record.json().len() + ENVELOPE_BYTES
}

impl Lane {
    /// Takes deliveries for a member. See [`Taken`] for what the caller owes.
    pub fn take(
        &mut self,
        demand: &Demand,
        now: UnixMillis,
        terms: &Terms,
        windows: &mut Windows,
        source: &mut dyn Source,
        judge: &Judge<'_>,
    ) -> Taken {
        let work = demand.work;
        let mut take =
            Take { taken: Taken::default(), bytes: 0, closed: false, work, demand, now, terms, judge };
        take.retries(self, windows, source);
        if take.taken.cold.is_none() && !take.taken.more {
            take.fresh(self, windows, source);
        }
        if let Some(first) = take.taken.hand_outs.first_mut() {
            first.gap = self.gaps.tell();
        }
        take.taken.work = take.work;
        take.taken.next = Offset(self.next);
        take.taken.auto = terms.ack == AckMode::Auto;
        take.taken
    }

    /// Confirms hand-outs whose batch was committed. Those that were withdrawn or ended meanwhile do not stand:
    /// [`Taken::standing`] gives the others.
    pub fn handed(&mut self, taken: &Taken) {
        self.committed = self.committed.max(taken.next.0);
        for hand_out in taken.hand_outs.iter().filter(|_| !taken.auto) {
            let offset = hand_out.record.offset().0;
            let Some(entry) = self.entries.get_mut(&offset) else { continue };
            if entry.phase == Phase::Handing && entry.row.serial == hand_out.serial {
                entry.phase = Phase::Held;
                self.set_timer(offset, Some(hand_out.locked_until));
            }
        }
    }

    /// Stages the progress that no hand-out carries: what filters dropped. At most once a second.
    pub fn progress(&mut self) -> Option<(PositionBatch, Offset)> {
        let volatile =
            self.entries.range(self.next..).find(|(_, entry)| !entry.durable).map(|(offset, _)| *offset);
        let target = volatile.unwrap_or(self.scan);
        // What nobody was told of is found again after a restart.
        let target = self.gaps.untold().map_or(target, |untold| target.min(untold.0));
        (target > self.next).then(|| {
            let mut batch = PositionBatch::new();
            self.stage_next(&mut batch, target);
            (batch, Offset(target))
        })
    }

    /// Confirms staged progress.
    pub fn progressed(&mut self, next: Offset) {
        self.committed = self.committed.max(next.0);
    }
}

impl Taken {
    /// The hand-outs that stand now, in their lane, once the lane has them confirmed.
    pub fn standing<'a>(&'a self, lane: &'a Lane) -> impl Iterator<Item = &'a HandOut> {
        let stands =
            move |hand_out: &&HandOut| self.auto || lane.stands(hand_out.record.offset(), hand_out.serial);
        self.hand_outs.iter().filter(stands)
    }
}

struct Take<'a> {
    taken: Taken,
    bytes: usize,
    /// The next event would pass the bound of bytes.
    closed: bool,
    /// What may still be spent.
    work: usize,
    demand: &'a Demand,
    now: UnixMillis,
    terms: &'a Terms,
    judge: &'a Judge<'a>,
}

impl Take<'_> {
    fn is_full(&self) -> bool {
        self.closed || self.taken.hand_outs.len() >= self.demand.most
    }

    /// Judges a record, which costs. `None`: nothing is left to spend, and another look goes on here.
    fn judge(&mut self, record: &LogRecord) -> Option<Verdict> {
        if self.work == 0 {
            self.taken.more = true;
            return None;
        }
        self.work = self.work.saturating_sub(self.judge.cost);
        Some((self.judge.verdict)(record))
    }

    /// Whether a record still fits into the answer; the first does in any size where that was asked.
    fn fits(&mut self, record: &LogRecord) -> bool {
        let bytes = delivery_bytes(record);
        let is_given = self.demand.at_least_one && self.taken.hand_outs.is_empty();
        self.closed = !is_given && self.bytes + bytes > self.demand.bytes;
        if !self.closed {
            self.bytes += bytes;
        }
        !self.closed
    }

    fn left_to_another(&mut self, lane: &Lane, key: Option<u64>) -> bool {
        let last = key.and_then(|key| lane.keys.last_member(key));
        let Some(last) = last.filter(|last| *last != self.demand.member && (self.judge.has_demand)(*last))
        else {
            return false;
        };
        if !self.taken.left_to.contains(&last) {
            self.taken.left_to.push(last);
        }
        true
    }

    /// What waits and may go to this member, lowest offset first; before it what goes alone, while nothing is there yet.
    fn retries(&mut self, lane: &mut Lane, windows: &mut Windows, source: &mut dyn Source) {
        let mut skipped = 0;
        if self.has_nothing()
            && let Some(suspect) = lane.suspect_for(self.demand.member)
            && !self.offer(lane, windows, source, suspect, &mut skipped)
        {
            return;
        }
        let mut from = 0;
        while !self.is_full() {
            let run = lane.runs.get(&self.demand.member).and_then(|run| run.range(from..).next().copied());
            let free = lane.free.range(from..).next().copied();
            let Some(offset) = run.into_iter().chain(free).min() else { return };
            from = offset + 1;
            if !self.offer(lane, windows, source, offset, &mut skipped) {
                return;
            }
            // A run that goes on is behind the offset just given.
        }
    }

    fn has_nothing(&self) -> bool {
        !self.demand.holds && self.taken.hand_outs.is_empty()
    }

    /// Hands out one that waits, ends it, or leaves it. `false`: this look is over.
    fn offer(
        &mut self,
        lane: &mut Lane,
        windows: &mut Windows,
        source: &mut dyn Source,
        offset: u64,
        skipped: &mut usize,
    ) -> bool {
        let key = lane.entries[&offset].row.key;
        let its_run = lane.runs.get(&self.demand.member).is_some_and(|run| run.contains(&offset));
        let is_suspect = lane.is_suspect(offset);
        let cannot = is_suspect && !self.has_nothing();
        self.taken.left_alone |= cannot;
        if cannot || (!its_run && self.left_to_another(lane, key)) {
            *skipped += 1;
            return *skipped < SKIP;
        }
        let mut found = Vec::with_capacity(1);
        let cached = source.records(Offset(offset), 1, &mut found);
        let record = found.pop().filter(|record| record.offset().0 == offset);
        match (record, cached) {
            (None, Cached::Cold) => {
                self.taken.cold = Some(Offset(offset));
                return false;
            }
            (None, Cached::UpTo(_) | Cached::GoneTo(_)) => {
                self.taken.dropped.gone += 1;
                lane.gaps.skip(offset, offset + 1, GapReason::Gone);
                self.end(lane, offset);
            }
            (Some(record), _) => match self.judge(&record) {
                None => return false,
                Some(Verdict::Deliver) => {
                    if !self.fits(&record) {
                        return false;
                    }
                    self.hand_out(lane, windows, &record);
                    self.taken.alone = is_suspect;
                    self.closed = is_suspect;
                }
                Some(Verdict::Filtered) => {
                    self.taken.dropped.filtered += 1;
                    self.end(lane, offset);
                }
                Some(Verdict::Expired) => {
                    self.taken.dropped.expired += 1;
                    self.end(lane, offset);
                }
            },
        }
        true
    }

    /// What the log has at and after `scan`.
    fn fresh(&mut self, lane: &mut Lane, windows: &mut Windows, source: &mut dyn Source) {
        let mut records = Vec::new();
        while !self.is_full() {
            let room = self.terms.max_outstanding.saturating_sub(lane.entries.len());
            if room == 0 && self.terms.ack == AckMode::Explicit {
                return;
            }
            if self.work == 0 {
                self.taken.more = true;
                return;
            }
            records.clear();
            let wanted = (self.demand.most - self.taken.hand_outs.len()).clamp(1, 256);
            let reached = match source.records(Offset(lane.scan), wanted, &mut records) {
                Cached::Cold => {
                    self.taken.cold = Some(Offset(lane.scan));
                    return;
                }
                Cached::GoneTo(start) => {
                    self.taken.dropped.gone += start.0.saturating_sub(lane.scan);
                    if start.0 > lane.scan {
                        lane.gaps.skip(lane.scan, start.0, GapReason::Gone);
                    }
                    lane.scan = lane.scan.max(start.0);
                    continue;
                }
                Cached::UpTo(end) => end,
            };
            if records.is_empty() {
                lane.scan = lane.scan.max(reached.0);
                return;
            }
            for record in &records {
                if self.is_full() || lane.entries.len() >= self.terms.max_outstanding || self.work == 0 {
                    break;
                }
                self.look_at(lane, windows, record);
            }
        }
    }

    fn look_at(&mut self, lane: &mut Lane, windows: &mut Windows, record: &Arc<LogRecord>) {
        let offset = record.offset().0;
        let Some(verdict) = self.judge(record) else { return };
        if verdict == Verdict::Deliver && !self.fits(record) {
            return;
        }
        lane.scan = offset + 1;
        match verdict {
            Verdict::Filtered => self.taken.dropped.filtered += 1,
            Verdict::Expired => self.taken.dropped.expired += 1,
            Verdict::Deliver if self.terms.ack == AckMode::Auto => {
                self.taken.hand_outs.push(HandOut {
                    record: record.clone(),
                    attempt: 1,
                    serial: 1,
                    locked_until: self.now,
                    gap: None,
                });
                lane.stage_next(&mut self.taken.batch, offset + 1);
            }
            Verdict::Deliver => {
                let key = record.record().event.partition_key().map(key_hash);
                let waits = key.is_some_and(|key| !lane.keys.admits_new(key, self.demand.member))
                    || (key.is_none_or(|key| !lane.keys.is_outstanding(key))
                        && self.left_to_another(lane, key));
                let row = Row {
                    state: RowState::Waiting,
                    by_stream: false,
                    attempt: 0,
                    serial: 0,
                    void_below: 0,
                    returned: false,
                    lost: 0,
                    first: UnixMillis(0),
                    last: UnixMillis(0),
                    at: UnixMillis(0),
                    key,
                    member: 0,
                    epoch: self.terms.epoch,
                    error: LastError::Unknown,
                };
                lane.entries
                    .insert(offset, Entry { row, phase: Phase::Waiting, durable: false, timer: None });
                if waits {
                    lane.wait(offset, UnixMillis(0), self.now);
                } else {
                    self.hand_out(lane, windows, record);
                }
            }
        }
    }

    /// Stages one hand-out: the row, rows for everything passed over below it, and `next`.
    fn hand_out(&mut self, lane: &mut Lane, windows: &mut Windows, record: &Arc<LogRecord>) {
        let offset = record.offset().0;
        let locked_until = self.now.plus(self.terms.ack_timeout);
        let entry = lane.entries.get_mut(&offset).expect("the caller has its entry");
        let was_durable = entry.durable;
        let row = &mut entry.row;
        row.state = RowState::InFlight;
        row.by_stream = self.demand.by_stream;
        row.returned = false;
        row.attempt = row.attempt.saturating_add(1);
        row.serial = row.serial.saturating_add(1);
        if row.first == UnixMillis(0) {
            row.first = self.now;
        }
        row.last = self.now;
        row.at = locked_until;
        row.member = self.demand.member.0;
        row.epoch = self.terms.epoch;
        let row = row.clone();
        entry.phase = Phase::Handing;
        entry.durable = true;
        lane.set_timer(offset, None);
        if !was_durable {
            let passed_over: Vec<u64> = lane
                .entries
                .range(lane.next..offset)
                .filter(|(_, entry)| !entry.durable && entry.phase == Phase::Waiting)
                .map(|(at, _)| *at)
                .collect();
            for at in passed_over {
                let entry = lane.entries.get_mut(&at).expect("found above");
                entry.durable = true;
                let row = entry.row.clone();
                lane.stage_put(&mut self.taken.batch, at, row);
            }
            let next = lane.next.max(offset + 1);
            lane.stage_next(&mut self.taken.batch, next);
        }
        let (attempt, serial) = (row.attempt, row.serial);
        lane.stage_put(&mut self.taken.batch, offset, row);
        lane.occupy(offset, self.now);
        windows.add(self.demand.member);
        self.taken.hand_outs.push(HandOut {
            record: record.clone(),
            attempt,
            serial,
            locked_until,
            gap: None,
        });
    }

    /// Stages the end of an entry that nobody gets. An entry the database does not know just goes.
    fn end(&mut self, lane: &mut Lane, offset: u64) {
        if lane.entries.get(&offset).is_some_and(|entry| entry.durable) {
            self.taken.batch.delete_row(lane.key, Offset(offset));
        }
        lane.begin_end(offset, self.now);
        self.taken.ends.push(Offset(offset));
    }
}
