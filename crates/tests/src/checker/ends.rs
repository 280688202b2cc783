//! Every accepted event reaches exactly one end, after which it does not come again.

use super::{Index, Rule, Violation, index::Course};

pub(super) fn check(index: &Index<'_>, violations: &mut Vec<Violation>) {
    lost(index, violations);
    for (((topic, group), event), course) in &index.courses {
        let keyed = index.sent.get(event).is_some_and(|sent| sent.key.is_some());
        let of = format!("for group {group} of {topic}");
        after_the_end(course, event, &of, violations);
        attempts(course, keyed, event, &of, violations);
    }
}

/// Accepted after a group was there, and neither acknowledged nor dead-lettered for it.
fn lost(index: &Index<'_>, violations: &mut Vec<Violation>) {
    for ((topic, group), subscribed) in &index.groups {
        for (event, sent) in &index.sent {
            if !sent.accepted || sent.topic != *topic || sent.at < *subscribed {
                continue;
            }
            let course = index.courses.get(&((topic, group), event));
            let ended = course.is_some_and(|course| course.may_be_acked().is_some() || course.dead.is_some());
            if !ended {
                let times = course.map_or(0, |course| course.handed.len());
                let detail = format!(
                    "was accepted, received {times} times and never finished by group {group} of {topic}"
                );
                violations.push(Violation::new(Rule::Lost, event, detail));
            }
        }
    }
}

fn after_the_end(course: &Course, event: &str, of: &str, violations: &mut Vec<Violation>) {
    if let Some(acked) = course.acked() {
        for handed in course.handed.iter().filter(|handed| handed.asked > acked) {
            let detail =
                format!("{of}: attempt {} was asked for after the ack's 200 at {}", handed.attempt, acked.0);
            violations.push(Violation::new(Rule::DeliveredAfterAck, event, detail));
        }
        if let Some(dead) = course.dead {
            let detail =
                format!("{of}: its ack was answered 200 at {}, dead letter seen at {}", acked.0, dead.0);
            violations.push(Violation::new(Rule::AckedAndDead, event, detail));
        }
    }
    if let Some(dead) = course.dead {
        for handed in course.handed.iter().filter(|handed| handed.asked > dead) {
            let detail = format!("{of}: attempt {} was asked for after its dead letter", handed.attempt);
            violations.push(Violation::new(Rule::DeliveredAfterDeath, event, detail));
        }
    }
}

/// Attempts rise. Within a key what stands behind a failed event is taken back uncounted and may come with the
/// number it had; without a key a number comes once.
fn attempts(course: &Course, keyed: bool, event: &str, of: &str, violations: &mut Vec<Violation>) {
    for (number, later) in course.handed.iter().enumerate() {
        let before = course.handed[..number].iter().filter(|earlier| earlier.received < later.asked);
        let Some(highest) = before.map(|earlier| earlier.attempt).max() else { continue };
        if later.attempt < highest || (later.attempt == highest && !keyed) {
            let detail = format!("{of}: attempt {} came after attempt {highest}", later.attempt);
            violations.push(Violation::new(Rule::AttemptsReset, event, detail));
        }
    }
}
