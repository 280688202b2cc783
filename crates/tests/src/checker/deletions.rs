//! What an operator was answered stays done, and nothing comes from a topic that was deleted.

use super::{Index, Rule, Violation, ends::words};

pub(super) fn check(index: &Index<'_>, violations: &mut Vec<Violation>) {
    for what in &index.done.forgotten {
        violations.push(Violation::new(Rule::Forgotten, "", what.as_str()));
    }
    for (of, course) in &index.courses {
        let Some(sent) = index.sent.get(of.1) else { continue };
        let gone = index.done.deletes_of(sent.topic).filter(|delete| {
            delete.happened == super::operations::Happened::Yes && sent.settled() < delete.sent
        });
        let Some(gone) = gone.map(|delete| delete.end).min() else { continue };
        for handed in course.handed.iter().filter(|handed| handed.asked > gone) {
            let detail = format!(
                "{}: it was asked for at {}, its log was deleted by {}",
                words(of),
                handed.asked.0,
                gone.0
            );
            violations.push(Violation::new(Rule::CameFromTheDeleted, of.1, detail));
        }
    }
}
