//! What is received is what was published, and a position belongs to one event for ever, in one log of a topic.

use std::collections::HashMap;

use super::{Index, Rule, Violation, place::Place};
use crate::Fact;

/// What is at a position: an event, or a replayed copy of one.
type What<'a> = (&'a str, bool);

/// Which event is where.
struct Places<'a, 'i> {
    index: &'i Index<'a>,
    of_position: HashMap<(&'a str, usize, Place), What<'a>>,
    of_event: HashMap<(&'a str, &'a str), Place>,
}

impl<'a> Places<'a, '_> {
    fn put(&mut self, topic: &'a str, what: What<'a>, place: Place, violations: &mut Vec<Violation>) {
        let era = self.index.sent.get(what.0).map_or(Some(0), |sent| self.index.era(sent));
        let Some(era) = era else { return };
        let other = *self.of_position.entry((topic, era, place)).or_insert(what);
        if other != what {
            let detail = format!("and {} are both at {}/{} of {topic}", other.0, place.0, place.1);
            violations.push(Violation::new(Rule::PositionReused, what.0, detail));
        }
        if what.1 {
            return;
        }
        let known = *self.of_event.entry((topic, what.0)).or_insert(place);
        if known != place {
            let detail = format!("is at {known:?} and at {place:?} of {topic}");
            violations.push(Violation::new(Rule::PositionReused, what.0, detail));
        }
    }
}

pub(super) fn check(facts: &[Fact], index: &Index<'_>, violations: &mut Vec<Violation>) {
    let mut places = Places { index, of_position: HashMap::new(), of_event: HashMap::new() };
    for fact in facts {
        match fact {
            Fact::Published { event, position: Some(place), .. } => {
                if let Some(sent) = index.sent.get(event.as_str()) {
                    places.put(sent.topic, (event, false), *place, violations);
                }
            }
            Fact::Delivered { topic, event, data, partition, offset, copy_for, .. } => {
                places.put(topic, (event, copy_for.is_some()), (*partition, *offset), violations);
                match index.sent.get(event.as_str()) {
                    Some(sent) if sent.topic == topic => {
                        if sent.data != data {
                            let detail = format!("was published with {} and received with {data}", sent.data);
                            violations.push(Violation::new(Rule::Changed, event, detail));
                        }
                    }
                    Some(_) | None => {
                        let detail = format!("was received from {topic} and never published there");
                        violations.push(Violation::new(Rule::Invented, event, detail));
                    }
                }
            }
            Fact::Browsed { topic, rows, .. } => {
                for row in rows {
                    let of = index.of_row(topic, row);
                    let place = (row.partition, row.offset);
                    places.put(topic, (&row.event, of.2.is_some()), place, violations);
                }
            }
            _ => {}
        }
    }
}
