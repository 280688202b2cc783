//! `TopicRates`: how fast a topic may be published to, whoever does.

use std::collections::BTreeMap;

use mesh_base::Clock;
use mesh_frame::TopicName;

use crate::quota::Exceeded;

/// How fast one topic may be published to: a token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopicRate {
    /// How many events may come at once.
    pub capacity: u64,
    /// How many events a second come back.
    pub rate: f64,
}

/// The rates of topics; changed while it runs.
#[derive(Debug)]
pub struct TopicRates;

/// What a topic's rate gave.
#[derive(Debug)]
#[must_use]
pub struct TakenOfRate;

impl TakenOfRate {
    /// The events are not published after all.
    pub fn give_back(self) {}
}

impl TopicRates {
    /// No topic has a rate.
    pub fn new(_clock: Clock) -> Self {
        Self
    }

    /// The rates that hold from now on; topics that have the same as before go on with what they have left.
    pub fn replace(&self, _rates: BTreeMap<TopicName, TopicRate>) {}

    /// Takes events of a topic's rate; `None`: it has none.
    ///
    /// # Errors
    /// The rate is reached; nothing was taken.
    pub fn take(&self, _topic: &TopicName, _events: u64) -> Result<Option<TakenOfRate>, Exceeded> {
        Ok(None)
    }
}
