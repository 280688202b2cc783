//! Nothing moves back: a sample that was asked for after another was answered is not lower, unless a seek went
//! there or the topic was deleted in between.

use std::collections::BTreeMap;

use super::{Index, Rule, Violation};
use crate::{Fact, history::Moment};

/// When it was asked for, when it was answered, and the floor.
type Sample = (Moment, Moment, u64);

pub(super) fn check(facts: &[Fact], index: &Index<'_>, violations: &mut Vec<Violation>) {
    let mut samples: BTreeMap<(&str, &str), Vec<Sample>> = BTreeMap::new();
    for (at, fact) in facts.iter().enumerate() {
        if let Fact::Cursor { asked, topic, place, floor } = fact {
            samples.entry((topic, place)).or_default().push((*asked, Moment(at), *floor));
        }
    }
    for ((topic, place), samples) in samples {
        // Samples are in the order of their answers; the last one answered before this was asked counts.
        for (number, (asked, at, floor)) in samples.iter().enumerate() {
            let earlier = samples[..number].iter().rev().find(|(_, answered, _)| answered < asked);
            if let Some((since, answered, before)) = earlier
                && floor < before
                && !may_fall(index, topic, place, (*since, *at), *floor)
            {
                let detail =
                    format!("{place} of {topic} was {before} at {} and {floor} at {}", answered.0, at.0);
                violations.push(Violation::new(Rule::CursorWentBack, "", detail));
            }
        }
    }
}

fn may_fall(index: &Index<'_>, topic: &str, place: &str, between: (Moment, Moment), floor: u64) -> bool {
    if index.done.deletes_of(topic).any(|delete| delete.end > between.0 && delete.sent < between.1) {
        return true;
    }
    let Some((group, partition)) = place.rsplit_once('#') else { return false };
    let Ok(partition) = partition.parse() else { return false };
    index.done.seeks_of(&(topic, group)).any(|seek| {
        seek.may_be_between(between.0, between.1)
            && seek.lowest_floor(partition).is_some_and(|lowest| lowest <= floor)
    })
}
