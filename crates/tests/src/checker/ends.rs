//! Every accepted event reaches exactly one end, after which it does not come again.
//!
//! Three things make it come all the same: a seek makes it due anew, a replay delivers a copy of a dead letter,
//! which is a delivery of its own, and a group that acknowledges by itself owes nothing around a kill.

use super::{
    Index, Rule, Violation,
    index::{Course, Members, Of},
    place::Group,
};
use crate::history::Moment;

pub(super) fn check(index: &Index<'_>, violations: &mut Vec<Violation>) {
    for (group, members) in &index.groups {
        lost(index, group, members, violations);
    }
    for (of, course) in &index.courses {
        after_the_end(index, of, course, violations);
        attempts(index, of, course, violations);
        begin_at_one(index, of, course, violations);
        if index.groups.get(&of.0).is_some_and(|members| members.auto) {
            at_most_once(index, of, course, violations);
        }
    }
}

/// Which course, in words.
pub(super) fn words(of: &Of<'_>) -> String {
    let ((topic, group), _, copy) = of;
    let what = copy.map(|place| format!(" (the copy at {place:?})")).unwrap_or_default();
    format!("for group {group} of {topic}{what}")
}

/// Accepted after a group was there, and neither acknowledged nor dead-lettered for it.
fn lost<'a>(index: &Index<'a>, group: &Group<'a>, members: &Members, violations: &mut Vec<Violation>) {
    let last_kill = index.done.kills.last().copied().unwrap_or_default();
    for event in index.sent.keys() {
        let Some(due) = index.due_since(group, members, event) else { continue };
        if index.dropped(group.0, event) {
            continue;
        }
        let mut courses = index.courses_of(*group, event);
        let is_ended = if members.auto {
            due < last_kill || courses.any(|(_, course)| !course.handed.is_empty())
        } else {
            courses.any(|(of, course)| {
                let since = if of.2.is_some() { Moment(0) } else { due };
                course.is_dead || course.acks.iter().any(|ack| ack.may_count() && ack.end > since)
            })
        };
        if !is_ended {
            let times: usize = index.courses_of(*group, event).map(|(_, course)| course.handed.len()).sum();
            let detail = format!(
                "was accepted, due since {}, received {times} times and never finished by group {} of {}",
                due.0, group.1, group.0
            );
            violations.push(Violation::new(Rule::Lost, event, detail));
        }
    }
}

fn after_the_end(index: &Index<'_>, of: &Of<'_>, course: &Course, violations: &mut Vec<Violation>) {
    let event = of.1;
    for ack in course.acks.iter().filter(|ack| ack.counted()) {
        for handed in course.handed.iter().filter(|handed| handed.asked > ack.end) {
            if !index.sought_between(of, ack.sent, handed.received) {
                let detail = format!(
                    "{}: attempt {} was asked for after the ack's 200 at {}",
                    words(of),
                    handed.attempt,
                    ack.end.0
                );
                violations.push(Violation::new(Rule::DeliveredAfterAck, event, detail));
            }
        }
    }
    // Of the deaths that are known: what came before, what was certain, and in words.
    let seen = course.dead.map(|dead| (course.begin(), dead, "it was seen dead"));
    let deaths = course.rejected().map(|(sent, at)| (sent, at, "its reject's 200")).chain(seen);
    for (after, dead, what) in deaths {
        for handed in course.handed.iter().filter(|handed| handed.asked > dead) {
            if !index.sought_between(of, after, handed.received) {
                let detail = format!(
                    "{}: attempt {} was asked for after {what} at {}",
                    words(of),
                    handed.attempt,
                    dead.0
                );
                violations.push(Violation::new(Rule::DeliveredAfterDeath, event, detail));
            }
        }
        for ack in course.acks.iter().filter(|ack| ack.counted()) {
            if !index.sought_between(of, course.begin(), ack.end.max(dead)) {
                let detail =
                    format!("{}: its ack was answered 200 at {}, {what} at {}", words(of), ack.end.0, dead.0);
                violations.push(Violation::new(Rule::AckedAndDead, event, detail));
            }
        }
    }
}

/// Attempts rise. Within a key what stands behind a failed event is taken back uncounted and may come with the
/// number it had, and so is whatever is handed out when a seek leaves its partition where it is; without either a
/// number comes once.
fn attempts(index: &Index<'_>, of: &Of<'_>, course: &Course, violations: &mut Vec<Violation>) {
    let keyed = index.sent.get(of.1).is_some_and(|sent| sent.key.is_some());
    for (number, later) in course.handed.iter().enumerate() {
        let before = course.handed[..number].iter().filter(|earlier| earlier.received < later.asked);
        for earlier in before {
            let fell = later.attempt < earlier.attempt;
            let again = later.attempt == earlier.attempt && !keyed;
            if (fell && !index.sought_between(of, earlier.asked, later.received))
                || (again && !index.moved_between(&of.0, earlier.asked, later.received))
            {
                let detail = format!(
                    "{}: attempt {} came after attempt {}",
                    words(of),
                    later.attempt,
                    earlier.attempt
                );
                violations.push(Violation::new(Rule::AttemptsReset, of.1, detail));
                break;
            }
        }
    }
}

/// A copy, and what a seek has made due anew, begins at attempt 1: each attempt beyond was handed out, and came
/// or was lost with a kill or a closed stream. The locks must be longer than a stream lies unread.
fn begin_at_one(index: &Index<'_>, of: &Of<'_>, course: &Course, violations: &mut Vec<Violation>) {
    let place = index.place(of);
    for handed in &course.handed {
        let sought =
            index.done.seeks_of(&of.0).filter(|seek| seek.must_cover(place) && seek.end < handed.asked);
        let sought = sought.map(|seek| seek.sent).max();
        let Some(since) = sought.or(of.2.map(|_| Moment(0))) else { continue };
        let came =
            course.handed.iter().filter(|other| other.received > since && other.asked <= handed.received);
        let cuts = index.done.cuts.iter().filter(|cut| **cut > since && **cut < handed.received);
        let most = came.count() + cuts.count();
        if handed.attempt as usize > most {
            let detail = format!(
                "{}: attempt {} came at {} and began anew at {}, since when at most {most} can have been",
                words(of),
                handed.attempt,
                handed.received.0,
                since.0
            );
            violations.push(Violation::new(Rule::AttemptsKept, of.1, detail));
        }
    }
}

fn at_most_once(index: &Index<'_>, of: &Of<'_>, course: &Course, violations: &mut Vec<Violation>) {
    for (number, later) in course.handed.iter().enumerate() {
        let mut earlier = course.handed[..number].iter();
        if let Some(earlier) =
            earlier.rfind(|earlier| !index.sought_between(of, earlier.asked, later.received))
        {
            let detail = format!("{}: at {} and at {}", words(of), earlier.received.0, later.received.0);
            violations.push(Violation::new(Rule::CameTwice, of.1, detail));
        }
    }
}
