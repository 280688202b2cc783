//! An event that is published again within the window is stored once: one of its answers says so, and every
//! other one says that it is a duplicate. A publish without an answer may be the one that stored it.

use super::{Index, Rule, Violation, index::Try};

pub(super) fn check(index: &Index<'_>, violations: &mut Vec<Violation>) {
    for (event, sent) in index.sent.iter().filter(|(_, sent)| sent.tries.len() > 1) {
        let first = |one: &&Try| one.accepted == Some(Some(false));
        let firsts: Vec<&Try> = sent.tries.iter().filter(first).collect();
        if let [one, other, ..] = firsts[..] {
            let detail =
                format!("the publishes sent at {} and at {} were both stored", one.sent.0, other.sent.0);
            violations.push(Violation::new(Rule::StoredTwice, event, detail));
        }
        for duplicate in sent.tries.iter().filter(|one| one.accepted == Some(Some(true))) {
            let may_have = |other: &&Try| {
                other.sent != duplicate.sent
                    && other.sent < duplicate.end
                    && other.accepted != Some(Some(true))
            };
            if !sent.tries.iter().any(|other| may_have(&other)) {
                let detail =
                    format!("the publish sent at {} is called a duplicate, of none", duplicate.sent.0);
                violations.push(Violation::new(Rule::DuplicateOfNone, event, detail));
            }
        }
    }
    for (event, sent) in index.sent.iter().filter(|(_, sent)| sent.tries.len() == 1) {
        if sent.tries[0].accepted == Some(Some(true)) {
            let detail = format!("the publish sent at {} is called a duplicate, of none", sent.at.0);
            violations.push(Violation::new(Rule::DuplicateOfNone, event, detail));
        }
    }
}
