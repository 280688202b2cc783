//! The record by event and group.

use std::collections::{BTreeMap, HashMap};

use super::Handed;
use crate::{AckAnswer, DeadRow, Fact, history::Moment};

/// What is known of one publish.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent<'a> {
    pub(super) at: Moment,
    pub(super) topic: &'a str,
    pub(super) key: Option<&'a str>,
    pub(super) data: &'a str,
    pub(super) accepted: bool,
}

/// One group's life with one event.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    pub(super) handed: Vec<Handed>,
    /// Every ack: when it was sent, when and how it was answered.
    pub(super) acks: Vec<(Moment, Option<(Moment, AckAnswer)>)>,
    /// When it was first seen among the dead letters.
    pub(super) dead: Option<Moment>,
}

impl Course {
    /// When its ack was answered 200 first.
    pub(super) fn acked(&self) -> Option<Moment> {
        self.acks
            .iter()
            .filter_map(|(_, answer)| answer.filter(|(_, how)| *how == AckAnswer::Acked))
            .map(|a| a.0)
            .min()
    }

    /// When an ack was sent first that counted, or may have.
    pub(super) fn may_be_acked(&self) -> Option<Moment> {
        let counts =
            |answer: &Option<(Moment, AckAnswer)>| answer.is_none_or(|(_, how)| how == AckAnswer::Acked);
        self.acks.iter().filter(|(_, answer)| counts(answer)).map(|(sent, _)| *sent).min()
    }
}

/// A group of a topic.
pub(super) type Group<'a> = (&'a str, &'a str);

/// The record by event and group.
#[derive(Debug, Default)]
pub(super) struct Index<'a> {
    pub(super) sent: BTreeMap<&'a str, Sent<'a>>,
    pub(super) groups: BTreeMap<Group<'a>, Moment>,
    pub(super) courses: BTreeMap<(Group<'a>, &'a str), Course>,
    /// Partition and offset of an event, from whatever told them first.
    pub(super) positions: HashMap<(&'a str, &'a str), (u32, u64)>,
}

impl<'a> Index<'a> {
    pub(super) fn new(facts: &'a [Fact]) -> Self {
        let mut index = Self::default();
        let mut deliveries: HashMap<&str, (Group<'_>, &str)> = HashMap::new();
        let mut acks: HashMap<Moment, ((Group<'_>, &str), usize)> = HashMap::new();
        for (at, fact) in facts.iter().enumerate().map(|(at, fact)| (Moment(at), fact)) {
            match fact {
                Fact::Subscribed { topic, group } => {
                    index.groups.entry((topic, group)).or_insert(at);
                }
                Fact::PublishSent { event, topic, key, data } => {
                    let sent = Sent { at, topic, key: key.as_deref(), data, accepted: false };
                    index.sent.entry(event).or_insert(sent);
                }
                Fact::Published { event, position } => {
                    if let Some(sent) = index.sent.get_mut(event.as_str()) {
                        sent.accepted = true;
                        if let Some(position) = position {
                            index.positions.entry((sent.topic, event)).or_insert(*position);
                        }
                    }
                }
                Fact::Delivered {
                    asked, delivery, topic, group, event, partition, offset, attempt, ..
                } => {
                    let of = ((topic.as_str(), group.as_str()), event.as_str());
                    deliveries.insert(delivery, of);
                    index.positions.entry((topic, event)).or_insert((*partition, *offset));
                    let handed = Handed { asked: *asked, received: at, attempt: *attempt };
                    index.courses.entry(of).or_default().handed.push(handed);
                }
                Fact::AckSent { delivery } => {
                    if let Some(of) = deliveries.get(delivery.as_str()) {
                        let course = index.courses.entry(*of).or_default();
                        acks.insert(at, (*of, course.acks.len()));
                        course.acks.push((at, None));
                    }
                }
                Fact::AckAnswered { sent, answer, .. } => {
                    if let Some((of, number)) = acks.get(sent)
                        && let Some(course) = index.courses.get_mut(of)
                    {
                        course.acks[*number].1 = Some((at, *answer));
                    }
                }
                Fact::Browsed { topic, rows } => {
                    for DeadRow { group, event, partition, offset } in rows {
                        index.positions.entry((topic, event)).or_insert((*partition, *offset));
                        index.courses.entry(((topic, group), event)).or_default().dead.get_or_insert(at);
                    }
                }
                Fact::Cursor { .. } | Fact::Note(_) => {}
            }
        }
        index
    }
}
