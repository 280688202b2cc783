//! The words that the rules share: where an event is, whose group, one hand-out, and when something was recorded.

use crate::{Fact, history::Moment};

/// Partition and offset.
pub(super) type Place = (u32, u64);

/// A group of a topic.
pub(super) type Group<'a> = (&'a str, &'a str);

/// A delivery as the rules look at it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handed {
    pub(super) asked: Moment,
    pub(super) received: Moment,
    pub(super) attempt: u32,
    pub(super) at_ms: u64,
}

/// Every fact with its moment.
pub(super) fn moments(facts: &[Fact]) -> impl Iterator<Item = (Moment, &Fact)> {
    facts.iter().enumerate().map(|(at, fact)| (Moment(at), fact))
}
