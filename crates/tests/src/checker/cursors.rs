//! Nothing moves back: a sample that was asked for after another was answered is not lower.

use std::collections::BTreeMap;

use super::{Rule, Violation};
use crate::{Fact, history::Moment};

/// When it was asked for, when it was answered, and the floor.
type Sample = (Moment, Moment, u64);

pub(super) fn check(facts: &[Fact], violations: &mut Vec<Violation>) {
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
            if let Some((_, answered, before)) = earlier
                && floor < before
            {
                let detail =
                    format!("{place} of {topic} was {before} at {} and {floor} at {}", answered.0, at.0);
                violations.push(Violation::new(Rule::CursorWentBack, "", detail));
            }
        }
    }
}
