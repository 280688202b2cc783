//! What was given back comes again with the next attempt, and not before its delay; ids of an older generation
//! are void.

use super::{Index, Rule, Violation, ends::words};
use crate::{AckAnswer, Verb, history::Moment};

/// How far two clocks that count milliseconds from the same wall may be apart.
const TOLERANCE_MS: u64 = 20;

pub(super) fn check(index: &Index<'_>, violations: &mut Vec<Violation>) {
    for (of, course) in &index.courses {
        for settling in &course.settlings {
            let (Verb::Nack { delay_ms }, Some((answered, AckAnswer::Acked))) =
                (settling.verb, settling.answer)
            else {
                continue;
            };
            for handed in course.handed.iter().filter(|handed| handed.asked > answered) {
                if index.moved_between(&of.0, settling.sent, handed.received) {
                    continue;
                }
                if handed.attempt <= settling.attempt {
                    let detail = format!(
                        "{}: attempt {} came at {} after attempt {} was given back",
                        words(of),
                        handed.attempt,
                        handed.received.0,
                        settling.attempt
                    );
                    violations.push(Violation::new(Rule::NackUncounted, of.1, detail));
                }
                let due = settling.at_ms + delay_ms.unwrap_or(0);
                if handed.at_ms + TOLERANCE_MS < due {
                    let detail = format!(
                        "{}: given back for {delay_ms:?} ms at {}, it came {} ms before that was over",
                        words(of),
                        settling.sent.0,
                        due - handed.at_ms
                    );
                    violations.push(Violation::new(Rule::NackedTooEarly, of.1, detail));
                }
            }
        }
    }
    void_ids(index, violations);
}

/// A verb that was sent after a seek and did something to a delivery from before it.
fn void_ids(index: &Index<'_>, violations: &mut Vec<Violation>) {
    for (of, number, sent, what) in verbs_done(index) {
        let received = index.courses[of].handed[number].received;
        let void = index.done.seeks_of(&of.0).any(|seek| {
            seek.happened == super::operations::Happened::Yes && seek.sent > received && seek.end < sent
        });
        if void {
            let detail = format!("{}: {what} of {} was answered 200 after a seek", words(of), received.0);
            violations.push(Violation::new(Rule::VoidIdAnswered, of.1, detail));
        }
    }
}

/// Every verb that was answered 200: of which course and hand-out, when it was sent, which.
fn verbs_done<'a, 'b>(
    index: &'b Index<'a>,
) -> impl Iterator<Item = (&'b super::index::Of<'a>, usize, Moment, &'static str)> {
    index.courses.iter().flat_map(|(of, course)| {
        let acks = course.acks.iter().filter(|ack| ack.counted()).map(|ack| (ack.handed, ack.sent, "an ack"));
        let verbs = course.settlings.iter().filter_map(|settling| {
            let name = match settling.verb {
                Verb::Nack { .. } => "a nack",
                Verb::Reject => "a reject",
            };
            matches!(settling.answer, Some((_, AckAnswer::Acked))).then_some((
                settling.handed,
                settling.sent,
                name,
            ))
        });
        acks.chain(verbs).map(move |(handed, sent, name)| (of, handed, sent, name))
    })
}
