//! A dead letter is there once, and stays.

use std::collections::{BTreeMap, BTreeSet};

use super::{Index, Rule, Violation};
use crate::Fact;

pub(super) fn check(facts: &[Fact], index: &Index<'_>, violations: &mut Vec<Violation>) {
    let mut before: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for fact in facts {
        let Fact::Browsed { topic, rows } = fact else { continue };
        let mut seen = BTreeSet::new();
        for row in rows {
            if !seen.insert((row.group.as_str(), row.event.as_str())) {
                let detail =
                    format!("is more than once among the dead letters of group {} of {topic}", row.group);
                violations.push(Violation::new(Rule::DeadTwice, &row.event, detail));
            }
            if index.sent.get(row.event.as_str()).is_none_or(|sent| sent.topic != topic) {
                let detail = format!("is among the dead letters of {topic} and was never published there");
                violations.push(Violation::new(Rule::Invented, &row.event, detail));
            }
        }
        for (group, event) in before.get(topic.as_str()).into_iter().flatten() {
            if !seen.contains(&(*group, *event)) {
                let detail = format!("was among the dead letters of group {group} of {topic} and is gone");
                violations.push(Violation::new(Rule::DeadVanished, event, detail));
            }
        }
        before.insert(topic, seen);
    }
}
