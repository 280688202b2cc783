//! The lane against a random model: failed writes, a kill at any step, members that come and go.
//!
//! The model keeps a log, a database (rows and cursor) and a queue of commits that were handed in and not
//! yet carried out. A step does one thing a server could meet. After every step the promises are checked;
//! at the end everything is drained, and every event must have ended exactly once. A failure prints its
//! seed: `LANE_SEED=<seed> cargo test -p mesh-delivery lane_model`. `LANE_SEEDS=<n>` runs more of them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt::Write as _,
};

use mesh_frame::{EventBuilder, PartitionId, Record};
use mesh_state::positions::{LastError, PositionBatch};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;

const MEMBERS: u64 = 3;
const SEEDS: u64 = 600;
const STEPS: usize = 400;

/// The database: what a crash leaves.
#[derive(Clone, Default)]
struct Database {
    cursor: u64,
    rows: BTreeMap<u64, Row>,
}

#[derive(Clone)]
enum Then {
    Handed { member: u64, taken: usize },
    Acked { offset: u64 },
    DeadLettered { offset: u64 },
    Progressed { next: u64 },
    Nothing,
}

struct Queued {
    batch: PositionBatch,
    then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Acked,
    Dead,
    Gone,
}

/// A delivery as its client knows it.
#[derive(Clone, Copy, Debug)]
struct Known {
    offset: u64,
    serial: u32,
    member: u64,
}

struct Model {
    random: StdRng,
    log: Vec<Option<Arc<LogRecord>>>,
    start: u64,
    database: Database,
    queue: VecDeque<Queued>,
    takes: Vec<Option<Taken>>,
    lane: Lane,
    windows: Windows,
    terms: Terms,
    now: UnixMillis,
    ends: BTreeMap<u64, End>,
    known: Vec<Known>,
    /// Who was told last that it has an event, and whether it still may think so.
    with: HashMap<u64, u64>,
    attempts: HashMap<u64, u32>,
    floor: u64,
    history: String,
}

impl Source for (&[Option<Arc<LogRecord>>], u64, bool) {
    fn records(&mut self, from: Offset, most: usize, out: &mut Vec<Arc<LogRecord>>) -> Cached {
        if from.0 < self.1 {
            return Cached::GoneTo(Offset(self.1));
        }
        if self.2 && from.0 < self.0.len() as u64 {
            return Cached::Cold;
        }
        let mut reached = self.0.len() as u64;
        for (at, record) in self.0.iter().enumerate().skip(usize::try_from(from.0).expect("small")) {
            if out.len() == most {
                reached = at as u64;
                break;
            }
            out.extend(record.clone());
        }
        Cached::UpTo(Offset(reached))
    }
}

fn lane_key() -> LaneKey {
    LaneKey { group: 1, generation: 0, partition: PartitionId(0) }
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let terms = Terms {
            ack: AckMode::Explicit,
            ack_timeout: Duration::from_millis(100),
            max_attempts: random.random_range(0..4),
            backoff: Backoff::new(Duration::from_millis(10), Duration::from_millis(80), 0.2),
            max_outstanding: random.random_range(2..20),
            epoch: Epoch(1),
            chance: Chance::seeded(seed),
        };
        let now = UnixMillis(1_000_000);
        let mut windows = Windows::default();
        let cursor = Cursor { next_to_read: Offset(0), incarnation: Incarnation(1) };
        let lane = Lane::load(lane_key(), cursor, Vec::new(), &terms, &mut windows, now);
        Self {
            random,
            log: Vec::new(),
            start: 0,
            database: Database::default(),
            queue: VecDeque::new(),
            takes: Vec::new(),
            lane,
            windows,
            terms,
            now,
            ends: BTreeMap::new(),
            known: Vec::new(),
            with: HashMap::new(),
            attempts: HashMap::new(),
            floor: 0,
            history: String::new(),
        }
    }

    fn note(&mut self, what: std::fmt::Arguments<'_>) {
        writeln!(self.history, "{} {what}", self.now).expect("a string");
    }

    fn key_of(&self, offset: u64) -> Option<String> {
        self.log[usize::try_from(offset).expect("small")]
            .as_ref()
            .and_then(|record| record.record().event.partition_key().map(str::to_owned))
    }

    fn append(&mut self) {
        let offset = self.log.len() as u64;
        if self.random.random_bool(0.05) {
            // An offset that a failed append used up.
            self.log.push(None);
            return;
        }
        let mut builder = EventBuilder::new(&offset.to_string(), "/model", "t");
        let key = self.random.random_range(0..5);
        let key_text = key.to_string();
        if key < 4 {
            builder = builder.attribute("partitionkey", &key_text);
        }
        if self.random.random_bool(0.1) {
            builder = builder.attribute("subject", "unwanted");
        }
        let event = builder.build().expect("a small event");
        let record = Record { event, accepted_at_ms: self.now.0 };
        self.log.push(Some(Arc::new(LogRecord::new(Offset(offset), record))));
        self.note(format_args!("append {offset} key {key}"));
    }

    fn hand_in(&mut self, batch: PositionBatch, then: Then) {
        self.queue.push_back(Queued { batch, then });
    }

    fn take(&mut self, cold: bool) {
        let member = self.random.random_range(0..MEMBERS);
        let demand = Demand {
            member: Member(member),
            most: self.random.random_range(1..5),
            bytes: self.random.random_range(1..2_000),
            at_least_one: self.random.random_bool(0.8),
            holds: self.random.random_bool(0.3),
            work: self.random.random_range(1..200),
            by_stream: self.random.random_bool(0.3),
        };
        let waiting = self.random.random_range(0..MEMBERS);
        let verdict = |record: &LogRecord| {
            if record.record().event.attribute("subject") == Some("unwanted") {
                Verdict::Filtered
            } else {
                Verdict::Deliver
            }
        };
        let is_early = |entry: &Entry| entry.phase == Phase::Waiting && entry.row.at > self.now;
        let early: Vec<u64> = self
            .lane
            .entries
            .iter()
            .filter(|(_, entry)| is_early(entry))
            .map(|(offset, _)| *offset)
            .collect();
        let suspects: BTreeSet<u64> = self
            .lane
            .entries
            .iter()
            .filter(|(_, entry)| entry.row.lost >= SUSPECT)
            .map(|(offset, _)| *offset)
            .collect();
        let taken = self.lane.take(
            &demand,
            self.now,
            &self.terms,
            &mut self.windows,
            &mut (&self.log[..], self.start, cold),
            &Judge { verdict: &verdict, cost: 3, has_demand: &|other| other == Member(waiting) },
        );
        let given: Vec<(u64, u32)> =
            taken.hand_outs.iter().map(|hand_out| (hand_out.record.offset().0, hand_out.serial)).collect();
        self.note(format_args!("take by {member}: {given:?} ends {:?} next {}", taken.ends, taken.next));
        let goes_alone = given.iter().any(|(offset, _)| suspects.contains(offset));
        assert_eq!(taken.alone, goes_alone, "{given:?} of {suspects:?}");
        assert!(!goes_alone || (given.len() == 1 && !demand.holds), "{given:?} are not alone");
        for (offset, _) in &given {
            assert!(!early.contains(offset), "event {offset} was handed out before it was due");
        }
        let batch = taken.batch.clone();
        self.takes.push(Some(taken));
        self.hand_in(batch, Then::Handed { member, taken: self.takes.len() - 1 });
    }

    /// Carries out the oldest commit, and reports it.
    fn commit(&mut self) {
        let Some(Queued { batch, then }) = self.queue.pop_front() else { return };
        self.database.apply(&batch);
        match then {
            Then::Nothing => {}
            Then::Progressed { next } => self.lane.progressed(Offset(next)),
            Then::Acked { offset } => {
                self.lane.ended(&[Offset(offset)], &mut self.windows, self.now);
                self.ended(offset, End::Acked);
            }
            Then::DeadLettered { offset } => {
                self.lane.ended(&[Offset(offset)], &mut self.windows, self.now);
                self.ended(offset, End::Dead);
            }
            Then::Handed { member, taken } => {
                let taken = self.takes[taken].take().expect("reported once");
                self.lane.handed(&taken);
                self.lane.ended(&taken.ends, &mut self.windows, self.now);
                let standing: Vec<HandOut> = taken.standing(&self.lane).cloned().collect();
                for hand_out in standing {
                    self.received(member, &hand_out);
                }
            }
        }
    }

    fn ended(&mut self, offset: u64, end: End) {
        self.note(format_args!("ended {offset} {end:?}"));
        self.with.remove(&offset);
        let before = self.ends.insert(offset, end);
        assert_eq!(before, None, "event {offset} ended twice");
    }

    /// A member is told of a delivery: the promises to it.
    fn received(&mut self, member: u64, hand_out: &HandOut) {
        let offset = hand_out.record.offset().0;
        self.note(format_args!(
            "member {member} got {offset} attempt {} serial {}",
            hand_out.attempt, hand_out.serial
        ));
        assert!(!self.ends.contains_key(&offset), "event {offset} came again after it ended");
        let least = self.attempts.get(&offset).copied().unwrap_or(0);
        assert!(hand_out.attempt >= least, "attempts of {offset} went from {least} to {}", hand_out.attempt);
        if self.terms.max_attempts > 0 {
            assert!(hand_out.attempt <= self.terms.max_attempts, "event {offset} was tried too often");
        }
        self.attempts.insert(offset, hand_out.attempt);
        if let Some(key) = self.key_of(offset) {
            for earlier in 0..offset {
                let same = self.key_of(earlier).is_some_and(|other| other == key);
                let wanted = self.log[usize::try_from(earlier).expect("small")]
                    .as_ref()
                    .is_some_and(|record| record.record().event.attribute("subject").is_none());
                // Acknowledged, though not yet durably: done as far as its member is concerned.
                let ending =
                    self.lane.entries.get(&earlier).is_some_and(|entry| entry.phase == Phase::Ending);
                if same && wanted && !ending && earlier >= self.start && !self.ends.contains_key(&earlier) {
                    assert_eq!(
                        self.with.get(&earlier),
                        Some(&member),
                        "event {offset} of key {key} overtook {earlier}"
                    );
                }
            }
        }
        self.with.insert(offset, member);
        self.known.push(Known { offset, serial: hand_out.serial, member });
    }

    fn verb(&mut self) {
        if self.known.is_empty() {
            return;
        }
        let Known { offset, serial, member } = self.known[self.random.random_range(0..self.known.len())];
        let mut batch = PositionBatch::new();
        let verb = self.random.random_range(0..10);
        let at = Offset(offset);
        let (settled, then, name) = match verb {
            0..6 => {
                let settled = self.lane.ack(at, serial, self.now, &mut self.windows, &mut batch);
                (settled, Then::Acked { offset }, "ack")
            }
            6 => {
                let delay = self.random.random_bool(0.5).then(|| Duration::from_millis(20));
                let settled = self.lane.nack(
                    at,
                    serial,
                    delay,
                    LastError::Nacked,
                    self.now,
                    &self.terms,
                    &mut self.windows,
                    &mut batch,
                );
                (settled, Then::Nothing, "nack")
            }
            7 => {
                let until = self.now.plus(Duration::from_millis(150));
                let settled = self.lane.extend(at, serial, until, self.now, &mut self.windows, &mut batch);
                if settled == Settled::Staged {
                    self.with.insert(offset, member);
                }
                (settled, Then::Nothing, "extend")
            }
            8 => {
                let settled = self.lane.reject(
                    at,
                    serial,
                    LastError::Rejected,
                    self.now,
                    &mut self.windows,
                    &mut batch,
                );
                (settled, Then::Nothing, "reject")
            }
            _ => {
                self.lane.give_back(at, serial, self.now, &mut self.windows, &mut batch);
                if let Some(attempt) = self.attempts.get_mut(&offset) {
                    *attempt = attempt.saturating_sub(1);
                }
                (Settled::Staged, Then::Nothing, "give back")
            }
        };
        self.note(format_args!("{name} {offset} serial {serial} by {member}: {settled:?}"));
        if settled != Settled::Unknown {
            self.hand_in(batch, then);
            self.forget_lost();
        }
    }

    /// What the lane no longer counts as with its member may be given to another: the model's view of who
    /// has what follows. Attempts that were withdrawn may come again with the same number.
    fn forget_lost(&mut self) {
        let with: Vec<(u64, u64)> = self.with.iter().map(|(offset, member)| (*offset, *member)).collect();
        for (offset, member) in with {
            let entry = self.lane.entries.get(&offset);
            // Its member settled it itself: what it was given behind it stays in order.
            let settled = entry
                .is_some_and(|entry| matches!(entry.phase, Phase::Ending | Phase::Dead(EndReason::Rejected)));
            if settled {
                continue;
            }
            if entry.is_none_or(|entry| !entry.in_window() || entry.member() != Member(member)) {
                self.with.remove(&offset);
                if let Some(entry) = entry
                    && let Some(attempt) = self.attempts.get_mut(&offset)
                {
                    *attempt = (*attempt).min(entry.row.attempt);
                }
            }
        }
    }

    fn dead_letter(&mut self) {
        let Some((offset, reason, row)) = self.lane.dead().next() else { return };
        if reason == EndReason::AttemptsExhausted {
            assert_eq!(row.attempt, self.terms.max_attempts, "event {offset} became a dead letter early");
        }
        let mut batch = PositionBatch::new();
        assert!(self.lane.dead_lettered(offset, self.now, &mut batch));
        self.hand_in(batch, Then::DeadLettered { offset: offset.0 });
    }

    fn advance(&mut self, by: u64) {
        self.now = self.now.plus(Duration::from_millis(by));
        let mut batch = PositionBatch::new();
        self.lane.advance(self.now, &self.terms, &mut self.windows, &mut batch);
        self.hand_in(batch, Then::Nothing);
        self.forget_lost();
    }

    fn leave(&mut self) {
        let member = self.random.random_range(0..MEMBERS);
        let mut batch = PositionBatch::new();
        self.lane.member_left(Member(member), self.now, &self.terms, &mut self.windows, &mut batch);
        self.note(format_args!("member {member} left"));
        self.hand_in(batch, Then::Nothing);
        self.forget_lost();
    }

    /// A stream of a member ends: all that was confirmed to it counts as written.
    fn close_stream(&mut self) {
        let member = self.random.random_range(0..MEMBERS);
        let mut batch = PositionBatch::new();
        self.lane.stream_closed(
            Member(member),
            self.random.random_bool(0.5),
            self.now,
            &self.terms,
            &mut self.windows,
            &mut batch,
        );
        self.note(format_args!("the stream of member {member} closed"));
        for (offset, entry) in &self.lane.entries {
            let written = entry.phase == Phase::Held && entry.row.by_stream;
            assert!(!written || entry.member() != Member(member), "{offset} is with a stream that ended");
        }
        self.hand_in(batch, Then::Nothing);
        self.forget_lost();
    }

    fn progress(&mut self) {
        if let Some((batch, next)) = self.lane.progress() {
            self.hand_in(batch, Then::Progressed { next: next.0 });
        }
    }

    fn trim(&mut self) {
        self.start = self.start.max(self.random.random_range(0..=self.log.len() as u64) / 3);
        let start = self.start;
        self.note(format_args!("the log now starts at {start}"));
    }

    /// A write failed, or the process was killed: everything queued is lost, the lane is loaded again.
    fn restart(&mut self, killed: bool) {
        let kept = if killed { self.random.random_range(0..=self.queue.len()) } else { 0 };
        let queued = self.queue.len();
        self.note(format_args!("restart (killed: {killed}), {kept} of {queued} commits made it"));
        let queue = std::mem::take(&mut self.queue);
        for (place, queued) in queue.into_iter().enumerate() {
            if place < kept {
                // In the log, but nobody was told.
                self.database.apply(&queued.batch);
                match queued.then {
                    Then::Acked { offset } => self.ended(offset, End::Acked),
                    Then::DeadLettered { offset } => self.ended(offset, End::Dead),
                    Then::Handed { .. } | Then::Progressed { .. } | Then::Nothing => {}
                }
            }
        }
        self.windows = Windows::default();
        let cursor = Cursor { next_to_read: Offset(self.database.cursor), incarnation: Incarnation(1) };
        let rows = self.database.rows.iter().map(|(offset, row)| (Offset(*offset), row.clone())).collect();
        self.lane = Lane::load(lane_key(), cursor, rows, &self.terms, &mut self.windows, self.now);
        self.forget_lost();
        // What was handed out before is with its member again, whatever was staged since.
        for Known { offset, serial, member } in &self.known {
            let entry = self.lane.entries.get(offset);
            if entry.is_some_and(|entry| entry.in_window() && entry.row.serial == *serial) {
                self.with.insert(*offset, *member);
            }
        }
    }

    fn step(&mut self) {
        match self.random.random_range(0..100) {
            0..20 => self.append(),
            20..40 => self.take(false),
            40..43 => self.take(true),
            43..68 => self.commit(),
            68..82 => self.verb(),
            82..88 => {
                let by = self.random.random_range(1..150);
                self.advance(by);
            }
            88..92 => self.dead_letter(),
            92..94 => self.progress(),
            94 => self.leave(),
            95 => self.close_stream(),
            96 => self.trim(),
            97..99 => self.restart(true),
            _ => self.restart(false),
        }
        self.check();
    }

    fn check(&mut self) {
        let floor = self.lane.floor().0;
        assert!(floor >= self.floor, "the floor fell from {} to {floor}", self.floor);
        self.floor = floor;
        assert!(self.lane.outstanding() <= self.terms.max_outstanding.max(self.database.rows.len()) + 1);
        let mut in_flight: HashMap<Member, u32> = HashMap::new();
        for entry in self.lane.entries.values().filter(|entry| entry.in_window()) {
            *in_flight.entry(entry.member()).or_default() += 1;
        }
        for member in (0..MEMBERS).map(Member) {
            let counted = in_flight.get(&member).copied().unwrap_or(0);
            assert_eq!(self.windows.of(member), counted, "the window of {member:?}");
        }
        for (offset, end) in &self.ends {
            assert!(*end == End::Gone || *offset < self.lane.next, "{offset} ended above the cursor");
        }
    }

    /// Everything that can end, ends.
    fn drain(&mut self) {
        for _ in 0..2_000 {
            self.advance(200);
            while !self.queue.is_empty() {
                self.commit();
            }
            self.take(false);
            while !self.queue.is_empty() {
                self.commit();
            }
            self.dead_letter();
            for Known { offset, serial, .. } in std::mem::take(&mut self.known) {
                let mut batch = PositionBatch::new();
                if self.lane.ack(Offset(offset), serial, self.now, &mut self.windows, &mut batch)
                    == Settled::Staged
                {
                    self.hand_in(batch, Then::Acked { offset });
                }
            }
            if self.queue.is_empty()
                && self.lane.outstanding() == 0
                && self.lane.scan == self.log.len() as u64
            {
                break;
            }
        }
        self.progress();
        while !self.queue.is_empty() {
            self.commit();
        }
        assert_eq!(self.lane.outstanding(), 0, "something is left: {:?}", self.lane.entries);
        assert_eq!(self.database.rows.len(), 0, "rows are left in the database");
        assert_eq!(self.lane.floor(), Offset(self.log.len() as u64), "the floor is not at the end");
        let ended: BTreeSet<u64> = self.ends.keys().copied().collect();
        for (offset, record) in self.log.iter().enumerate() {
            let offset = offset as u64;
            let wanted =
                record.as_ref().is_some_and(|record| record.record().event.attribute("subject").is_none());
            if wanted && offset >= self.start {
                assert!(ended.contains(&offset), "event {offset} was lost");
            }
        }
    }
}

impl Database {
    fn apply(&mut self, batch: &PositionBatch) {
        for (offset, row) in batch.rows() {
            match row {
                Some(row) => self.rows.insert(offset.0, row),
                None => self.rows.remove(&offset.0),
            };
        }
        if let Some(cursor) = batch.cursor() {
            assert!(cursor.next_to_read.0 >= self.cursor, "the durable cursor moved back");
            self.cursor = cursor.next_to_read.0;
        }
    }
}

fn run(seed: u64) {
    let mut model = Model::new(seed);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..STEPS {
            model.step();
        }
        model.drain();
    }));
    if let Err(panic) = outcome {
        let tail: Vec<&str> = model.history.lines().rev().take(60).collect();
        eprintln!("LANE_SEED={seed} fails; the last steps, newest first:\n{}", tail.join("\n"));
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn lane_model_keeps_every_promise_under_failed_writes_and_kills() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    if let Some(seed) = number("LANE_SEED") {
        return run(seed);
    }
    for seed in 0..number("LANE_SEEDS").unwrap_or(SEEDS) {
        run(seed);
    }
}
