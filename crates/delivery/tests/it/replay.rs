//! Replay and discard of dead letters: to the group that failed, in order, and without losing one.

use std::time::Duration;

use mesh_base::BackendErrorKind;
use mesh_delivery::{AskedSettings, LetterSelector, LettersError, Mode, REPLAY_GROUP, Replayed};
use mesh_frame::{EventBuilder, GroupName};
use mesh_storage::faulty::Fault;

use crate::rig::{Got, Rig, anybody, client, event, events, quick, topic};

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
    for other in ["d", "default"] {
        assert_eq!(rig.poll(other, 10, 50).await.len(), 0, "{other} is not the group that failed");
    }
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
async fn a_log_that_fails_leaves_the_entries_and_a_lost_answer_copies_twice_at_worst() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    rig.publish_ids(0..1).await;
    kill(&rig, "c", 1).await;
    let handle = rig.dispatcher.letters();
    rig.log.fail_appends([Fault::Fail(BackendErrorKind::Full), Fault::LoseAnswer]);
    for _ in 0..2 {
        let failed = handle.replay(&all(), 10).await.expect_err("the log fails");
        assert!(matches!(failed.error, LettersError::Storage(_)), "{failed}");
        assert_eq!((failed.done, letters(&rig).await), (0, 1));
    }
    assert_eq!(handle.replay(&all(), 10).await.expect("replayed"), replayed(1));
    let got = receive(&rig, "c", 2).await;
    assert_eq!(events(&got), ["0", "0"], "the copy whose answer was lost, and the one that counts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_cannot_be_removed_is_not_copied_again() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, once()).await;
    rig.publish_ids(0..1).await;
    kill(&rig, "c", 1).await;
    let handle = rig.dispatcher.letters();
    // Browse only reads: the first write is the removal of the row.
    rig.meta.fail_writes(1, BackendErrorKind::Unavailable);
    let failed = handle.replay(&all(), 10).await.expect_err("Meta fails");
    assert!(matches!(failed.error, LettersError::Meta(_)), "{failed}");
    assert_eq!(receive(&rig, "c", 1).await.len(), 1);
    assert_eq!(letters(&rig).await, 1, "the row is still there");
    assert_eq!(handle.replay(&all(), 10).await.expect("replayed"), replayed(1));
    assert_eq!((letters(&rig).await, rig.poll("c", 10, 200).await.len()), (0, 0));
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
