//! The backlog limits drop what is too much and nothing else, and count it.

use std::collections::{BTreeMap, HashMap};

use super::{Index, Rule, Violation, place::moments};
use crate::{Fact, history::Moment};

/// What a record takes beside its data, at most.
const AROUND: u64 = 1_024;

/// The lowest offsets of a topic as they were seen.
type Starts<'a> = &'a BTreeMap<u32, u64>;

pub(super) fn check(facts: &[Fact], index: &Index<'_>, violations: &mut Vec<Violation>) {
    let mut limit: Option<u64> = None;
    let mut known: HashMap<(&str, u32), u64> = HashMap::new();
    for (at, fact) in moments(facts) {
        match fact {
            Fact::Limited { bytes } => limit = Some(*bytes),
            Fact::Described { topic, incarnation: Some(_), starts, .. } => {
                for (partition, start) in starts.iter().filter(|(_, start)| **start > 0) {
                    if known.insert((topic, *partition), *start) == Some(*start) {
                        continue;
                    }
                    let behind = bytes_behind(index, topic, *partition, start - 1, at);
                    let part = limit.map(|limit| limit / starts.len().max(1) as u64);
                    if part.is_none_or(|part| behind <= part) {
                        let detail = format!(
                            "partition {partition} of {topic} begins at {start}, with at most {behind} bytes from the last dropped one on and a limit of {part:?}"
                        );
                        violations.push(Violation::new(Rule::DroppedWithinLimits, "", detail));
                    }
                }
            }
            _ => {}
        }
    }
    uncounted(facts, index, violations);
}

/// What a partition can have had from an offset on, at a time. What is somewhere unknown counts.
fn bytes_behind(index: &Index<'_>, topic: &str, partition: u32, from: u64, at: Moment) -> u64 {
    let sent = index.sent.iter().filter(|(_, sent)| sent.topic == topic && sent.at < at);
    let behind = sent.filter(|(event, _)| {
        index.positions.get(&(topic, **event)).is_none_or(|place| place.0 == partition && place.1 >= from)
    });
    behind.map(|(_, sent)| sent.data.len() as u64 + AROUND).sum()
}

/// Between two samples of the counter in one life of the process, what was dropped unfinished was counted.
fn uncounted(facts: &[Fact], index: &Index<'_>, violations: &mut Vec<Violation>) {
    let mut before: Option<(Moment, u64)> = None;
    // The first look at a topic after the sample before, and the last look.
    let mut looks: BTreeMap<&str, (Starts<'_>, Starts<'_>)> = BTreeMap::new();
    for (at, fact) in moments(facts) {
        match fact {
            Fact::Killed => {
                before = None;
                looks.clear();
            }
            Fact::Described { asked, topic, incarnation: Some(_), starts }
                if before.is_some_and(|(since, _)| *asked > since) =>
            {
                looks.entry(topic).or_insert((starts, starts)).1 = starts;
            }
            Fact::Dropped { count, .. } => {
                if let Some((_, old)) = before {
                    let lost: Vec<&str> = looks
                        .iter()
                        .flat_map(|(topic, (from, to))| lost_between(index, topic, from, to))
                        .collect();
                    if (lost.len() as u64) > count.saturating_sub(old) {
                        let detail = format!(
                            "and {} others were dropped before every group was done with them; {} were counted",
                            lost.len() - 1,
                            count.saturating_sub(old)
                        );
                        violations.push(Violation::new(Rule::DropUncounted, lost[0], detail));
                    }
                }
                before = Some((at, *count));
                looks.clear();
            }
            _ => {}
        }
    }
}

/// The events between two lowest offsets that some group has never finished, and owed it to.
fn lost_between<'a>(index: &Index<'a>, topic: &str, from: Starts<'_>, to: Starts<'_>) -> Vec<&'a str> {
    let is_between = |(partition, offset): &(u32, u64)| {
        from.get(partition).is_some_and(|from| offset >= from)
            && to.get(partition).is_some_and(|to| offset < to)
    };
    let is_owed = |event: &'a str| {
        index.groups.iter().filter(|(group, members)| group.0 == topic && !members.auto).any(
            |(group, members)| {
                index.due_since(group, members, event).is_some()
                    && !index.courses_of(*group, event).any(|(_, course)| {
                        course.dead.is_some()
                            || course.may_be_acked().is_some()
                            || course.may_be_rejected().is_some()
                    })
            },
        )
    };
    let between = index.positions.iter().filter(|((of, _), place)| *of == topic && is_between(place));
    between.map(|((_, event), _)| *event).filter(|event| is_owed(event)).collect()
}
