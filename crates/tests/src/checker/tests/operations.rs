//! Hand-made histories of what operators and clients do beside: what each allows, and what it does not.

use std::collections::BTreeMap;

use super::*;
use crate::{SeekTo, Verb};

impl Story {
    fn killed(&self) -> &Self {
        self.0.record(Fact::Killed);
        self
    }

    fn seek_sent(&self, to: SeekTo) -> Moment {
        self.0.record(Fact::SeekSent { topic: "t".into(), group: "g".into(), to })
    }

    fn sought(&self, offset: u64, generation: u64) -> &Self {
        let to = BTreeMap::from([(0, offset)]);
        let sent = self.seek_sent(SeekTo::Offsets(to.clone()));
        self.0.record(Fact::SeekAnswered { sent, generation, to });
        self
    }

    fn generation(&self, generation: u64) -> &Self {
        let asked = self.0.now();
        self.0.record(Fact::Generation { asked, topic: "t".into(), group: "g".into(), generation });
        self
    }

    fn replayed(&self, replayed: Option<u64>) -> &Self {
        let sent = self.0.record(Fact::ReplaySent { topic: "t".into() });
        if replayed.is_some() {
            self.0.record(Fact::ReplayAnswered { sent, replayed });
        }
        self
    }

    fn deleted(&self, letters: bool, done: Option<bool>) -> &Self {
        let sent = self.0.record(Fact::DeleteSent { topic: "t".into(), letters });
        if let Some(done) = done {
            self.0.record(Fact::DeleteAnswered { sent, done });
        }
        self
    }

    fn described(&self, incarnation: Option<&str>, start: u64) -> &Self {
        let asked = self.0.now();
        let (topic, incarnation) = ("t".into(), incarnation.map(str::to_owned));
        self.0.record(Fact::Described { asked, topic, incarnation, starts: BTreeMap::from([(0, start)]) });
        self
    }

    fn dropped(&self, count: u64) -> &Self {
        let asked = self.0.now();
        self.0.record(Fact::Dropped { asked, count });
        self
    }

    fn verb(&self, verb: Verb, delivery: &str, at_ms: u64, answer: Option<AckAnswer>) -> &Self {
        let sent = self.0.record(Fact::VerbSent { verb, delivery: delivery.into(), at_ms });
        if let Some(answer) = answer {
            self.0.record(Fact::VerbAnswered { sent, answer });
        }
        self
    }

    fn rejected(&self, delivery: &str, answer: Option<AckAnswer>) -> &Self {
        self.verb(Verb::Reject, delivery, 0, answer)
    }

    /// A copy that is polled.
    fn copied(&self, event: &str, offset: u64, attempt: u32) -> String {
        self.handed(self.asked(), None, 0, "a", (event, offset, attempt), Some(("default/lb/g", None)))
    }

    /// A copy that is polled and says of what it is one.
    fn copied_of(&self, of: &str, event: &str, offset: u64) -> String {
        self.handed(self.asked(), None, 0, "a", (event, offset, 1), Some(("default/lb/g", Some(of))))
    }

    /// One event that was delivered and acknowledged.
    fn with_one_done() -> Self {
        let story = Self::new();
        story.published("1", None, 0);
        story.acked(&story.polled("a", "1", 0, 1));
        story
    }

    /// One event that is a dead letter.
    fn with_one_dead() -> Self {
        let story = Self::new();
        story.published("1", None, 0);
        story.rejected(&story.polled("a", "1", 0, 1), Some(AckAnswer::Acked)).browsed(&[("1", 0)]);
        story
    }
}

#[test]
fn what_a_seek_goes_back_to_comes_again_at_attempt_one_and_must_end_again() {
    let story = Story::with_one_done();
    story.sought(0, 1);
    assert_eq!(story.broken(), [Rule::Lost], "it is due anew");
    let again = story.polled("a", "1", 0, 1);
    story.acked(&again);
    assert_eq!(story.broken(), []);

    let story = Story::with_one_done();
    story.sought(0, 1);
    story.acked(&story.polled("a", "1", 0, 2));
    assert_eq!(story.broken(), [Rule::AttemptsKept]);

    let story = Story::with_one_done();
    story.sought(0, 1).killed();
    story.acked(&story.polled("a", "1", 0, 2));
    assert_eq!(story.broken(), [], "the first may have gone with the kill");

    let story = Story::with_one_done();
    story.sought(1, 1);
    story.polled("a", "1", 0, 2);
    assert_eq!(story.broken(), [Rule::DeliveredAfterAck], "it lies before the target");
}

#[test]
fn a_seek_without_an_answer_is_decided_by_the_generation_and_else_may_be_either() {
    for (seen, second, rules) in [
        (None, false, &[][..]),
        (None, true, &[]),
        (Some(0), false, &[]),
        (Some(0), true, &[Rule::DeliveredAfterAck, Rule::AttemptsReset]),
        (Some(1), false, &[Rule::Lost]),
        (Some(1), true, &[]),
    ] {
        let story = Story::with_one_done();
        story.seek_sent(SeekTo::Earliest);
        story.killed();
        if let Some(generation) = seen {
            story.generation(generation);
        }
        if second {
            story.acked(&story.polled("a", "1", 0, 1));
        }
        assert_eq!(story.broken(), rules, "{seen:?} {second}");
    }
}

#[test]
fn what_a_seek_passes_over_is_not_lost_and_what_comes_after_it_is() {
    for (to, answered, rules) in [
        (SeekTo::Latest, false, &[][..]),
        (SeekTo::Offsets(BTreeMap::from([(0, 1)])), true, &[]),
        (SeekTo::Offsets(BTreeMap::from([(0, 0)])), true, &[Rule::Lost]),
        (SeekTo::Offsets(BTreeMap::from([(1, 9)])), true, &[Rule::Lost]),
    ] {
        let story = Story::new();
        story.published("1", None, 0);
        let sent = story.seek_sent(to.clone());
        if answered {
            story.0.record(Fact::SeekAnswered { sent, generation: 1, to: BTreeMap::new() });
        }
        story.killed();
        assert_eq!(story.broken(), rules, "{to:?}");
        story.published("2", None, 5);
        assert!(story.broken().contains(&Rule::Lost), "{to:?}");
    }
}

#[test]
fn a_seek_that_was_answered_stays_and_makes_older_ids_void() {
    let story = Story::with_one_done();
    story.sought(1, 1).killed().generation(0);
    assert_eq!(story.broken(), [Rule::Forgotten]);

    let story = Story::new();
    story.published("1", None, 0);
    let old = story.polled("a", "1", 0, 1);
    story.sought(0, 1);
    story.ack(&old, Some(AckAnswer::Unknown));
    let new = story.polled("a", "1", 0, 1);
    story.acked(&new);
    assert_eq!(story.broken(), []);
    story.acked(&old);
    assert_eq!(story.broken(), [Rule::VoidIdAnswered]);
}

#[test]
fn a_cursor_falls_to_where_a_seek_went_and_no_lower() {
    for (floor, rules) in [(3, &[][..]), (2, &[Rule::CursorWentBack])] {
        let story = Story::new();
        story.cursor(story.asked(), 7).sought(3, 1).cursor(story.asked(), floor);
        assert_eq!(story.broken(), rules, "{floor}");
    }
}

#[test]
fn after_a_seek_the_order_of_a_key_begins_anew() {
    for (first_to, rules) in [("a", &[][..]), ("b", &[Rule::KeyOrder])] {
        let story = Story::new();
        story.published("1", Some("k"), 0).published("2", Some("k"), 1);
        story.polled("a", "1", 0, 1);
        story.polled("a", "2", 1, 1);
        story.sought(0, 1);
        let one = story.polled(first_to, "1", 0, 1);
        let two = story.polled("a", "2", 1, 1);
        story.acked(&one).acked(&two);
        assert_eq!(story.broken(), rules, "{first_to}");
    }
    let story = Story::new();
    story.published("1", Some("k"), 0).published("2", Some("k"), 1);
    let before = story.polled("a", "1", 0, 1);
    story.acked(&before).acked(&story.polled("a", "2", 1, 1)).sought(0, 1);
    let two = story.polled("a", "2", 1, 1);
    let one = story.polled("a", "1", 0, 1);
    story.acked(&two).acked(&one);
    assert_eq!(story.broken(), [Rule::KeyOrder], "what was done before the seek is before it again");
}

#[test]
fn what_was_asked_for_before_a_seek_was_answered_may_have_come_after_it() {
    let story = Story::new();
    story.published("1", Some("k"), 0).published("2", Some("k"), 1);
    let to = BTreeMap::from([(0, 0)]);
    let sent = story.seek_sent(SeekTo::Offsets(to.clone()));
    let asked = story.asked();
    story.0.record(Fact::SeekAnswered { sent, generation: 1, to });
    let one = story.received(asked, "a", "1", 0, 1);
    let two = story.polled("a", "2", 1, 1);
    story.acked(&one).acked(&two);
    assert_eq!(story.broken(), []);
}

#[test]
fn what_is_behind_a_dead_letter_of_its_key_may_come_also_when_nobody_saw_it_dead() {
    for (replayed, rules) in [(true, &[][..]), (false, &[Rule::KeyOrder])] {
        let story = Story::new();
        story.published("1", Some("k"), 0).published("2", Some("k"), 1);
        let first = story.polled("a", "1", 0, 6);
        story.acked(&story.polled("b", "2", 1, 1));
        if replayed {
            story.replayed(Some(1));
            story.acked(&story.copied("1", 5, 1));
        } else {
            story.acked(&first);
        }
        assert_eq!(story.broken(), rules, "{replayed}");
    }
}

#[test]
fn what_is_read_late_from_a_stream_may_have_been_handed_out_before_its_key_moved() {
    for (read_late, rules) in [(true, &[][..]), (false, &[Rule::KeyOrder])] {
        let story = Story::new();
        story.published("1", Some("k"), 0).published("2", Some("k"), 1);
        let opened = story.asked();
        story.handed(opened, Some(1), 0, "a", ("1", 0, 1), None);
        let moved = story.polled("b", "1", 0, 2);
        let asked = if read_late { opened } else { story.asked() };
        story.handed(asked, Some(2), 0, "a", ("2", 1, 1), None);
        story.acked(&moved).acked(&story.polled("b", "2", 1, 1));
        assert_eq!(story.broken(), rules, "{read_late}");
    }
}

#[test]
fn a_kill_takes_a_key_from_a_stream_and_not_from_a_poll() {
    for (stream, rules) in [(None, &[][..]), (Some(1), &[Rule::KeyOrder])] {
        let story = Story::new();
        story.published("1", Some("k"), 0).published("2", Some("k"), 1);
        story.handed(story.asked(), stream, 0, "a", ("1", 0, 1), None);
        story.killed();
        let second = story.polled("a", "2", 1, 1);
        let first = story.polled("a", "1", 0, 2);
        story.acked(&first).acked(&second);
        assert_eq!(story.broken(), rules, "{stream:?}");
    }
}

#[test]
fn a_replay_delivers_a_copy_at_attempt_one_and_the_dead_letter_goes() {
    let story = Story::with_one_dead();
    story.browsed(&[]);
    assert_eq!(story.broken(), [Rule::Lost, Rule::DeadVanished], "nothing was replayed");

    let story = Story::with_one_dead();
    story.replayed(Some(1)).browsed(&[]);
    assert_eq!(story.broken(), [Rule::Lost], "the copy has not come");
    let copy = story.copied("1", 5, 1);
    assert_eq!(story.broken(), [Rule::Lost], "and has not ended");
    story.acked(&copy);
    assert_eq!(story.broken(), []);
    story.copied("1", 5, 2);
    assert_eq!(story.broken(), [Rule::DeliveredAfterAck]);

    let story = Story::with_one_dead();
    story.replayed(Some(1)).browsed(&[]);
    story.acked(&story.copied("1", 5, 2));
    assert_eq!(story.broken(), [Rule::AttemptsKept]);

    let story = Story::with_one_dead();
    story.replayed(Some(1)).browsed(&[("1", 0)]);
    assert_eq!(story.broken(), [Rule::ReplayLeftIt]);

    let story = Story::with_one_dead();
    story.replayed(Some(1)).browsed(&[]);
    story.rejected(&story.copied("1", 5, 1), Some(AckAnswer::Acked)).browsed(&[("1", 5)]);
    assert_eq!(story.broken(), [], "a copy can die too");
}

#[test]
fn a_copy_comes_from_a_replay_to_its_group() {
    let story = Story::with_one_dead();
    story.copied("1", 5, 1);
    assert_eq!(story.broken(), [Rule::CopyMisdelivered]);
    let story = Story::with_one_dead();
    story.replayed(Some(1)).browsed(&[]);
    story.acked(&story.copied("1", 5, 1));
    story.handed(story.asked(), None, 0, "a", ("1", 5, 2), Some(("default/lb/other", None)));
    assert!(story.broken().contains(&Rule::CopyMisdelivered));
}

#[test]
fn a_dead_letter_is_copied_once_whether_its_replay_was_cut_or_not() {
    let story = Story::with_one_dead();
    story.replayed(Some(1));
    story.acked(&story.copied("1", 5, 1));
    assert_eq!(story.broken(), []);
    story.acked(&story.copied("1", 6, 1));
    assert_eq!(story.broken(), [Rule::ReplayedTwice]);

    let story = Story::with_one_dead();
    story.replayed(None).killed().browsed(&[]);
    story.acked(&story.copied("1", 5, 1));
    assert_eq!(story.broken(), [], "the start after the kill has finished it");
    story.acked(&story.copied("1", 6, 1));
    assert_eq!(story.broken(), [Rule::ReplayedTwice]);

    for (sought, rules) in [(true, &[][..]), (false, &[Rule::ReplayedTwice])] {
        let story = Story::with_one_dead();
        story.replayed(None).killed().replayed(Some(1)).browsed(&[]);
        if sought {
            story.sought(0, 1);
        }
        // By their number alone they could be copies of different deaths.
        story.copied_of("7-0-0", "1", 5);
        story.copied_of("7-0-0", "1", 6);
        let broken = story.broken();
        assert_eq!(broken.contains(&Rule::ReplayedTwice), !rules.is_empty(), "{sought}: {broken:?}");
    }
}

#[test]
fn a_reject_that_was_answered_is_a_dead_letter_and_one_that_was_not_may_be() {
    let start = || {
        let story = Story::new();
        story.published("1", None, 0);
        let delivery = story.polled("a", "1", 0, 1);
        (story, delivery)
    };
    let (story, delivery) = start();
    story.rejected(&delivery, Some(AckAnswer::Acked)).browsed(&[]);
    assert_eq!(story.broken(), [Rule::Lost, Rule::RejectLost]);

    for answer in [None, Some(AckAnswer::Refused)] {
        let (story, delivery) = start();
        story.rejected(&delivery, answer).killed().browsed(&[("1", 0)]);
        assert_eq!(story.broken(), [], "it took effect");
        let (story, delivery) = start();
        story.rejected(&delivery, answer).killed().browsed(&[]);
        assert_eq!(story.broken(), [Rule::Lost], "it did not, and nothing else came");
        story.acked(&story.polled("a", "1", 0, 2));
        assert_eq!(story.broken(), []);
    }

    let (story, delivery) = start();
    story.rejected(&delivery, Some(AckAnswer::Acked));
    story.polled("a", "1", 0, 2);
    story.browsed(&[("1", 0)]);
    assert_eq!(story.broken(), [Rule::DeliveredAfterDeath]);

    let (story, delivery) = start();
    story.rejected(&delivery, Some(AckAnswer::Acked)).acked(&delivery).browsed(&[("1", 0)]);
    assert_eq!(story.broken(), [Rule::AckedAndDead]);
}

#[test]
fn what_is_given_back_comes_with_the_next_attempt_and_not_too_early() {
    for (answer, attempt, at_ms, rules) in [
        (Some(AckAnswer::Acked), 2, 600, &[][..]),
        (Some(AckAnswer::Acked), 2, 300, &[Rule::NackedTooEarly]),
        (Some(AckAnswer::Acked), 1, 600, &[Rule::NackUncounted]),
        // Without an answer, or refused, nothing was promised; of a key a number may come twice.
        (None, 1, 300, &[]),
        (Some(AckAnswer::Unknown), 1, 300, &[]),
    ] {
        let story = Story::new();
        story.published("1", Some("k"), 0);
        let delivery = story.polled("a", "1", 0, 1);
        story.verb(Verb::Nack { delay_ms: Some(500) }, &delivery, 100, answer);
        let again = story.handed(story.asked(), None, at_ms, "a", ("1", 0, attempt), None);
        story.acked(&again);
        assert_eq!(story.broken(), rules, "{answer:?} {attempt} {at_ms}");
    }
}

#[test]
fn nothing_comes_from_a_deleted_topic_and_the_next_one_begins_anew() {
    let start = || {
        let story = Story::new();
        story.published("1", None, 0).described(Some("one"), 0);
        story
    };
    let story = start();
    story.deleted(false, Some(true));
    story.subscribed("t", "g", false).published("2", None, 0);
    story.acked(&story.polled("a", "2", 0, 1));
    story.cursor(story.asked(), 1);
    assert_eq!(story.broken(), [], "the old event is gone, its position is the new one's");
    story.polled("a", "1", 0, 1);
    assert_eq!(story.broken(), [Rule::CameFromTheDeleted]);

    let story = start();
    story.deleted(false, Some(true)).subscribed("t", "g", false).published("2", None, 0);
    assert_eq!(story.broken(), [Rule::Lost], "what comes after it is due again");

    let story = start();
    story.deleted(false, Some(true)).described(Some("one"), 0);
    assert_eq!(story.broken(), [Rule::Forgotten]);

    let story = start();
    story.cursor(story.asked(), 7).deleted(false, Some(true)).cursor(story.asked(), 0);
    assert_eq!(story.broken(), [], "cursors begin anew");
}

#[test]
fn a_deletion_without_an_answer_is_decided_by_the_log_that_is_there_afterwards() {
    for (seen, rules) in [
        (Some("one"), &[][..]),
        (Some("two"), &[Rule::CameFromTheDeleted]),
        (None, &[Rule::CameFromTheDeleted]),
    ] {
        let story = Story::new();
        story.published("1", None, 0).described(Some("one"), 0).deleted(false, None).killed();
        story.described(seen, 0).subscribed("t", "g", false);
        story.acked(&story.polled("a", "1", 0, 1));
        assert_eq!(story.broken(), rules, "{seen:?}");
    }
}

#[test]
fn dead_letters_go_with_their_topic_only_when_that_was_asked_for() {
    for (letters, rules) in [(true, &[][..]), (false, &[Rule::DeadVanished])] {
        let story = Story::with_one_dead();
        story.deleted(letters, Some(true)).browsed(&[]);
        assert_eq!(story.broken(), rules, "{letters}");
    }
}

#[test]
fn what_the_backlog_limits_drop_is_beyond_them_and_counted() {
    let start = |limit| {
        let story = Story::new();
        story.0.record(Fact::Limited { bytes: limit });
        story.dropped(0).described(Some("one"), 0);
        for number in 0..4 {
            story.published(&number.to_string(), None, number);
        }
        for number in 2..4 {
            story.acked(&story.polled("a", &number.to_string(), number, 1));
        }
        story
    };
    let story = start(2_000);
    assert_eq!(story.broken(), [Rule::Lost]);
    story.described(Some("one"), 2);
    assert_eq!(story.broken(), [], "nobody has asked for the count yet");
    story.dropped(1);
    assert_eq!(story.broken(), [Rule::DropUncounted]);

    let story = start(2_000);
    story.described(Some("one"), 2).dropped(2);
    assert_eq!(story.broken(), []);

    let story = start(2_000);
    story.described(Some("one"), 2).killed().dropped(0);
    assert_eq!(story.broken(), [], "the counter died with the process");

    let story = start(1 << 20);
    story.described(Some("one"), 2).dropped(2);
    assert_eq!(story.broken(), [Rule::DroppedWithinLimits]);

    let story = start(2_000);
    story.described(Some("one"), 1).dropped(1);
    assert_eq!(story.broken(), [Rule::Lost], "one of them is still in the log");
}

#[test]
fn an_event_that_is_published_twice_is_stored_once() {
    let start = |first: Option<bool>| {
        let story = Story::new();
        story.sent("1", None);
        let sent = story.last_sent("1");
        if first.is_some() {
            story.answered(sent, "1", Some((0, 0)), first);
        } else {
            story.killed();
        }
        story.sent("1", None);
        story
    };
    for (first, second, offset, rules) in [
        (Some(false), true, 0, &[][..]),
        (Some(false), false, 0, &[Rule::StoredTwice]),
        (Some(false), true, 1, &[Rule::PositionReused]),
        // A lost answer may have been either, and the second one says which.
        (None, true, 0, &[]),
        (None, false, 0, &[]),
        (Some(true), true, 0, &[Rule::DuplicateOfNone]),
    ] {
        let story = start(first);
        story.answered(story.last_sent("1"), "1", Some((0, offset)), Some(second));
        story.acked(&story.polled("a", "1", 0, 1));
        assert_eq!(story.broken(), rules, "{first:?} {second} {offset}");
    }
    let story = Story::new();
    story.sent("1", None);
    story.answered(story.last_sent("1"), "1", Some((0, 0)), Some(true));
    story.acked(&story.polled("a", "1", 0, 1));
    assert_eq!(story.broken(), [Rule::DuplicateOfNone]);
}

#[test]
fn a_group_that_acknowledges_by_itself_gets_it_at_most_once_and_misses_it_only_around_a_kill() {
    let story = Story::default();
    story.subscribed("t", "g", true).published("1", Some("k"), 0).killed();
    assert_eq!(story.broken(), []);
    story.published("2", Some("k"), 1);
    assert_eq!(story.broken(), [Rule::Lost]);
    story.polled("a", "2", 1, 1);
    assert_eq!(story.broken(), []);
    story.polled("a", "1", 0, 1);
    assert_eq!(story.broken(), [Rule::KeyOrder]);

    let story = Story::default();
    story.subscribed("t", "g", true).published("1", None, 0);
    story.polled("a", "1", 0, 1);
    story.polled("a", "1", 0, 2);
    assert_eq!(story.broken(), [Rule::CameTwice]);
}

#[test]
fn on_a_stream_what_comes_behind_a_later_event_was_handed_out_later() {
    for (later_first, rules) in [(false, &[][..]), (true, &[Rule::DeliveredAfterAck])] {
        let story = Story::new();
        story.published("1", None, 0);
        let opened = story.asked();
        let first = story.polled("b", "1", 0, 1);
        story.acked(&first).published("2", None, 1);
        if later_first {
            story.acked(&story.handed(opened, Some(1), 0, "a", ("2", 1, 1), None));
        }
        story.handed(opened, Some(1), 0, "a", ("1", 0, 2), None);
        story.acked(&story.polled("b", "2", 1, 2));
        assert_eq!(story.broken(), rules, "{later_first}");
    }
}
