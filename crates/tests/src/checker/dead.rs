//! A dead letter is there once, and stays until it is replayed or goes with its topic; a replay delivers a copy.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    Index, Rule, Violation,
    ends::words,
    index::Of,
    place::{Group, Place, moments},
};
use crate::{Fact, history::Moment};

/// A look at the dead letters.
struct Look<'a> {
    asked: Moment,
    at: Moment,
    rows: BTreeSet<Of<'a>>,
}

pub(super) fn check<'a>(facts: &'a [Fact], index: &Index<'a>, violations: &mut Vec<Violation>) {
    let looks = looks(facts, index, violations);
    for (topic, looks) in &looks {
        for pair in looks.windows(2) {
            vanished(index, topic, &pair[0], &pair[1], violations);
            still_there(index, topic, &pair[0], &pair[1], violations);
        }
    }
    for (of, course) in &index.courses {
        for (sent, answered) in course.rejected() {
            let look = looks.get(of.0.0).and_then(|looks| looks.iter().find(|look| look.asked > answered));
            if let Some(look) = look
                && !look.rows.contains(of)
                && !may_go(index, of.0.0, sent, look.at)
            {
                let detail = format!(
                    "{}: its reject was answered 200 at {} and it is not among the dead letters at {}",
                    words(of),
                    answered.0,
                    look.at.0
                );
                violations.push(Violation::new(Rule::RejectLost, of.1, detail));
            }
        }
    }
    copies(index, violations);
}

/// Every look by topic. On the way: what is there twice, and what was never published.
fn looks<'a>(
    facts: &'a [Fact],
    index: &Index<'a>,
    violations: &mut Vec<Violation>,
) -> BTreeMap<&'a str, Vec<Look<'a>>> {
    let mut looks: BTreeMap<&str, Vec<Look<'_>>> = BTreeMap::new();
    for (at, fact) in moments(facts) {
        let Fact::Browsed { asked, topic, rows } = fact else { continue };
        let mut seen = BTreeSet::new();
        for row in rows {
            let of = index.of_row(topic, row);
            if !seen.insert(of) {
                let detail = format!("is more than once among the dead letters, {}", words(&of));
                violations.push(Violation::new(Rule::DeadTwice, of.1, detail));
            }
            if index.sent.get(of.1).is_none_or(|sent| sent.topic != topic) {
                let detail = format!("is among the dead letters of {topic} and was never published there");
                violations.push(Violation::new(Rule::Invented, of.1, detail));
            }
        }
        looks.entry(topic).or_default().push(Look { asked: *asked, at, rows: seen });
    }
    looks
}

/// Whether something may have taken dead letters of a topic that were there after `since`.
fn may_go(index: &Index<'_>, topic: &str, since: Moment, at: Moment) -> bool {
    let deletes = index.done.deletes_of(topic).filter(|delete| delete.letters);
    let replays = index.done.replays_of(topic).map(|replay| (replay.sent, replay.end));
    deletes.map(|delete| (delete.sent, delete.end)).chain(replays).any(|(sent, end)| sent < at && end > since)
}

fn vanished(
    index: &Index<'_>,
    topic: &str,
    before: &Look<'_>,
    after: &Look<'_>,
    violations: &mut Vec<Violation>,
) {
    if may_go(index, topic, before.asked, after.at) {
        return;
    }
    for of in before.rows.difference(&after.rows) {
        let detail = format!("was among the dead letters, {}, and is gone at {}", words(of), after.at.0);
        violations.push(Violation::new(Rule::DeadVanished, of.1, detail));
    }
}

/// What was there before a replay that took everything is not there after it, unless it died once more.
fn still_there(
    index: &Index<'_>,
    topic: &str,
    before: &Look<'_>,
    after: &Look<'_>,
    violations: &mut Vec<Violation>,
) {
    let whole = |replay: &super::operations::Replay| {
        replay.replayed.is_some_and(|replayed| replayed < 1_000)
            && replay.sent > before.at
            && replay.end < after.asked
    };
    if !index.done.replays_of(topic).any(whole) {
        return;
    }
    for of in before.rows.intersection(&after.rows) {
        let begin = index.courses.get(of).map_or(Moment(0), super::index::Course::begin);
        if !index.sought_between(of, begin, after.at) {
            let detail =
                format!("{}: a replay that took everything left it, seen at {}", words(of), after.at.0);
            violations.push(Violation::new(Rule::ReplayLeftIt, of.1, detail));
        }
    }
}

/// Copies come from dead letters, to the group that failed, and once each, whatever a replay was cut by.
fn copies(index: &Index<'_>, violations: &mut Vec<Violation>) {
    let mut copies: BTreeMap<(Group<'_>, &str), usize> = BTreeMap::new();
    for (of, course) in index.courses.iter().filter(|(of, _)| of.2.is_some()) {
        *copies.entry((of.0, of.1)).or_default() += 1;
        for handed in &course.handed {
            let replays = index.done.replays_of(of.0.0);
            if !replays.map(|replay| replay.sent).any(|sent| sent < handed.received) {
                let detail = format!("{}: it came before anything was replayed", words(of));
                violations.push(Violation::new(Rule::CopyMisdelivered, of.1, detail));
            }
        }
    }
    for ((group, event), copies) in copies {
        // One that was acknowledged for certain, and never made due again, did not die.
        let died = index.courses_of(group, event).filter(|(of, course)| {
            let acked = course.acks.iter().any(super::index::Ack::counted);
            !acked || index.sought_between(of, course.begin(), Moment(usize::MAX))
        });
        let deaths = died.count();
        if copies > deaths {
            let detail = format!(
                "for group {} of {}: {copies} copies came and it died {deaths} times",
                group.1, group.0
            );
            violations.push(Violation::new(Rule::ReplayedTwice, event, detail));
        }
    }
}

/// Where an event is that died can be said by one copy only, unless a seek let it die anew.
pub(super) fn copied_twice<'a>(facts: &'a [Fact], index: &Index<'a>, violations: &mut Vec<Violation>) {
    let mut places: HashMap<(Group<'_>, &str), Place> = HashMap::new();
    for fact in facts {
        let Fact::Delivered { topic, group, event, partition, offset, copy_of: Some(of), .. } = fact else {
            continue;
        };
        let (group, place) = ((topic.as_str(), group.as_str()), (*partition, *offset));
        let known = *places.entry((group, of)).or_insert(place);
        if known != place && !index.moved_between(&group, Moment(0), Moment(usize::MAX)) {
            let detail = format!("the letter of {of} was copied to {known:?} and to {place:?} of {topic}");
            violations.push(Violation::new(Rule::ReplayedTwice, event, detail));
        }
    }
}

/// A copy that came to another group than the one it is for.
pub(super) fn misdelivered(facts: &[Fact], violations: &mut Vec<Violation>) {
    for fact in facts {
        if let Fact::Delivered { group, event, copy_for: Some(copy_for), .. } = fact
            && copy_for.rsplit('/').next() != Some(group.as_str())
        {
            let detail = format!("a copy for {copy_for} came to {group}");
            violations.push(Violation::new(Rule::CopyMisdelivered, event, detail));
        }
    }
}
