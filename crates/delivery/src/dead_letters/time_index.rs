//! When the dead letters of a topic died, counted by the minute: what tells retention that nothing is due without
//! reading a row.
//!
//! The first look at a topic after a start reads its rows once; from then on every letter that is written here is
//! added. What others write, and what is replayed or discarded, makes it wrong by some: it is built anew whenever it
//! says that something is due, and once a day. A topic takes at most a count for each minute that rows are kept.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use mesh_frame::TopicName;
use parking_lot::Mutex;

/// How long it is trusted.
const TRUSTED_FOR: Duration = Duration::from_secs(24 * 3_600);
const MINUTE_MS: u64 = 60_000;

/// The index.
#[derive(Debug, Default)]
pub(super) struct TimeIndex(Mutex<HashMap<TopicName, Times>>);

#[derive(Debug, Default)]
struct Times {
    by_minute: BTreeMap<u64, usize>,
    rows: usize,
    /// When the rows were read, by the process's clock; `None`: they are being read.
    built: Option<Duration>,
}

impl Times {
    fn add(&mut self, at_ms: u64) {
        *self.by_minute.entry(at_ms / MINUTE_MS).or_default() += 1;
        self.rows += 1;
    }
}

impl TimeIndex {
    /// A letter was written.
    pub(super) fn added(&self, topic: &TopicName, at_ms: u64) {
        if let Some(times) = self.0.lock().get_mut(topic) {
            times.add(at_ms);
        }
    }

    /// Whether rows may be older than `before_ms`, or more than `most`; also when that is not known.
    pub(super) fn is_due(&self, topic: &TopicName, before_ms: u64, most: usize, now: Duration) -> bool {
        let index = self.0.lock();
        let Some(times) = index.get(topic) else { return true };
        let is_trusted = times.built.is_some_and(|built| now.saturating_sub(built) < TRUSTED_FOR);
        let oldest = times.by_minute.first_key_value().map(|(minute, _)| minute * MINUTE_MS);
        !is_trusted || times.rows > most || oldest.is_some_and(|oldest| oldest < before_ms)
    }

    /// The rows of a topic are being read: what is written meanwhile is added, twice at worst.
    pub(super) fn begin(&self, topic: &TopicName) {
        self.0.lock().insert(topic.clone(), Times::default());
    }

    /// They were read; these are left.
    pub(super) fn built(&self, topic: &TopicName, left_ms: &[u64], now: Duration) {
        let mut index = self.0.lock();
        let times = index.entry(topic.clone()).or_default();
        for at in left_ms {
            times.add(*at);
        }
        times.built = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_due_when_something_is_old_or_too_much_or_not_known() {
        let index = TimeIndex::default();
        let topic = TopicName::new("t").expect("legal");
        let (now, day) = (Duration::from_secs(1), TRUSTED_FOR);
        let is_due = |before_ms, most, now| index.is_due(&topic, before_ms, most, now);
        assert!(is_due(0, 10, now), "nothing is known");
        index.added(&topic, 5);
        index.begin(&topic);
        assert!(is_due(0, 10, now), "it is being read");
        index.added(&topic, 9 * MINUTE_MS);
        index.built(&topic, &[3 * MINUTE_MS, 4 * MINUTE_MS], now);
        assert!(!is_due(3 * MINUTE_MS, 3, now));
        assert!(is_due(3 * MINUTE_MS + 1, 3, now), "one is too old");
        assert!(is_due(0, 2, now), "there are too many");
        assert!(is_due(0, 3, now + day), "others may have written");
        index.added(&topic, 9 * MINUTE_MS);
        assert!(is_due(0, 3, now));
    }
}
