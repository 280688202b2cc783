//! Within a key: in the order of the log, and with one client at a time.
//!
//! When an event is received, each earlier one of its key must be finished for the group, or have been received
//! before by the same client; in a group that acknowledges by itself it is over, come or not. An ack that may have counted counts from when it was sent. A dead letter counts
//! from the event's last delivery: when exactly it died, the record does not know. A seek begins anew: each
//! stretch between two is judged alone. A kill takes from a stream what it had. Topics that are deleted are not
//! judged: which of their logs an event is in is not always known.

use std::collections::{BTreeMap, HashMap};

use super::{
    Index, Rule, Violation,
    index::Course,
    operations::Seek,
    place::{Group, Place, moments},
};
use crate::{Fact, history::Moment};

/// A key of a group, in one partition, between two of its seeks.
type Lane<'a> = (Group<'a>, usize, u32, &'a str);

/// An event that is due to a group.
#[derive(Debug)]
struct Due<'a> {
    event: &'a str,
    finished: Option<Moment>,
    /// Who was given it, in the order in which it was received.
    holders: Vec<Holder<'a>>,
}

#[derive(Debug)]
struct Holder<'a> {
    client: &'a str,
    received: Moment,
    by_stream: bool,
}

impl Due<'_> {
    /// Whether a client had it when something was handed out to that client that was asked for then: it had it
    /// last, or whoever had it after that may have been given it later.
    fn was_with(&self, client: &str, asked: Moment) -> bool {
        let later = |holder: &&Holder<'_>| holder.client != client && holder.received > asked;
        self.holders.iter().rev().find(|holder| !later(holder)).is_some_and(|holder| holder.client == client)
    }
}

/// The time between two seeks of a group.
#[derive(Clone, Copy, Debug)]
struct Stretch<'a> {
    seek: Option<&'a Seek>,
    until: Moment,
}

impl Stretch<'_> {
    /// Since when what happens is surely of it.
    fn begin(&self) -> Moment {
        self.seek.map_or(Moment(0), |seek| Moment(seek.end.0.saturating_add(1)))
    }

    /// The lowest offset that is due anew in a partition; `None`: nobody knows.
    fn from(&self, partition: u32) -> Option<u64> {
        self.seek
            .map_or(Some(0), |seek| seek.start(partition).or_else(|| seek.leaves(partition).then_some(0)))
    }

    /// Since when an end counts in a partition.
    fn counts_since(&self, partition: u32) -> Moment {
        self.seek.filter(|seek| !seek.leaves(partition)).map_or(Moment(0), |seek| seek.sent)
    }
}

pub(super) fn check(facts: &[Fact], index: &Index<'_>, violations: &mut Vec<Violation>) {
    let stretches: BTreeMap<Group<'_>, Vec<Stretch<'_>>> =
        index.groups.keys().map(|group| (*group, stretches(index, group))).collect();
    let mut lanes = lanes(index, &stretches);
    let mut passed: HashMap<Lane<'_>, u64> = HashMap::new();
    for (at, fact) in moments(facts) {
        if matches!(fact, Fact::Killed) {
            let all = lanes.values_mut().flat_map(|lane| lane.values_mut());
            all.for_each(|due| due.holders.retain(|holder| !holder.by_stream));
        }
        let Fact::Delivered { stream, client, delivery, topic, group, event, partition, offset, .. } = fact
        else {
            continue;
        };
        let Some(key) = index.sent.get(event.as_str()).and_then(|sent| sent.key) else { continue };
        let group: Group<'_> = (topic, group);
        let Some(stretches) = stretches.get(&group) else { continue };
        let last = stretches.iter().rposition(|stretch| stretch.seek.is_none_or(|seek| seek.sent < at));
        let Some(number) = last else { continue };
        // What was asked for before the seek was answered may be of either side: it is not judged, and may be
        // what later ones follow.
        let (of, handed) = index.deliveries[delivery.as_str()];
        let asked = index.courses[&of].handed[handed].asked;
        let is_sure = asked >= stretches[number].begin();
        if index.groups[&group].auto {
            if !is_sure {
                continue;
            }
            let passed = passed.entry((group, number, *partition, key)).or_insert(*offset);
            if offset < passed {
                let detail = format!("of key {key} came to group {} after offset {passed}", group.1);
                violations.push(Violation::new(Rule::KeyOrder, event, detail));
            }
            *passed = (*passed).max(*offset);
            continue;
        }
        let Some(lane) = lanes.get_mut(&(group, number, *partition, key)) else { continue };
        let holder = Holder { client, received: at, by_stream: stream.is_some() };
        if !is_sure {
            if let Some(due) = lane.get_mut(offset).filter(|due| due.holders.is_empty()) {
                due.holders.push(holder);
            }
            continue;
        }
        // What is finished by now never matters again.
        lane.retain(|place, due| place == offset || due.finished.is_none_or(|finished| finished > at));
        for earlier in lane.range(..offset).map(|(_, due)| due) {
            if !earlier.was_with(client, asked) {
                let with = earlier
                    .holders
                    .last()
                    .map_or("nobody yet".to_owned(), |holder| format!("client {}", holder.client));
                let detail = format!(
                    "of key {key} came to {client} of group {} while {}, which is before it, was with {with}",
                    group.1, earlier.event
                );
                violations.push(Violation::new(Rule::KeyOrder, event, detail));
            }
        }
        if let Some(due) = lane.get_mut(offset) {
            due.holders.push(holder);
        }
    }
}

/// The times between the seeks of a group that may have happened.
fn stretches<'i>(index: &'i Index<'_>, group: &Group<'i>) -> Vec<Stretch<'i>> {
    let seeks: Vec<&Seek> = index.done.seeks_of(group).filter(|seek| seek.happened.may()).collect();
    let until = |number: usize| seeks.get(number).map_or(Moment(usize::MAX), |seek| seek.sent);
    let first = Stretch { seek: None, until: until(0) };
    let later =
        seeks.iter().enumerate().map(|(number, seek)| Stretch { seek: Some(seek), until: until(number + 1) });
    std::iter::once(first).chain(later).collect()
}

/// Every keyed event with a known position, under each group and stretch it is due to.
fn lanes<'a>(
    index: &Index<'a>,
    stretches: &BTreeMap<Group<'a>, Vec<Stretch<'_>>>,
) -> HashMap<Lane<'a>, BTreeMap<u64, Due<'a>>> {
    let mut lanes: HashMap<Lane<'_>, BTreeMap<u64, Due<'_>>> = HashMap::new();
    let none = Course::default();
    for (group, members) in &index.groups {
        if index.done.deletes_of(group.0).next().is_some() {
            continue;
        }
        for (event, sent) in index.sent.iter().filter(|(_, sent)| sent.topic == group.0) {
            let Some(key) = sent.key else { continue };
            let original = index.positions.get(&(sent.topic, *event)).copied();
            let is_due = members.subscribed.iter().any(|since| *since < sent.at);
            let missing = original.filter(|_| is_due && !index.courses.contains_key(&(*group, *event, None)));
            let copies = index.courses_of(*group, event).filter(|(of, _)| of.2.is_some()).count();
            let courses = index.courses_of(*group, event).map(|(of, course)| {
                // A copy comes from a death, which no look at the dead letters need have seen.
                let has_died = course.dead.is_some() || copies > usize::from(of.2.is_some());
                (of.2.or(original), course, has_died)
            });
            for (place, course, has_died) in courses.chain(missing.map(|place| (Some(place), &none, false))) {
                let Some(place) = place else { continue };
                for (number, stretch) in stretches[group].iter().enumerate() {
                    if stretch.from(place.0).is_none_or(|from| place.1 < from) {
                        continue;
                    }
                    let gone = index.dropped_at(group.0, place).then_some(Moment(0));
                    let finished = gone.or_else(|| finished(course, has_died, place, stretch));
                    let due = Due { event, finished, holders: Vec::new() };
                    lanes.entry((*group, number, place.0, key)).or_default().insert(place.1, due);
                }
            }
        }
    }
    lanes
}

/// From when on an event may be finished within a stretch.
fn finished(course: &Course, has_died: bool, place: Place, stretch: &Stretch<'_>) -> Option<Moment> {
    let since = stretch.counts_since(place.0);
    let acked = course.acks.iter().filter(|ack| ack.may_count() && ack.end > since).map(|ack| ack.sent).min();
    let rejected = course.may_be_rejected();
    let died = has_died.then(|| {
        let last = course.handed.iter().rfind(|handed| handed.received < stretch.until);
        last.map_or(Moment(0), |last| last.received)
    });
    [acked, rejected, died].into_iter().flatten().min()
}
