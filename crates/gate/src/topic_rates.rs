//! `TopicRates`: how fast a topic may be published to, by all callers together.
//!
//! A token bucket a topic. As with tenants, a batch larger than the bucket is let through when the bucket is full
//! and leaves a debt. When the rates are replaced, a topic whose rate is the same keeps what it has left.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use arc_swap::ArcSwap;
use mesh_base::Clock;
use mesh_frame::TopicName;
use parking_lot::Mutex;
use thiserror::Error;

use crate::quota::{Bucket, Exceeded, Ticks};

/// How fast one topic may be published to: a token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopicRate {
    capacity: u64,
    rate: f64,
}

/// What is wrong with a rate.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum UnusableRate {
    /// The capacity is out of range.
    #[error("the capacity is {0}; it has to be 1…{max}", max = TopicRate::LARGEST_CAPACITY)]
    Capacity(u64),
    /// The rate is out of range, or no number.
    #[error("the rate is {0}; it has to be {slow}…{fast} a second", slow = TopicRate::SLOWEST, fast = TopicRate::FASTEST)]
    Rate(f64),
}

impl TopicRate {
    /// The largest capacity.
    pub const LARGEST_CAPACITY: u64 = 1_000_000_000;
    /// The slowest rate, in events a second.
    pub const SLOWEST: f64 = 0.001;
    /// The fastest rate, in events a second.
    pub const FASTEST: f64 = 1_000_000_000.0;

    /// So many events at once, and so many a second coming back.
    ///
    /// # Errors
    /// When one of them is out of its range.
    pub fn new(capacity: u64, rate: f64) -> Result<Self, UnusableRate> {
        if !(1..=Self::LARGEST_CAPACITY).contains(&capacity) {
            return Err(UnusableRate::Capacity(capacity));
        }
        // Also refuses what is not a number.
        if !(Self::SLOWEST..=Self::FASTEST).contains(&rate) {
            return Err(UnusableRate::Rate(rate));
        }
        Ok(Self { capacity, rate })
    }

    /// How many events may come at once.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How many events a second come back.
    pub fn rate(&self) -> f64 {
        self.rate
    }
}

/// The rates of topics; changed while it runs.
#[derive(Debug)]
pub struct TopicRates {
    clock: Clock,
    limited: ArcSwap<HashMap<TopicName, Arc<Limited>>>,
}

/// A topic that has a rate.
#[derive(Debug)]
struct Limited {
    rate: TopicRate,
    one: Ticks,
    bucket: Mutex<Bucket>,
}

/// What a topic's rate gave.
#[derive(Debug)]
#[must_use]
pub struct TakenOfRate {
    topic: Arc<Limited>,
    cost: Ticks,
}

impl TakenOfRate {
    /// The events are not published after all.
    pub fn give_back(self) {
        self.topic.bucket.lock().give_back(self.cost);
    }
}

impl TopicRates {
    /// No topic has a rate.
    pub fn new(clock: Clock) -> Self {
        Self { clock, limited: ArcSwap::default() }
    }

    /// The rates that hold from now on; topics that have the same as before go on with what they have left.
    pub fn replace(&self, rates: BTreeMap<TopicName, TopicRate>) {
        self.limited.rcu(|before| {
            let limited = |(topic, rate): (&TopicName, &TopicRate)| {
                let same = before.get(topic).filter(|limited| limited.rate == *rate);
                (topic.clone(), same.cloned().unwrap_or_else(|| Arc::new(Limited::new(*rate))))
            };
            rates.iter().map(limited).collect::<HashMap<_, _>>()
        });
    }

    /// Takes events of a topic's rate; `None`: it has none.
    ///
    /// # Errors
    /// The rate is reached; nothing was taken.
    pub fn take(&self, topic: &TopicName, events: u64) -> Result<Option<TakenOfRate>, Exceeded> {
        let all = self.limited.load();
        let Some(topic) = all.get(topic) else { return Ok(None) };
        let cost = topic.one.times(events);
        let mut bucket = topic.bucket.lock();
        let now = self.clock.elapsed().into();
        bucket
            .check(now, cost, topic.one.times(topic.rate.capacity))
            .map_err(|retry_after| Exceeded { what: "eventsPerSecond", retry_after })?;
        bucket.take(now, cost);
        Ok(Some(TakenOfRate { topic: topic.clone(), cost }))
    }
}

impl Limited {
    fn new(rate: TopicRate) -> Self {
        Self { rate, one: Ticks::of_one(rate.rate), bucket: Mutex::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mesh_base::UnixMillis;
    use tokio::time::advance;

    use super::*;

    fn topic(name: &str) -> TopicName {
        TopicName::client(name).expect("legal")
    }

    fn rate(capacity: u64, rate: f64) -> TopicRate {
        TopicRate::new(capacity, rate).expect("sensible")
    }

    #[test]
    fn nonsense_is_refused_naming_value_and_range() {
        // covers: U119
        let cases = [
            (0, 1.0, "the capacity is 0; it has to be 1…1000000000"),
            (u64::MAX, 1.0, "the capacity is 18446744073709551615; it has to be 1…1000000000"),
            (1, 0.0, "the rate is 0; it has to be 0.001…1000000000 a second"),
            (1, -1.0, "the rate is -1; it has to be 0.001…1000000000 a second"),
            (1, f64::NAN, "the rate is NaN; it has to be 0.001…1000000000 a second"),
            (1, f64::INFINITY, "the rate is inf; it has to be 0.001…1000000000 a second"),
            (1, 1e308, "it has to be 0.001…1000000000 a second"),
        ];
        for (capacity, per_second, message) in cases {
            let error = TopicRate::new(capacity, per_second).expect_err(message).to_string();
            assert!(error.contains(message), "{error}");
        }
        for (capacity, per_second) in [(1, 0.001), (1_000_000_000, 1e9)] {
            let rate = rate(capacity, per_second);
            assert_eq!((rate.capacity(), rate.rate()), (capacity, per_second));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_topic_gives_its_capacity_and_then_its_rate() {
        let rates = TopicRates::new(Clock::starting_at(UnixMillis(0)));
        let (slow, free) = (topic("slow"), topic("free"));
        rates.replace([(slow.clone(), rate(3, 0.5))].into());
        assert!(matches!(rates.take(&free, 1_000_000), Ok(None)));
        for _ in 0..3 {
            assert!(matches!(rates.take(&slow, 1), Ok(Some(_))));
        }
        let exceeded = rates.take(&slow, 1).expect_err("it gave all");
        let expected = Exceeded { what: "eventsPerSecond", retry_after: Duration::from_secs(2) };
        assert_eq!(exceeded, expected);
        advance(exceeded.retry_after).await;
        let given = rates.take(&slow, 1).expect("one came back").expect("it has a rate");
        assert!(rates.take(&slow, 1).is_err());
        given.give_back();
        assert!(rates.take(&slow, 1).is_ok());
        // A batch larger than the bucket waits until it is full.
        assert_eq!(rates.take(&slow, 5).expect_err("empty").retry_after, Duration::from_secs(6));
        advance(Duration::from_secs(6)).await;
        assert!(rates.take(&slow, 5).is_ok());
        assert_eq!(rates.take(&slow, 1).expect_err("a debt").retry_after, Duration::from_secs(6));
    }

    #[tokio::test(start_paused = true)]
    async fn replacing_keeps_the_state_of_what_stays_the_same() {
        let rates = TopicRates::new(Clock::starting_at(UnixMillis(0)));
        let (same, other) = (topic("same"), topic("other"));
        let all = |of_other| [(same.clone(), rate(1, 1.0)), (other.clone(), of_other)].into();
        rates.replace(all(rate(1, 1.0)));
        let taken = [rates.take(&same, 1), rates.take(&other, 1)];
        rates.replace(all(rate(1, 2.0)));
        assert!(rates.take(&same, 1).is_err());
        assert!(rates.take(&other, 1).is_ok());
        // Going back to the bucket it came from.
        taken.into_iter().for_each(|taken| taken.expect("given").expect("a rate").give_back());
        assert!(rates.take(&same, 1).is_ok());
        assert!(rates.take(&other, 1).is_err());
        rates.replace(BTreeMap::new());
        assert!(matches!(rates.take(&same, 1), Ok(None)));
    }
}
