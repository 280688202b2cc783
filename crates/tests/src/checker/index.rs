//! The record by event and group, and by what operators did.

use std::collections::{BTreeMap, HashMap};

use super::{
    operations::{Delete, Operations, end_of},
    place::{Group, Handed, Place, moments},
};
use crate::{AckAnswer, DeadRow, Fact, Verb, history::Moment};

/// One request that published an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Try {
    pub(super) sent: Moment,
    /// When it was answered, or the kill that ended it.
    pub(super) end: Moment,
    /// Answered 202: whether as a duplicate. `None` inside: the answer does not say.
    pub(super) accepted: Option<Option<bool>>,
}

/// What is known of one event's publishing.
#[derive(Clone, Debug)]
pub(super) struct Sent<'a> {
    /// When it was sent first.
    pub(super) at: Moment,
    pub(super) topic: &'a str,
    pub(super) key: Option<&'a str>,
    pub(super) data: &'a str,
    pub(super) tries: Vec<Try>,
}

impl Sent<'_> {
    pub(super) fn accepted(&self) -> bool {
        self.tries.iter().any(|one| one.accepted.is_some())
    }

    /// From when on no request for it is under way.
    pub(super) fn settled(&self) -> Moment {
        self.tries.iter().map(|one| one.end).max().unwrap_or_default()
    }
}

/// A nack or a reject.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settling {
    pub(super) verb: Verb,
    pub(super) sent: Moment,
    pub(super) at_ms: u64,
    /// Which of the hand-outs.
    pub(super) handed: usize,
    pub(super) attempt: u32,
    pub(super) answer: Option<(Moment, AckAnswer)>,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    /// Which of the hand-outs.
    pub(super) handed: usize,
    pub(super) sent: Moment,
    /// When it was answered, or the kill that ended it.
    pub(super) end: Moment,
    pub(super) answer: Option<AckAnswer>,
}

impl Ack {
    /// It counted, or may have.
    pub(super) fn may_count(&self) -> bool {
        self.answer.is_none_or(|how| how == AckAnswer::Acked)
    }

    pub(super) fn counted(&self) -> bool {
        self.answer == Some(AckAnswer::Acked)
    }
}

/// One group's life with one event at one position.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    pub(super) handed: Vec<Handed>,
    pub(super) acks: Vec<Ack>,
    pub(super) settlings: Vec<Settling>,
    /// When it was first seen among the dead letters.
    pub(super) dead: Option<Moment>,
    /// Whether it is there in the last look at them.
    pub(super) is_dead: bool,
}

impl Course {
    /// When an ack was sent first that counted, or may have.
    pub(super) fn may_be_acked(&self) -> Option<Moment> {
        self.acks.iter().filter(|ack| ack.may_count()).map(|ack| ack.sent).min()
    }

    /// The rejects that were answered 200.
    pub(super) fn rejected(&self) -> impl Iterator<Item = (Moment, Moment)> + '_ {
        self.settlings.iter().filter_map(|settling| match settling.answer {
            Some((at, AckAnswer::Acked)) if settling.verb == Verb::Reject => Some((settling.sent, at)),
            _ => None,
        })
    }

    /// When a reject was sent first that counted, or may: the intent is kept also when the answer is 503.
    pub(super) fn may_be_rejected(&self) -> Option<Moment> {
        let may = |settling: &&Settling| {
            settling.verb == Verb::Reject && settling.answer.is_none_or(|(_, how)| how != AckAnswer::Unknown)
        };
        self.settlings.iter().filter(may).map(|settling| settling.sent).min()
    }

    /// Before this nothing of it can have happened.
    pub(super) fn begin(&self) -> Moment {
        self.handed.iter().map(|handed| handed.asked).min().unwrap_or_default()
    }
}

/// A course: whose, of which event, and of a replayed copy where that is.
pub(super) type Of<'a> = (Group<'a>, &'a str, Option<Place>);

/// What is known of a group.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    /// Every subscribe that was answered 200.
    pub(super) subscribed: Vec<Moment>,
    pub(super) auto: bool,
}

/// The record by event and group.
#[derive(Debug, Default)]
pub(super) struct Index<'a> {
    pub(super) sent: BTreeMap<&'a str, Sent<'a>>,
    pub(super) groups: BTreeMap<Group<'a>, Members>,
    pub(super) courses: BTreeMap<Of<'a>, Course>,
    /// Partition and offset of an event as it was published, from whatever told them first.
    pub(super) positions: HashMap<(&'a str, &'a str), Place>,
    /// Which course a delivery belongs to, and which of its hand-outs it is.
    pub(super) deliveries: HashMap<&'a str, (Of<'a>, usize)>,
    pub(super) done: Operations<'a>,
    /// The highest that the lowest offset of a partition was seen to be.
    starts: HashMap<(&'a str, u32), u64>,
}

impl<'a> Index<'a> {
    pub(super) fn new(facts: &'a [Fact]) -> Self {
        let mut index = Self { done: Operations::new(facts), ..Self::default() };
        for fact in facts {
            if let Fact::Described { topic, starts, .. } = fact {
                for (partition, start) in starts {
                    let known = index.starts.entry((topic, *partition)).or_default();
                    *known = (*known).max(*start);
                }
            }
        }
        index.publishes(facts);
        index.hand_outs(facts);
        index.settlings(facts);
        index.dead_letters(facts);
        index
    }

    fn publishes(&mut self, facts: &'a [Fact]) {
        let mut tries: HashMap<Moment, (&str, usize)> = HashMap::new();
        for (at, fact) in moments(facts) {
            match fact {
                Fact::Subscribed { topic, group, auto } => {
                    let members = self.groups.entry((topic, group)).or_default();
                    members.subscribed.push(at);
                    members.auto = *auto;
                }
                Fact::PublishSent { event, topic, key, data } => {
                    let sent = self.sent.entry(event).or_insert_with(|| Sent {
                        at,
                        topic,
                        key: key.as_deref(),
                        data,
                        tries: Vec::new(),
                    });
                    tries.insert(at, (event, sent.tries.len()));
                    let end = end_of(at, None, &self.done.kills);
                    sent.tries.push(Try { sent: at, end, accepted: None });
                }
                Fact::Published { sent, event, position, duplicate } => {
                    if let Some((_, number)) = tries.get(sent)
                        && let Some(of) = self.sent.get_mut(event.as_str())
                    {
                        let one = &mut of.tries[*number];
                        (one.end, one.accepted) = (at, Some(*duplicate));
                        if let Some(position) = position {
                            self.positions.entry((of.topic, event)).or_insert(*position);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn hand_outs(&mut self, facts: &'a [Fact]) {
        // Whatever comes later on a stream was handed out later: after that earlier event had been sent.
        let mut streams: HashMap<(u64, Group<'_>), Moment> = HashMap::new();
        for (at, fact) in moments(facts) {
            let Fact::Delivered {
                asked,
                stream,
                at_ms,
                delivery,
                topic,
                group,
                event,
                partition,
                offset,
                attempt,
                copy_for,
                ..
            } = fact
            else {
                continue;
            };
            let place = (*partition, *offset);
            if copy_for.is_none() {
                self.positions.entry((topic, event)).or_insert(place);
            }
            let mut asked = *asked;
            if let Some(stream) = stream {
                let known = streams.entry((*stream, (topic, group))).or_default();
                asked = asked.max(*known);
                *known = asked.max(self.sent.get(event.as_str()).map_or(Moment(0), |sent| sent.at));
            }
            let of = ((topic.as_str(), group.as_str()), event.as_str(), copy_for.as_ref().map(|_| place));
            let course = self.courses.entry(of).or_default();
            self.deliveries.insert(delivery, (of, course.handed.len()));
            let handed = Handed { asked, received: at, attempt: *attempt, at_ms: *at_ms };
            course.handed.push(handed);
        }
    }

    fn settlings(&mut self, facts: &'a [Fact]) {
        let mut acks: HashMap<Moment, (Of<'_>, usize)> = HashMap::new();
        let mut verbs: HashMap<Moment, (Of<'_>, usize)> = HashMap::new();
        for (at, fact) in moments(facts) {
            match fact {
                Fact::AckSent { delivery } => {
                    if let Some((of, handed)) = self.deliveries.get(delivery.as_str()) {
                        let course = self.courses.entry(*of).or_default();
                        acks.insert(at, (*of, course.acks.len()));
                        let end = end_of(at, None, &self.done.kills);
                        course.acks.push(Ack { handed: *handed, sent: at, end, answer: None });
                    }
                }
                Fact::AckAnswered { sent, answer, .. } => {
                    if let Some((of, number)) = acks.get(sent)
                        && let Some(course) = self.courses.get_mut(of)
                    {
                        let ack = &mut course.acks[*number];
                        (ack.end, ack.answer) = (at, Some(*answer));
                    }
                }
                Fact::VerbSent { verb, delivery, at_ms } => {
                    if let Some((of, number)) = self.deliveries.get(delivery.as_str()) {
                        let course = self.courses.entry(*of).or_default();
                        let attempt = course.handed[*number].attempt;
                        verbs.insert(at, (*of, course.settlings.len()));
                        course.settlings.push(Settling {
                            verb: *verb,
                            sent: at,
                            at_ms: *at_ms,
                            handed: *number,
                            attempt,
                            answer: None,
                        });
                    }
                }
                Fact::VerbAnswered { sent, answer } => {
                    if let Some((of, number)) = verbs.get(sent)
                        && let Some(course) = self.courses.get_mut(of)
                    {
                        course.settlings[*number].answer = Some((at, *answer));
                    }
                }
                _ => {}
            }
        }
    }

    fn dead_letters(&mut self, facts: &'a [Fact]) {
        let mut last: HashMap<&str, Moment> = HashMap::new();
        for (at, fact) in moments(facts) {
            if let Fact::Browsed { topic, .. } = fact {
                last.insert(topic, at);
            }
        }
        for (at, fact) in moments(facts) {
            let Fact::Browsed { topic, rows, .. } = fact else { continue };
            for row in rows {
                let place = (row.partition, row.offset);
                self.positions.entry((topic, &row.event)).or_insert(place);
                let course = self.courses.entry(self.of_row(topic, row)).or_default();
                course.dead.get_or_insert(at);
                course.is_dead |= last.get(topic.as_str()) == Some(&at);
            }
        }
    }

    /// The course of a dead letter: that of the event itself when it lies where the event lies.
    pub(super) fn of_row(&self, topic: &'a str, row: &'a DeadRow) -> Of<'a> {
        let place = (row.partition, row.offset);
        let original = self.positions.get(&(topic, row.event.as_str())).is_none_or(|known| *known == place);
        ((topic, &row.group), &row.event, (!original).then_some(place))
    }

    /// Where a course's event lies.
    pub(super) fn place(&self, of: &Of<'_>) -> Option<Place> {
        of.2.or_else(|| self.positions.get(&(of.0.0, of.1)).copied())
    }

    /// Whether a seek that may have happened, between what took effect after `after` and what took effect before
    /// `before`, made the event due anew.
    pub(super) fn sought_between(&self, of: &Of<'_>, after: Moment, before: Moment) -> bool {
        let place = self.place(of);
        self.done.seeks_of(&of.0).any(|seek| seek.may_be_between(after, before) && seek.covers(place))
    }

    /// The same of a seek of any kind.
    pub(super) fn moved_between(&self, group: &Group<'_>, after: Moment, before: Moment) -> bool {
        self.done.seeks_of(group).any(|seek| seek.may_be_between(after, before))
    }

    /// The deletions of an event's topic that may have taken it.
    pub(super) fn deletions_of(&self, sent: &Sent<'_>) -> impl Iterator<Item = &Delete> {
        self.done.deletes_of(sent.topic).filter(|delete| delete.end > sent.at)
    }

    /// Which of the logs of its topic an event is in; `None`: it was under way while one was deleted.
    pub(super) fn era(&self, sent: &Sent<'_>) -> Option<usize> {
        let mut era = 0;
        for delete in self.done.deletes_of(sent.topic).filter(|delete| delete.happened.may()) {
            if sent.at > delete.end {
                era += 1;
            } else if sent.settled() > delete.sent {
                return None;
            }
        }
        Some(era)
    }

    /// From when on an event must come to an end for a group; `None`: it need not.
    pub(super) fn due_since(&self, group: &Group<'_>, members: &Members, event: &str) -> Option<Moment> {
        let sent = self.sent.get(event).filter(|sent| sent.topic == group.0 && sent.accepted())?;
        if self.deletions_of(sent).next().is_some() {
            return None;
        }
        // A deletion takes the groups first: even one that did not happen may have.
        let cleared = self.done.deletes_of(group.0).map(|delete| delete.end).max();
        let is_member = |at: &&Moment| **at < sent.at && cleared.is_none_or(|cleared| cleared < **at);
        members.subscribed.iter().find(is_member)?;
        let place = self.positions.get(&(group.0, event)).copied();
        let mut due = Some(sent.at);
        for seek in self.done.seeks_of(group) {
            if seek.may_skip(place, sent.at) {
                due = None;
            } else if seek.must_cover(place) {
                due = Some(seek.sent.max(sent.at));
            }
        }
        due
    }

    /// Whether the log no longer has what was at a place.
    pub(super) fn dropped_at(&self, topic: &str, (partition, offset): Place) -> bool {
        self.starts.get(&(topic, partition)).is_some_and(|start| offset < *start)
    }

    /// Whether the log no longer has an event.
    pub(super) fn dropped(&self, topic: &str, event: &str) -> bool {
        self.positions.get(&(topic, event)).is_some_and(|place| self.dropped_at(topic, *place))
    }

    /// The original's course and those of the copies.
    pub(super) fn courses_of(
        &self,
        group: Group<'a>,
        event: &'a str,
    ) -> impl Iterator<Item = (&Of<'a>, &Course)> {
        self.courses.range((group, event, None)..=(group, event, Some((u32::MAX, u64::MAX))))
    }
}
