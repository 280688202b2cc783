//! What a test did and saw, in the order in which it did and saw it.
//!
//! A request is recorded before it is sent and again when it is answered, so that the record never claims more
//! than the test can know: what was answered before something else was asked happened before it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A place in a history. Smaller is earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub usize);

/// How an acknowledgement was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckAnswer {
    /// Done.
    Acked,
    /// The id is not known, or no longer.
    Unknown,
    /// It could not be recorded; the delivery stays.
    Refused,
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
    },
    /// A publish is about to be sent.
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
        /// The event's id.
        event: String,
        /// Partition and offset, if they were answered.
        position: Option<(u32, u64)>,
    },
    /// A delivery was received.
    Delivered {
        /// When the poll was sent.
        asked: Moment,
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
    /// The dead letters of a topic, all of them.
    Browsed {
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

    /// Holds the whole record against every rule.
    ///
    /// # Panics
    /// When a rule is broken: with the rule, the events it concerns and everything recorded about them.
    pub fn must_hold(&self, about: &str) {
        let facts = self.facts();
        let violations = crate::check(&facts);
        if !violations.is_empty() {
            let shown: Vec<String> =
                violations.iter().take(8).map(|violation| violation.explain(&facts)).collect();
            panic!("{about}: {} violations in {} facts\n{}", violations.len(), facts.len(), shown.join("\n"));
        }
    }
}
