//! Replay and discard of dead letters: to the group that failed, in order, and without losing one.

use std::{collections::BTreeMap, time::Duration};

use mesh_base::BackendErrorKind;
use mesh_delivery::{
    AskedSettings, EndReason, GroupId, GroupKind, GroupSelector, LetterSelector, LettersError, Mode,
    REPLAY_GROUP, REPLAY_POSITION, Replayed, SettleOutcome, StartAt, Subscribe,
};
use mesh_frame::{EventBuilder, Filter, GroupName, InstanceId, Offset, PartitionId, TopicName};
use mesh_state::shared::{DeadLetter, DeadLetterBody, Unknown};
use mesh_storage::{AppendItem, faulty::Fault};

use crate::rig::{DEADLINE, Got, Rig, anybody, client, event, events, quick, request, tenant, topic};

fn all() -> LetterSelector {
    LetterSelector::of(topic())
}

fn replayed(replayed: usize) -> Replayed {
    Replayed { replayed, ..Replayed::default() }
}

/// One attempt, so that a lock that ran out is the end.
fn once() -> AskedSettings {
    AskedSettings { max_attempts: Some(1), ..quick() }
}

fn patient() -> AskedSettings {
    AskedSettings { ack_timeout_ms: Some(30_000), max_attempts: Some(100), ..quick() }
}

async fn letters(rig: &Rig) -> usize {
    rig.dispatcher.dead_letters(&topic(), 1_000).await.expect("browsed").len()
}

/// Lets everything that `name` can get now become a dead letter.
async fn kill(rig: &Rig, name: &str, count: usize) {
    let mut taken = 0;
    while taken < count {
        taken += rig.poll(name, 100, 2_000).await.len();
    }
    rig.until("the dead letters", || rig.dispatcher.pending_count() == 0).await;
}

/// Receives and acknowledges. The group of `c` is patient from now on: however late an ack is, nothing dies.
async fn receive(rig: &Rig, name: &str, count: usize) -> Vec<Got> {
    if name == "c" {
        rig.subscribe("c", Mode::LoadBalance, patient()).await;
    }
    let mut got = Vec::new();
    while got.len() < count {
        let batch = rig.poll(name, 100, 2_000).await;
        assert!(!batch.is_empty(), "{count} wanted, got {:?}", events(&got));
        rig.ack(&batch.iter().collect::<Vec<_>>()).await;
        got.extend(batch);
    }
    got
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_goes_to_the_group_that_failed_alone_and_starts_anew() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    rig.subscribe("d", Mode::Broadcast, AskedSettings::default()).await;
    // A shared group and a client's group of the same name are two.
    rig.subscribe("default", Mode::Broadcast, AskedSettings::default()).await;
    rig.publish(event("1", None)).await;
    receive(&rig, "d", 1).await;
    receive(&rig, "default", 1).await;
    kill(&rig, "c", 1).await;
    let letters_handle = rig.dispatcher.letters();
    assert_eq!(letters_handle.would_replay(&all(), 10).await.expect("counted"), replayed(1));
    assert_eq!(letters_handle.replay(&all(), 10).await.expect("replayed"), replayed(1));
    assert_eq!(letters(&rig).await, 0, "a replayed entry leaves browse at once");
    assert_eq!(letters_handle.replay(&all(), 10).await.expect("nothing"), replayed(0));
    let answer =
        rig.dispatcher.poll(&anybody(), &client("c"), 1, Duration::from_secs(2)).await.expect("an answer");
    let delivery = &answer.deliveries()[0];
    let copy = &delivery.record.record().event;
    assert_eq!((copy.id(), delivery.attempt), ("1", 1));
    assert_eq!(copy.attribute(REPLAY_GROUP), Some("default/lb/default"));
    assert_eq!(copy.attribute("emdlreason"), None);
    let position = copy.attribute(REPLAY_POSITION).expect("it says of which event it is");
    assert!(position.ends_with("-0-0"), "{position}");
    for other in ["d", "default"] {
        assert_eq!(rig.poll(other, 10, 50).await.len(), 0, "{other} is not the group that failed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_that_the_filters_do_not_want_any_more_stays() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    rig.publish(event("keep", None)).await;
    rig.publish(event("other", None)).await;
    kill(&rig, "c", 2).await;
    let filter = serde_json::json!({"exact": {"id": "keep"}});
    let filter = Filter::parse(&filter).expect("a filter");
    rig.subscribe("c", Mode::LoadBalance, AskedSettings { filters: Some(vec![filter]), ..patient() }).await;
    let would = rig.dispatcher.letters().would_replay(&all(), 10).await.expect("looked at");
    let done = rig.dispatcher.letters().replay(&all(), 10).await.expect("replayed");
    let wanted = Replayed { replayed: 1, filtered: 1, ..Replayed::default() };
    assert_eq!((would, done), (wanted, wanted));
    let got = rig.poll("c", 10, 2_000).await;
    assert_eq!(events(&got), ["keep"]);
    assert_eq!(letters(&rig).await, 1, "the other one stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_keeps_the_order_of_a_key_and_selectors_choose() {
    let rig = Rig::with(20_000, 3).await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    for id in 0..160 {
        rig.publish(event(&id.to_string(), (id < 12).then_some("k"))).await;
    }
    // The events of the key wait for the end of each other: they die one after the other.
    while letters(&rig).await < 160 {
        rig.poll("c", 300, 100).await;
    }
    rig.until("the dead letters", || rig.dispatcher.pending_count() == 0).await;
    let one = LetterSelector { event_id: Some("7".to_owned()), ..all() };
    let handle = rig.dispatcher.letters();
    assert_eq!(handle.would_discard(&one, 10).await.expect("counted"), 1);
    assert_eq!(handle.discard(&one, 10).await.expect("discarded"), 1);
    let nobody = LetterSelector { group: Some(GroupName::new("nobody").expect("legal")), ..all() };
    assert_eq!(handle.replay(&nobody, 10).await.expect("nothing"), replayed(0));
    let begun = rig.clock.elapsed();
    assert_eq!(handle.replay(&all(), 1_000).await.expect("replayed"), replayed(159));
    assert!(rig.clock.elapsed() - begun >= Duration::from_millis(90), "a thousand a second at most");
    let got = receive(&rig, "c", 159).await;
    let ids: Vec<u32> = got.iter().map(|got| got.event.parse().expect("a number")).collect();
    let keyed: Vec<u32> = ids.iter().copied().filter(|id| *id < 12).collect();
    assert_eq!(keyed, [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_replays_share_out_the_entries() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    rig.publish_ids(0..120).await;
    kill(&rig, "c", 120).await;
    let handle = rig.dispatcher.letters();
    let replays = (0..8).map(|_| async { handle.replay(&all(), 50).await.expect("replayed").replayed });
    let counts = futures_util::future::join_all(replays).await;
    assert_eq!(counts.iter().sum::<usize>(), 120, "{counts:?}");
    let mut got: Vec<u32> =
        receive(&rig, "c", 120).await.iter().map(|got| got.event.parse().expect("a number")).collect();
    got.sort_unstable();
    assert_eq!(got, (0..120).collect::<Vec<_>>());
    assert_eq!(rig.poll("c", 10, 100).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_fails_leaves_the_entries_and_what_it_stored_all_the_same_counts() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    rig.publish_ids(0..1).await;
    kill(&rig, "c", 1).await;
    let handle = rig.dispatcher.letters();
    let full = Fault::Fail(BackendErrorKind::Full);
    rig.log.fail_appends([full, full, Fault::LoseAnswer]);
    for _ in 0..3 {
        let failed = handle.replay(&all(), 10).await.expect_err("the log fails");
        assert!(matches!(failed.error, LettersError::Storage(_)), "{failed}");
        assert_eq!((failed.done, letters(&rig).await), (0, 1));
    }
    assert_eq!(handle.replay(&all(), 10).await.expect("nothing is left to copy"), replayed(0));
    assert_eq!((receive(&rig, "c", 1).await.len(), letters(&rig).await), (1, 0));
    assert_eq!(rig.poll("c", 10, 200).await.len(), 0, "the copy whose answer was lost is the only one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_failed_replay_left_open_is_settled_without_another_one() {
    for (fault, left) in [(Fault::LoseAnswer, 0), (Fault::Fail(BackendErrorKind::Unavailable), 1)] {
        let rig = Rig::new().await;
        rig.subscribe("c", Mode::LoadBalance, once()).await;
        rig.publish_ids(0..1).await;
        kill(&rig, "c", 1).await;
        rig.log.fail_appends([fault]);
        rig.dispatcher.letters().replay(&all(), 10).await.expect_err("the log fails");
        if left == 1 {
            assert_eq!(rig.intents().await, 1, "the next start would look for copies");
        }
        // What is stored after it says that nothing else will come.
        rig.publish_ids(1..2).await;
        let end = rig.clock.elapsed() + DEADLINE;
        while rig.intents().await > 0 {
            assert!(rig.clock.elapsed() < end, "{fault:?}: the intent stands");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(letters(&rig).await, left, "{fault:?}");
        assert_eq!(receive(&rig, "c", 2 - left).await.len(), 2 - left, "{fault:?}");
        let again = rig.dispatcher.letters().replay(&all(), 10).await.expect("replayed");
        assert_eq!(again, replayed(left), "{fault:?}");
        assert_eq!(receive(&rig, "c", left).await.len(), left, "{fault:?}");
        assert_eq!(rig.poll("c", 10, 50).await.len(), 0, "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_cannot_be_removed_is_not_copied_again() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    rig.publish_ids(0..1).await;
    kill(&rig, "c", 1).await;
    let handle = rig.dispatcher.letters();
    rig.meta.fail_writes(1, BackendErrorKind::Unavailable);
    let failed = handle.replay(&all(), 10).await.expect_err("nothing could be written down");
    assert!(matches!(failed.error, LettersError::Meta(_)), "{failed}");
    assert_eq!(rig.poll("c", 10, 100).await.len(), 0, "so nothing was copied");
    // The intent is written, the row is not removed.
    rig.meta.fail_writes_after(1, 3, BackendErrorKind::Unavailable);
    let failed = handle.replay(&all(), 10).await.expect_err("Meta fails");
    assert!(matches!(failed.error, LettersError::Meta(_)), "{failed}");
    // It waits until the first is finished.
    assert_eq!(handle.replay(&all(), 10).await.expect("nothing is left"), replayed(0));
    assert_eq!((letters(&rig).await, receive(&rig, "c", 1).await.len()), (0, 1));
    assert_eq!(rig.poll("c", 10, 200).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_hangs_holds_up_replays_and_nothing_else() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    rig.publish_ids(0..1).await;
    kill(&rig, "c", 1).await;
    let handle = rig.dispatcher.letters();
    rig.log.fail_appends([Fault::Hang]);
    let failed = handle.replay(&all(), 10).await.expect_err("the log does not answer");
    assert!(matches!(failed.error, LettersError::TimedOut), "{failed}");
    let failed = handle.replay(&all(), 10).await.expect_err("the first is not decided");
    assert!(matches!(failed.error, LettersError::Busy), "{failed}");
    let failed = handle.discard(&all(), 10).await.expect_err("the first is not decided");
    assert!(matches!(failed.error, LettersError::Busy), "{failed}");
    rig.publish_ids(1..2).await;
    assert_eq!(receive(&rig, "c", 1).await.len(), 1);
    assert_eq!(letters(&rig).await, 1);
}

/// Where the process dies within a replay of a page of rows.
#[derive(Clone, Copy, Debug)]
enum Dies {
    /// The intent is written, nothing is copied.
    BeforeTheCopies,
    /// The copies are in the log, all rows are there.
    AfterTheCopies,
    /// Some rows are gone.
    AmongTheRows,
    /// All rows are gone, the intent stands.
    AfterTheRows,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_within_a_replay_copies_each_entry_once() {
    for dies in [Dies::BeforeTheCopies, Dies::AfterTheCopies, Dies::AmongTheRows, Dies::AfterTheRows] {
        let rig = Rig::with(20_000, 3).await;
        rig.subscribe("c", Mode::LoadBalance, once()).await;
        rig.publish_ids(0..40).await;
        kill(&rig, "c", 40).await;
        match dies {
            Dies::BeforeTheCopies => rig.log.fail_appends([Fault::Hang]),
            Dies::AfterTheCopies => rig.meta.fail_writes_after(1, 1_000, BackendErrorKind::Unavailable),
            Dies::AmongTheRows => rig.meta.fail_writes_after(16, 1_000, BackendErrorKind::Unavailable),
            Dies::AfterTheRows => rig.meta.fail_writes_after(41, 1_000, BackendErrorKind::Unavailable),
        }
        let asked = rig.dispatcher.letters().replay(&all(), 100).await;
        assert_eq!(asked.is_ok(), matches!(dies, Dies::AfterTheRows), "{dies:?}: {asked:?}");
        // The group goes on meanwhile, so that the copies are not at the end of the log.
        rig.publish_ids(100..110).await;
        rig.meta.fail_writes(0, BackendErrorKind::Unavailable);
        let (rig, recovered) = rig.restart().await;
        let (left, settled) = match dies {
            Dies::BeforeTheCopies => (40, 0),
            Dies::AfterTheCopies => (0, 40),
            Dies::AmongTheRows => (0, 25),
            Dies::AfterTheRows => (0, 0),
        };
        assert_eq!((letters(&rig).await, recovered.replayed), (left, settled), "{dies:?}");
        let again = rig.dispatcher.letters().replay(&all(), 100).await.expect("replayed");
        assert_eq!(again, replayed(left), "{dies:?}");
        let mut got: Vec<u32> =
            receive(&rig, "c", 50).await.iter().map(|got| got.event.parse().expect("a number")).collect();
        got.sort_unstable();
        assert_eq!(got, (0..40).chain(100..110).collect::<Vec<_>>(), "{dies:?}");
        assert_eq!(rig.poll("c", 10, 50).await.len(), 0, "{dies:?}");
        let (rig, recovered) = rig.restart().await;
        assert_eq!((recovered.replayed, letters(&rig).await, rig.intents().await), (0, 0, 0), "{dies:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_of_a_later_death_is_not_taken_for_one_that_was_replayed() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    rig.publish_ids(0..1).await;
    kill(&rig, "c", 1).await;
    // The row goes, what was written down about it stands.
    rig.meta.fail_writes_after(2, 1_000, BackendErrorKind::Unavailable);
    assert_eq!(rig.dispatcher.letters().replay(&all(), 10).await.expect("replayed"), replayed(1));
    rig.meta.fail_writes(0, BackendErrorKind::Unavailable);
    // The same event, and its copy, die once more.
    rig.groups.seek(&shared(), &StartAt::Earliest, false).await.expect("sought");
    kill(&rig, "c", 2).await;
    assert_eq!(letters(&rig).await, 2);
    let (rig, recovered) = rig.restart().await;
    assert_eq!((recovered.replayed, letters(&rig).await), (0, 2));
    assert_eq!(rig.dispatcher.letters().replay(&all(), 10).await.expect("replayed"), replayed(2));
    assert_eq!(receive(&rig, "c", 2).await.len(), 2);
}

/// A delivery that is dead and has a row, as a process leaves it that dies after the row is written and before
/// the delivery has ended. Nobody writes dead letters yet.
async fn half_buried() -> Rig {
    let rig = Rig::without_dead_letter_writer(20_000, 1_000_000, 1).await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    rig.publish_ids(0..1).await;
    assert_eq!(rig.poll("c", 1, 2_000).await.len(), 1);
    let body = rig.storage.ensure_topic(&topic().dead_letter(), true, Some(1)).await.expect("a topic");
    let partition = body.partition(PartitionId(0)).expect("a partition");
    let items = vec![AppendItem { partition, event: event("0", None) }];
    rig.storage.appended(rig.storage.append(items)).await.expect("stored");
    let name = GroupName::new("default").expect("legal");
    let row = DeadLetter {
        group: GroupId { tenant: tenant(), topic: topic(), kind: GroupKind::LoadBalance, name },
        incarnation: rig.storage.topic(&topic()).expect("there").incarnation(),
        partition: PartitionId(0),
        offset: Offset(0),
        reason: EndReason::AttemptsExhausted,
        attempts: 1,
        last_error: String::new(),
        first_ms: 1,
        last_ms: 1,
        dead_at_ms: rig.clock.now().0,
        event_id: "0".to_owned(),
        source: "/test".to_owned(),
        body: DeadLetterBody {
            topic: topic().dead_letter(),
            incarnation: body.incarnation(),
            partition: PartitionId(0),
            offset: Offset(0),
        },
        instance: InstanceId::new("one").expect("legal"),
        unknown: Unknown::default(),
    };
    rig.record_dead(row).await;
    // The ticker makes a dead letter of it when its lock has run out.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    rig
}

fn shared() -> GroupSelector {
    let name = GroupName::new("default").expect("legal");
    GroupSelector { tenant: tenant(), topic: topic(), name, kind: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_whose_delivery_has_not_ended_waits_for_that() {
    let rig = half_buried().await;
    let handle = rig.dispatcher.letters();
    let (which, writer) = (all(), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(letters(&rig).await, 1, "the replay waits");
        rig.start_dead_letter_writer();
    });
    let (done, ()) = tokio::join!(handle.replay(&which, 10), writer);
    assert_eq!(done.expect("replayed"), replayed(1));
    rig.until("nothing is dead", || rig.dispatcher.pending_count() == 0).await;
    assert_eq!((letters(&rig).await, receive(&rig, "c", 1).await.len()), (0, 1));
    assert_eq!(rig.poll("c", 10, 100).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_within_a_seek_waits_for_what_the_seek_carries_over() {
    let rig = half_buried().await;
    // Meta does not answer the seek, which leaves the group as it was.
    rig.meta.hang(1);
    let (handle, which, selector) = (rig.dispatcher.letters(), all(), shared());
    let nowhere = StartAt::Offsets(BTreeMap::new());
    let replay = async {
        tokio::time::sleep(Duration::from_millis(120)).await;
        handle.replay(&which, 10).await
    };
    let buried = async {
        tokio::time::sleep(Duration::from_millis(600)).await;
        rig.start_dead_letter_writer();
    };
    let (_, done, ()) = tokio::join!(rig.groups.seek(&selector, &nowhere, false), replay, buried);
    let first = done.expect("replayed").replayed;
    rig.until("nothing is dead", || rig.dispatcher.pending_count() == 0).await;
    let second = handle.replay(&which, 10).await.expect("replayed").replayed;
    assert_eq!(first + second, 1);
    assert_eq!((letters(&rig).await, receive(&rig, "c", 1).await.len()), (0, 1));
    assert_eq!(rig.poll("c", 10, 100).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_is_made_anew_takes_no_copy_for_the_one_before() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    rig.publish_ids(0..1).await;
    kill(&rig, "c", 1).await;
    assert_eq!(rig.dispatcher.letters().replay(&all(), 10).await.expect("replayed"), replayed(1));
    rig.groups.remove_group(&shared()).await.expect("removed");
    // From the copy on.
    let again = Subscribe { asked: patient(), start: StartAt::Offset(Offset(1)), ..request("c", topic()) };
    rig.groups.subscribe(again).await.expect("subscribed");
    rig.publish_ids(1..2).await;
    assert_eq!(events(&receive(&rig, "c", 1).await), ["1"]);
    assert_eq!(rig.poll("c", 10, 100).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_death_is_not_lost_to_the_replay_of_the_earlier_one() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    rig.publish_ids(0..1).await;
    kill(&rig, "c", 1).await;
    rig.subscribe("c", Mode::LoadBalance, patient()).await;
    rig.groups.seek(&shared(), &StartAt::Earliest, false).await.expect("sought");
    let again = rig.poll("c", 1, 2_000).await;
    // The copy is made, the row is not removed yet.
    rig.meta.fail_writes_after(1, 1, BackendErrorKind::Unavailable);
    rig.dispatcher.letters().replay(&all(), 10).await.expect_err("Meta fails");
    let rejected = rig.dispatcher.resolve(&tenant(), &[again[0].delivery.clone()]);
    assert_eq!(rig.dispatcher.reject(&rejected, None).await, [SettleOutcome::Settled]);
    let end = rig.clock.elapsed() + DEADLINE;
    while rig.intents().await > 0 {
        assert!(rig.clock.elapsed() < end, "the first replay is finished");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(letters(&rig).await, 1, "the reject that was answered");
    assert_eq!(rig.dispatcher.letters().replay(&all(), 10).await.expect("replayed"), replayed(1));
    assert_eq!(receive(&rig, "c", 2).await.len(), 2, "one for each death");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_log_that_fails_may_hold_is_never_forgotten() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    rig.publish_ids(0..17).await;
    kill(&rig, "c", 17).await;
    let one = |id: u32| LetterSelector { event_id: Some(id.to_string()), ..all() };
    rig.log.fail_appends(vec![Fault::Fail(BackendErrorKind::Full); 20]);
    for id in (0..16).chain([3, 3]) {
        let failed = rig.dispatcher.letters().replay(&one(id), 1).await.expect_err("the log is full");
        assert!(matches!(failed.error, LettersError::Storage(_)), "{id}: {failed}");
    }
    // The last of them is written down once more, until it is tidied up.
    assert!(matches!(rig.intents().await, 16 | 17));
    let failed = rig.dispatcher.letters().replay(&one(16), 1).await.expect_err("too many are open");
    assert!(matches!(failed.error, LettersError::Busy), "{failed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_that_cannot_be_stored_hold_up_no_other_group() {
    let rig = Rig::new().await;
    let name = |text: &str| TopicName::new(text).expect("legal");
    let first = Subscribe { asked: once(), ..request("c", name("stuck")) };
    rig.groups.subscribe(first).await.expect("subscribed");
    rig.subscribe("d", Mode::LoadBalance, once()).await;
    rig.storage.ensure_topic(&topic().dead_letter(), true, Some(1)).await.expect("made");
    // There is no room for the dead-letter topic of the first.
    let mut number = 0;
    while rig.storage.ensure_topic(&name(&format!("full-{number}")), true, Some(1)).await.is_ok() {
        number += 1;
    }
    let stuck = rig.storage.topic(&name("stuck")).expect("there").next_partition();
    for id in 0..70 {
        let item = AppendItem { partition: stuck.clone(), event: event(&id.to_string(), None) };
        rig.storage.appended(rig.storage.append(vec![item])).await.expect("stored");
    }
    let mut taken = 0;
    while taken < 70 {
        taken += rig.poll("c", 100, 2_000).await.len();
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    rig.publish_ids(0..3).await;
    let got = rig.poll("d", 3, 2_000).await;
    let ids: Vec<String> = got.iter().map(|got| got.delivery.clone()).collect();
    let outcomes = rig.dispatcher.reject(&rig.dispatcher.resolve(&tenant(), &ids), None).await;
    assert_eq!(outcomes, [SettleOutcome::Settled; 3]);
    assert_eq!(letters(&rig).await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_is_gone_keeps_its_letters_until_they_are_discarded() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    rig.publish_ids(0..2).await;
    kill(&rig, "c", 2).await;
    rig.groups.unsubscribe(&anybody(), &client("c"), None, None, true).await.expect("deleted");
    let handle = rig.dispatcher.letters();
    let failed = handle.replay(&all(), 10).await.expect_err("nobody to replay to");
    assert!(matches!(failed.error, LettersError::GroupGone), "{failed}");
    assert_eq!(letters(&rig).await, 2);
    assert_eq!(handle.discard(&all(), 1).await.expect("discarded"), 1);
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    assert_eq!(handle.replay(&all(), 10).await.expect("the group is there again"), replayed(1));
    assert_eq!(receive(&rig, "c", 1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_does_not_expire_because_its_event_is_old() {
    // covers: U41
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    let time = mesh_frame::format_timestamp(rig.clock.now().0);
    let builder = EventBuilder::new("1", "/t", "t").attribute("emttl", "2500").attribute("time", &time);
    rig.publish(builder.build().expect("an event")).await;
    kill(&rig, "c", 1).await;
    let late = rig.clock.now().plus(Duration::from_millis(2_600));
    rig.clock.sleep_until(late).await;
    assert_eq!(rig.dispatcher.letters().replay(&all(), 10).await.expect("replayed"), replayed(1));
    assert_eq!(receive(&rig, "c", 1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_that_nobody_waits_for_any_more_loses_and_repeats_nothing() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    rig.publish_ids(0..300).await;
    kill(&rig, "c", 300).await;
    let handle = rig.dispatcher.letters();
    let which = all();
    let begun = async {
        while letters(&rig).await == 300 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        done = handle.replay(&which, 1_000) => panic!("300 at a thousand a second were over at once: {done:?}"),
        () = begun => {}
    }
    let rest = handle.replay(&which, 1_000).await.expect("replayed").replayed;
    assert!(rest < 300 && letters(&rig).await == 0, "{rest}");
    receive(&rig, "c", 300).await;
    assert_eq!(rig.poll("c", 10, 100).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_too_many_rows_the_oldest_go_and_what_is_too_old_goes() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    for id in 0..5 {
        rig.publish_ids(id..id + 1).await;
        kill(&rig, "c", 1).await;
    }
    let handle = rig.dispatcher.letters();
    assert_eq!(handle.retain(&topic()).await.expect("retained"), 0);
    assert_eq!(handle.retain_within(&topic(), Duration::MAX, 2).await.expect("retained"), 3);
    let left = rig.dispatcher.dead_letters(&topic(), 10).await.expect("browsed");
    let ids: Vec<&str> = left.iter().map(|view| view.letter.event_id.as_str()).collect();
    assert_eq!(ids, ["3", "4"]);
    let later = rig.clock.now().plus(Duration::from_millis(2));
    rig.clock.sleep_until(later).await;
    assert_eq!(handle.retain_within(&topic(), Duration::from_millis(1), 2).await.expect("retained"), 2);
    assert_eq!(letters(&rig).await, 0);
}
