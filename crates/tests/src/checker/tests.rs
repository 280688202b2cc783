//! Hand-made histories: a good one, and for each rule one that breaks it.

mod operations;

use super::*;
use crate::history::Moment;
use crate::{AckAnswer, DeadRow, History};

/// Builds a history of topic `t` and group `g` word by word.
#[derive(Default)]
struct Story(History);

impl Story {
    fn new() -> Self {
        let story = Self::default();
        story.subscribed("t", "g", false);
        story
    }

    fn subscribed(&self, topic: &str, group: &str, auto: bool) -> &Self {
        self.0.record(Fact::Subscribed { topic: topic.into(), group: group.into(), auto });
        self
    }

    fn sent(&self, event: &str, key: Option<&str>) -> &Self {
        let (event, key) = (event.to_owned(), key.map(str::to_owned));
        self.0.record(Fact::PublishSent { event, topic: "t".into(), key, data: "1".into() });
        self
    }

    fn accepted(&self, event: &str, offset: u64) -> &Self {
        self.answered(self.last_sent(event), event, Some((0, offset)), Some(false))
    }

    fn last_sent(&self, of: &str) -> Moment {
        let facts = self.0.facts();
        let is_it = |fact: &Fact| matches!(fact, Fact::PublishSent { event, .. } if event == of);
        Moment(facts.iter().rposition(is_it).expect("it was sent"))
    }

    fn answered(
        &self,
        sent: Moment,
        event: &str,
        position: Option<(u32, u64)>,
        duplicate: Option<bool>,
    ) -> &Self {
        self.0.record(Fact::Published { sent, event: event.into(), position, duplicate });
        self
    }

    fn published(&self, event: &str, key: Option<&str>, offset: u64) -> &Self {
        self.sent(event, key).accepted(event, offset)
    }

    fn asked(&self) -> Moment {
        self.0.record(Fact::Note("poll".into()))
    }

    fn received(&self, asked: Moment, client: &str, event: &str, offset: u64, attempt: u32) -> String {
        self.handed(asked, None, 0, client, (event, offset, attempt), None)
    }

    fn handed(
        &self,
        asked: Moment,
        stream: Option<u64>,
        at_ms: u64,
        client: &str,
        (event, offset, attempt): (&str, u64, u32),
        copy: Option<(&str, Option<&str>)>,
    ) -> String {
        let delivery = format!("{event}-{client}-{attempt}-{}-{offset}", asked.0);
        self.0.record(Fact::Delivered {
            asked,
            stream,
            at_ms,
            copy_for: copy.map(|(group, _)| group.to_owned()),
            copy_of: copy.and_then(|(_, of)| of.map(str::to_owned)),
            client: client.into(),
            delivery: delivery.clone(),
            topic: "t".into(),
            group: "g".into(),
            event: event.into(),
            data: "1".into(),
            partition: 0,
            offset,
            attempt,
        });
        delivery
    }

    fn polled(&self, client: &str, event: &str, offset: u64, attempt: u32) -> String {
        self.received(self.asked(), client, event, offset, attempt)
    }

    fn ack(&self, delivery: &str, answer: Option<AckAnswer>) -> &Self {
        let sent = self.0.record(Fact::AckSent { delivery: delivery.into() });
        if let Some(answer) = answer {
            self.0.record(Fact::AckAnswered { sent, delivery: delivery.into(), answer });
        }
        self
    }

    fn acked(&self, delivery: &str) -> &Self {
        self.ack(delivery, Some(AckAnswer::Acked))
    }

    fn browsed(&self, rows: &[(&str, u64)]) -> &Self {
        let row = |(event, offset): &(&str, u64)| DeadRow {
            group: "g".into(),
            event: (*event).into(),
            partition: 0,
            offset: *offset,
        };
        let asked = self.0.now();
        self.0.record(Fact::Browsed { asked, topic: "t".into(), rows: rows.iter().map(row).collect() });
        self
    }

    fn cursor(&self, asked: Moment, floor: u64) -> &Self {
        self.0.record(Fact::Cursor { asked, topic: "t".into(), place: "g#0".into(), floor });
        self
    }

    fn broken(&self) -> Vec<Rule> {
        let mut rules: Vec<Rule> =
            check(&self.0.facts()).into_iter().map(|violation| violation.rule).collect();
        rules.dedup();
        rules
    }
}

#[test]
fn a_history_with_retries_lost_answers_and_a_dead_letter_is_clean() {
    let story = Story::new();
    story
        .published("1", None, 0)
        .published("2", Some("k"), 1)
        .published("3", Some("k"), 2)
        .sent("lost-answer", None);
    let first = story.polled("a", "1", 0, 1);
    story.polled("b", "1", 0, 2);
    story.acked(&first);
    let asked = story.asked();
    story.received(asked, "a", "2", 1, 1);
    story.received(asked, "a", "3", 2, 1);
    let asked = story.asked();
    let second = story.received(asked, "b", "2", 1, 2);
    let third = story.received(asked, "b", "3", 2, 1);
    story.ack(&second, None).acked(&third);
    story.published("4", None, 3);
    story.polled("a", "4", 3, 1);
    story.browsed(&[("4", 3)]).browsed(&[("4", 3)]);
    let early = story.asked();
    story.cursor(story.asked(), 4).cursor(early, 3);
    assert_eq!(check(&story.0.facts()), []);
}

#[test]
fn an_accepted_event_without_an_end_is_lost_and_an_unanswered_one_is_not() {
    let story = Story::new();
    story.published("1", None, 0).sent("2", None);
    assert_eq!(story.broken(), [Rule::Lost]);
    let delivery = story.polled("a", "1", 0, 1);
    story.ack(&delivery, Some(AckAnswer::Unknown)).ack(&delivery, Some(AckAnswer::Refused));
    assert_eq!(story.broken(), [Rule::Lost]);
    story.acked(&delivery);
    assert_eq!(story.broken(), []);
}

#[test]
fn events_from_before_the_subscription_are_not_due() {
    let story = Story::default();
    story.published("1", None, 0);
    story.subscribed("t", "g", false);
    assert_eq!(story.broken(), []);
}

#[test]
fn a_delivery_asked_for_after_the_ack_breaks_a_rule_and_one_already_on_its_way_does_not() {
    let story = Story::new();
    story.published("1", None, 0);
    let delivery = story.polled("a", "1", 0, 1);
    let on_its_way = story.asked();
    story.acked(&delivery);
    story.received(on_its_way, "b", "1", 0, 2);
    assert_eq!(story.broken(), []);
    story.polled("b", "1", 0, 3);
    assert_eq!(story.broken(), [Rule::DeliveredAfterAck]);
}

#[test]
fn an_event_has_one_end_and_one_dead_letter_that_stays() {
    let story = Story::new();
    story.published("1", None, 0);
    let delivery = story.polled("a", "1", 0, 1);
    story.browsed(&[("1", 0), ("1", 0)]);
    assert_eq!(story.broken(), [Rule::DeadTwice]);

    let story = Story::new();
    story.published("1", None, 0);
    story.received(story.asked(), "a", "1", 0, 1);
    story.browsed(&[("1", 0)]).browsed(&[]);
    assert_eq!(story.broken(), [Rule::Lost, Rule::DeadVanished]);
    story.browsed(&[("1", 0)]);
    story.polled("a", "1", 0, 2);
    assert_eq!(story.broken(), [Rule::DeliveredAfterDeath, Rule::DeadVanished]);

    let story = Story::new();
    story.published("1", None, 0);
    let again = story.polled("a", "1", 0, 1);
    story.acked(&again).browsed(&[("1", 0)]);
    assert_eq!(story.broken(), [Rule::AckedAndDead]);
    drop(delivery);
}

#[test]
fn attempts_rise_and_only_a_keyed_one_may_repeat() {
    for (key, second, rules) in
        [(None, 1, &[Rule::AttemptsReset][..]), (Some("k"), 1, &[]), (Some("k"), 2, &[]), (None, 2, &[])]
    {
        let story = Story::new();
        story.published("1", key, 0);
        story.polled("a", "1", 0, 1);
        let last = story.polled("a", "1", 0, second);
        story.acked(&last);
        assert_eq!(story.broken(), rules, "{key:?} {second}");
    }
    let story = Story::new();
    story.published("1", Some("k"), 0);
    story.polled("a", "1", 0, 2);
    let last = story.polled("a", "1", 0, 1);
    story.acked(&last);
    assert_eq!(story.broken(), [Rule::AttemptsReset]);
}

#[test]
fn a_cursor_that_goes_back_is_seen() {
    let story = Story::new();
    story.cursor(story.asked(), 7).cursor(story.asked(), 7).cursor(story.asked(), 6);
    assert_eq!(story.broken(), [Rule::CursorWentBack]);
}

#[test]
fn within_a_key_nothing_overtakes_and_nothing_is_shared() {
    let overtaken = Story::new();
    overtaken.published("1", Some("k"), 0).published("2", Some("k"), 1);
    let second = overtaken.polled("a", "2", 1, 1);
    let first = overtaken.polled("a", "1", 0, 1);
    overtaken.acked(&second).acked(&first);
    assert_eq!(overtaken.broken(), [Rule::KeyOrder]);

    let shared = Story::new();
    shared.published("1", Some("k"), 0).published("2", Some("k"), 1);
    let first = shared.polled("a", "1", 0, 1);
    let second = shared.polled("b", "2", 1, 1);
    shared.acked(&first).acked(&second);
    assert_eq!(shared.broken(), [Rule::KeyOrder]);

    let one_after_the_other = Story::new();
    one_after_the_other.published("1", Some("k"), 0).published("2", Some("k"), 1).published(
        "3",
        Some("j"),
        2,
    );
    let other = one_after_the_other.polled("c", "3", 2, 1);
    let first = one_after_the_other.polled("a", "1", 0, 1);
    one_after_the_other.acked(&first).acked(&other);
    let second = one_after_the_other.polled("b", "2", 1, 1);
    one_after_the_other.acked(&second);
    assert_eq!(one_after_the_other.broken(), []);
}

#[test]
fn what_was_never_published_or_came_changed_or_elsewhere_is_seen() {
    let story = Story::new();
    story.polled("a", "ghost", 0, 1);
    assert_eq!(story.broken(), [Rule::Invented]);

    let story = Story::new();
    story.0.record(Fact::PublishSent { event: "1".into(), topic: "t".into(), key: None, data: "2".into() });
    let changed = story.polled("a", "1", 0, 1);
    story.acked(&changed);
    assert_eq!(story.broken(), [Rule::Changed]);

    let story = Story::new();
    story.published("1", None, 0).published("2", None, 0);
    let first = story.polled("a", "1", 0, 1);
    let second = story.polled("a", "2", 1, 1);
    story.acked(&first).acked(&second);
    assert_eq!(story.broken(), [Rule::PositionReused]);
}

#[test]
fn a_violation_explains_itself_with_the_record_of_its_event() {
    let story = Story::new();
    story.published("1", None, 0).published("2", None, 1);
    let facts = story.0.facts();
    let text = check(&facts)[0].explain(&facts);
    assert!(
        text.starts_with("Lost: 1 ") && text.contains("PublishSent") && !text.contains("\"2\""),
        "{text}"
    );
}
