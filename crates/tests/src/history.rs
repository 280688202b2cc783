//! What a test did and saw, in the order in which it did and saw it.
//!
//! A request is recorded before it is sent and again when it is answered, so that the record never claims more
//! than the test can know: what was answered before something else was asked happened before it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A place in a history. Smaller is earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub usize);

/// How an acknowledgement, a nack or a reject was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckAnswer {
    /// Done.
    Acked,
    /// The id is not known, or no longer.
    Unknown,
    /// It could not be recorded; the delivery stays.
    Refused,
}

/// A verb about a delivery that does not finish it well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Given back for another attempt.
    Nack {
        /// Not before so many milliseconds; without it the group's backoff holds.
        delay_ms: Option<u64>,
    },
    /// Made a dead letter.
    Reject,
}

/// Where a seek goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// The beginning of every partition.
    Earliest,
    /// The end of every partition, whatever that is at the moment.
    Latest,
    /// These offsets; partitions that are not named stay where they are.
    Offsets(BTreeMap<u32, u64>),
}

/// A row of the dead letters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeadRow {
    /// The group that failed.
    pub group: String,
    /// The event's id.
    pub event: String,
    /// Where the event was.
    pub partition: u32,
    /// Where in the partition.
    pub offset: u64,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Fact {
    /// A subscription that was answered 200: events sent from now on are due to the group.
    Subscribed {
        /// The topic.
        topic: String,
        /// The group.
        group: String,
        /// Whether the group acknowledges by itself: at most once.
        auto: bool,
    },
    /// A publish is about to be sent; for an event that was sent before, once more.
    PublishSent {
        /// The event's id.
        event: String,
        /// The topic.
        topic: String,
        /// Its key.
        key: Option<String>,
        /// Its data, as JSON text.
        data: String,
    },
    /// A publish was answered 202.
    Published {
        /// When it was sent.
        sent: Moment,
        /// The event's id.
        event: String,
        /// Partition and offset, if they were answered.
        position: Option<(u32, u64)>,
        /// Whether it was answered as one that had been stored before; `None`: the answer does not say.
        duplicate: Option<bool>,
    },
    /// A delivery was received.
    Delivered {
        /// When the poll was sent, or the stream opened.
        asked: Moment,
        /// Over which stream, if it was one: on it, deliveries of a group come in the order of their hand-out.
        stream: Option<u64>,
        /// When it was received, in milliseconds of the clock on the wall.
        at_ms: u64,
        /// Who polled.
        client: String,
        /// The delivery's id.
        delivery: String,
        /// The topic.
        topic: String,
        /// The group.
        group: String,
        /// The event's id.
        event: String,
        /// The event's data, as JSON text.
        data: String,
        /// Where the event is.
        partition: u32,
        /// Where in the partition.
        offset: u64,
        /// Which attempt.
        attempt: u32,
        /// Of a replayed copy: the group it is for, as the event says it.
        copy_for: Option<String>,
        /// Of a replayed copy: where the event is that died, as the copy says it.
        copy_of: Option<String>,
    },
    /// An acknowledgement is about to be sent.
    AckSent {
        /// The delivery's id.
        delivery: String,
    },
    /// An acknowledgement was answered.
    AckAnswered {
        /// When it was sent.
        sent: Moment,
        /// The delivery's id.
        delivery: String,
        /// How.
        answer: AckAnswer,
    },
    /// A nack or a reject is about to be sent.
    VerbSent {
        /// Which.
        verb: Verb,
        /// The delivery's id.
        delivery: String,
        /// When, in milliseconds of the clock on the wall.
        at_ms: u64,
    },
    /// A nack or a reject was answered.
    VerbAnswered {
        /// When it was sent.
        sent: Moment,
        /// How.
        answer: AckAnswer,
    },
    /// A seek is about to be sent.
    SeekSent {
        /// The topic.
        topic: String,
        /// The group.
        group: String,
        /// Where to.
        to: SeekTo,
    },
    /// A seek was answered 200.
    SeekAnswered {
        /// When it was sent.
        sent: Moment,
        /// The new generation.
        generation: u64,
        /// Where every partition goes on.
        to: BTreeMap<u32, u64>,
    },
    /// Which generation a group has.
    Generation {
        /// When it was asked.
        asked: Moment,
        /// The topic.
        topic: String,
        /// The group.
        group: String,
        /// The generation.
        generation: u64,
    },
    /// A replay of all dead letters of a topic is about to be sent.
    ReplaySent {
        /// The topic.
        topic: String,
    },
    /// A replay was answered.
    ReplayAnswered {
        /// When it was sent.
        sent: Moment,
        /// How many went; `None`: it ended before it was through.
        replayed: Option<u64>,
    },
    /// The deletion of a topic with its groups is about to be sent.
    DeleteSent {
        /// The topic.
        topic: String,
        /// Whether its dead letters go too.
        letters: bool,
    },
    /// A deletion was answered.
    DeleteAnswered {
        /// When it was sent.
        sent: Moment,
        /// Whether the topic was there and is gone; else there was none.
        done: bool,
    },
    /// A topic as it is.
    Described {
        /// When it was asked.
        asked: Moment,
        /// The topic.
        topic: String,
        /// Which log of that name; `None`: there is none.
        incarnation: Option<String>,
        /// The lowest offset that may still be there, by partition.
        starts: BTreeMap<u32, u64>,
    },
    /// How many events the backlog limits have dropped since the process started.
    Dropped {
        /// When it was asked.
        asked: Moment,
        /// How many.
        count: u64,
    },
    /// From now on a topic is kept to so many bytes, in equal parts by partition.
    Limited {
        /// How many.
        bytes: u64,
    },
    /// A client closed a stream: what was written to it may be lost on the way.
    StreamClosed,
    /// The process was killed: no request sent before is under way any more.
    Killed,
    /// The dead letters of a topic, all of them.
    Browsed {
        /// When they were asked for.
        asked: Moment,
        /// The topic.
        topic: String,
        /// Its rows.
        rows: Vec<DeadRow>,
    },
    /// How far a group is in one partition.
    Cursor {
        /// When it was asked.
        asked: Moment,
        /// The topic.
        topic: String,
        /// Group and partition.
        place: String,
        /// The lowest unfinished offset.
        floor: u64,
    },
    /// Something that helps to read the record, as that the server was killed.
    Note(String),
}

/// The record; clones write to the same.
#[derive(Clone, Debug, Default)]
pub struct History(Arc<Mutex<Vec<Fact>>>);

impl History {
    /// An empty record.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fact.
    pub fn record(&self, fact: Fact) -> Moment {
        let mut facts = self.lock();
        facts.push(fact);
        Moment(facts.len() - 1)
    }

    /// The moment that the next fact will have.
    pub fn now(&self) -> Moment {
        Moment(self.lock().len())
    }

    /// A copy of everything so far.
    pub fn facts(&self) -> Vec<Fact> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Fact>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
