//! What is received is what was published, and a position belongs to one event for ever.

use std::collections::HashMap;

use super::{Index, Rule, Violation};
use crate::{DeadRow, Fact};

pub(super) fn check(facts: &[Fact], index: &Index<'_>, violations: &mut Vec<Violation>) {
    let mut of_position: HashMap<(&str, u32, u64), &str> = HashMap::new();
    let mut of_event: HashMap<(&str, &str), (u32, u64)> = HashMap::new();
    let mut place = |topic, event, partition, offset, violations: &mut Vec<Violation>| {
        let other = *of_position.entry((topic, partition, offset)).or_insert(event);
        if other != event {
            let detail = format!("and {other} are both at {partition}/{offset} of {topic}");
            violations.push(Violation::new(Rule::PositionReused, event, detail));
        }
        let known = *of_event.entry((topic, event)).or_insert((partition, offset));
        if known != (partition, offset) {
            let detail = format!("is at {known:?} and at {:?} of {topic}", (partition, offset));
            violations.push(Violation::new(Rule::PositionReused, event, detail));
        }
    };
    for fact in facts {
        match fact {
            Fact::Published { event, position: Some((partition, offset)) } => {
                if let Some(sent) = index.sent.get(event.as_str()) {
                    place(sent.topic, event, *partition, *offset, violations);
                }
            }
            Fact::Delivered { topic, event, data, partition, offset, .. } => {
                place(topic, event, *partition, *offset, violations);
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
            Fact::Browsed { topic, rows } => {
                for DeadRow { event, partition, offset, .. } in rows {
                    place(topic, event, *partition, *offset, violations);
                }
            }
            Fact::Published { position: None, .. }
            | Fact::Subscribed { .. }
            | Fact::PublishSent { .. }
            | Fact::AckSent { .. }
            | Fact::AckAnswered { .. }
            | Fact::Cursor { .. }
            | Fact::Note(_) => {}
        }
    }
}
