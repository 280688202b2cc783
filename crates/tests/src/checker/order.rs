//! Within a key: in the order of the log, and with one client at a time.
//!
//! When an event is received, each earlier one of its key must be finished for the group, or have been received
//! before by the same client. An ack that may have counted counts from when it was sent. A dead letter counts
//! from the event's last delivery: when exactly it died, the record does not know.

use std::collections::{BTreeMap, HashMap};

use super::{Index, Rule, Violation, index::Group};
use crate::{Fact, history::Moment};

/// A key of a group, in one partition.
type Lane<'a> = (Group<'a>, u32, &'a str);

/// An event that is due to a group.
#[derive(Debug)]
struct Due<'a> {
    event: &'a str,
    finished: Option<Moment>,
    holder: Option<&'a str>,
}

pub(super) fn check(facts: &[Fact], index: &Index<'_>, violations: &mut Vec<Violation>) {
    let mut lanes = lanes(index);
    for (at, fact) in facts.iter().enumerate().map(|(at, fact)| (Moment(at), fact)) {
        let Fact::Delivered { client, topic, group, event, .. } = fact else { continue };
        let Some(key) = index.sent.get(event.as_str()).and_then(|sent| sent.key) else { continue };
        let Some((partition, offset)) = index.positions.get(&(topic.as_str(), event.as_str())) else {
            continue;
        };
        let Some(lane) = lanes.get_mut(&((topic.as_str(), group.as_str()), *partition, key)) else {
            continue;
        };
        // What is finished by now never matters again.
        lane.retain(|place, due| place == offset || due.finished.is_none_or(|finished| finished > at));
        for earlier in lane.range(..offset).map(|(_, due)| due) {
            if earlier.holder != Some(client.as_str()) {
                let with =
                    earlier.holder.map_or("nobody yet".to_owned(), |holder| format!("client {holder}"));
                let detail = format!(
                    "of key {key} came to {client} of group {group} while {}, which is before it, was with {with}",
                    earlier.event
                );
                violations.push(Violation::new(Rule::KeyOrder, event, detail));
            }
        }
        if let Some(due) = lane.get_mut(offset) {
            due.holder = Some(client);
        }
    }
}

/// Every keyed event with a known position, under each group it is due to.
fn lanes<'a>(index: &Index<'a>) -> HashMap<Lane<'a>, BTreeMap<u64, Due<'a>>> {
    let mut lanes: HashMap<Lane<'_>, BTreeMap<u64, Due<'_>>> = HashMap::new();
    for (group, subscribed) in &index.groups {
        for (event, sent) in index.sent.iter().filter(|(_, sent)| sent.topic == group.0) {
            let Some(key) = sent.key else { continue };
            let Some((partition, offset)) = index.positions.get(&(sent.topic, *event)) else { continue };
            let course = index.courses.get(&(*group, *event));
            if sent.at < *subscribed && course.is_none() {
                continue;
            }
            let dead = course.filter(|course| course.dead.is_some());
            let died = dead.map(|course| course.handed.last().map_or(Moment(0), |last| last.received));
            let acked = course.and_then(|course| course.may_be_acked());
            let finished = [acked, died].into_iter().flatten().min();
            let due = Due { event, finished, holder: None };
            lanes.entry((*group, *partition, key)).or_default().insert(*offset, due);
        }
    }
    lanes
}
