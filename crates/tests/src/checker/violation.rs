//! The rules, and what is said when one is broken.

use std::collections::BTreeSet;

use crate::Fact;

/// What was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// An event that was answered 202 reached no end for a group that was there before it.
    Lost,
    /// A delivery was asked for after the event's ack had been answered 200.
    DeliveredAfterAck,
    /// A delivery was asked for after the event had been seen among the dead letters.
    DeliveredAfterDeath,
    /// An event was both acknowledged and dead-lettered for one group.
    AckedAndDead,
    /// An event is more than once among a group's dead letters.
    DeadTwice,
    /// A dead letter that had been seen was gone later.
    DeadVanished,
    /// An attempt number went back, or came twice for an event without a key.
    AttemptsReset,
    /// A cursor went back.
    CursorWentBack,
    /// An event overtook an earlier one of its key, or both were with different clients.
    KeyOrder,
    /// An event was received that nobody had published to that topic.
    Invented,
    /// An event's data came back changed.
    Changed,
    /// Two events have one position, or one event two.
    PositionReused,
    /// A copy, or an event that a seek made due anew, did not begin at attempt 1.
    AttemptsKept,
    /// An event came twice to a group that acknowledges by itself.
    CameTwice,
    /// What was given back came with the attempt it had.
    NackUncounted,
    /// What was given back came before its delay was over.
    NackedTooEarly,
    /// A reject was answered 200 and there is no dead letter.
    RejectLost,
    /// A replay that took every dead letter left one.
    ReplayLeftIt,
    /// More copies of an event came than it died.
    ReplayedTwice,
    /// A replayed copy came to another group, or out of nothing.
    CopyMisdelivered,
    /// An id from before a seek was answered as a live one.
    VoidIdAnswered,
    /// What an operator was answered was undone later.
    Forgotten,
    /// An event came from a log that had been deleted.
    CameFromTheDeleted,
    /// The backlog limits dropped something although nothing was beyond them.
    DroppedWithinLimits,
    /// The backlog limits dropped something and did not count it.
    DropUncounted,
    /// An event that was published twice was stored twice.
    StoredTwice,
    /// A publish was answered as a duplicate of nothing.
    DuplicateOfNone,
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// The event it is about; empty when it is about none.
    pub event: String,
    /// What exactly.
    pub detail: String,
}

impl Violation {
    pub(super) fn new(rule: Rule, event: &str, detail: impl Into<String>) -> Self {
        Self { rule, event: event.to_owned(), detail: detail.into() }
    }

    /// The violation with everything that the record has about its event.
    pub fn explain(&self, facts: &[Fact]) -> String {
        let event = self.event.as_str();
        let deliveries: BTreeSet<&str> = facts
            .iter()
            .filter_map(|fact| match fact {
                Fact::Delivered { delivery, event: of, .. } if of == event => Some(delivery.as_str()),
                _ => None,
            })
            .collect();
        let topics: BTreeSet<&str> = facts
            .iter()
            .filter_map(|fact| match fact {
                Fact::PublishSent { event: of, topic, .. } if of == event => Some(topic.as_str()),
                _ => None,
            })
            .collect();
        let concerns = |fact: &Fact| match fact {
            Fact::PublishSent { event: of, .. }
            | Fact::Published { event: of, .. }
            | Fact::Delivered { event: of, .. } => of == event,
            Fact::AckSent { delivery }
            | Fact::AckAnswered { delivery, .. }
            | Fact::VerbSent { delivery, .. } => deliveries.contains(delivery.as_str()),
            Fact::VerbAnswered { sent, .. } => {
                matches!(&facts[sent.0], Fact::VerbSent { delivery, .. } if deliveries.contains(delivery.as_str()))
            }
            Fact::Browsed { rows, .. } => rows.iter().any(|row| row.event == event),
            // What operators do to the event's topic.
            Fact::SeekSent { topic, .. } | Fact::ReplaySent { topic } | Fact::DeleteSent { topic, .. } => {
                topics.contains(topic.as_str())
            }
            Fact::SeekAnswered { sent, .. }
            | Fact::ReplayAnswered { sent, .. }
            | Fact::DeleteAnswered { sent, .. } => match &facts[sent.0] {
                Fact::SeekSent { topic, .. }
                | Fact::ReplaySent { topic }
                | Fact::DeleteSent { topic, .. } => topics.contains(topic.as_str()),
                _ => false,
            },
            Fact::Subscribed { .. }
            | Fact::Cursor { .. }
            | Fact::Generation { .. }
            | Fact::Described { .. }
            | Fact::Dropped { .. }
            | Fact::StreamClosed
            | Fact::Limited { .. } => false,
            Fact::Killed | Fact::Note(_) => true,
        };
        let mut text = format!("{:?}: {event} {}\n", self.rule, self.detail);
        for (moment, fact) in facts.iter().enumerate().filter(|(_, fact)| concerns(fact)) {
            // Of a browse only the row matters.
            let shown = match fact {
                Fact::Browsed { asked, topic, rows } => {
                    let rows: Vec<_> = rows.iter().filter(|row| row.event == event).collect();
                    format!("Browsed {topic}, asked at {}: {rows:?}", asked.0)
                }
                other => format!("{other:?}"),
            };
            let shown: String = shown.chars().take(600).collect();
            text.push_str(&format!("    {moment}: {shown}\n"));
        }
        text
    }
}
