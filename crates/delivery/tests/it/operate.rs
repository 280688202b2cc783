//! What an operator does to groups and topics while clients are connected.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use mesh_base::{BackendErrorKind, Signals, Tasks};
use mesh_delivery::{
    AskedSettings, Change, GroupError, GroupKind, GroupSelector, LetterSelector, Mode, PollError,
    SettingsChange, SettleOutcome, StartAt, SubscribeError, TopicMade, TopicsError,
};
use mesh_frame::{GroupName, Offset, PartitionId, TopicName};

use mesh_storage::AppendItem;

use crate::rig::{Rig, anybody, client, event, events, quick, tenant, topic};

fn group(name: &str) -> GroupSelector {
    GroupSelector {
        tenant: tenant(),
        topic: topic(),
        name: GroupName::new(name).expect("a legal name"),
        kind: None,
    }
}

fn offsets(of: &[(u32, u64)]) -> BTreeMap<PartitionId, Offset> {
    of.iter().map(|(partition, offset)| (PartitionId(*partition), Offset(*offset))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seek_back_gives_everything_again_and_voids_every_id() {
    // covers: U69
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish_ids(0..4).await;
    let first = rig.poll("c", 3, 1_000).await;
    rig.ack(&[&first[0]]).await;
    let would = rig.groups.seek(&group("default"), &StartAt::Earliest, true).await.expect("a dry run");
    assert_eq!((would.generation, would.from, would.to), (0, offsets(&[(0, 1)]), offsets(&[(0, 0)])));
    assert_eq!(rig.ack(&[&first[1]]).await, [SettleOutcome::Settled], "a dry run changes nothing");
    let sought = rig.groups.seek(&group("default"), &StartAt::Earliest, false).await.expect("sought");
    assert_eq!((sought.generation, sought.to), (1, offsets(&[(0, 0)])));
    assert_eq!(rig.ack(&[&first[2]]).await, [SettleOutcome::Unknown], "an id of the old generation");
    let again = rig.poll("c", 10, 1_000).await;
    assert_eq!(events(&again), ["0", "1", "2", "3"]);
    assert_eq!(again.iter().map(|got| got.attempt).collect::<Vec<_>>(), [1, 1, 1, 1]);
    assert_eq!(rig.ack(&again.iter().collect::<Vec<_>>()).await, [SettleOutcome::Settled; 4]);
    assert_eq!((rig.dispatcher.pending_count(), rig.outstanding()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_poll_gets_what_a_seek_brings() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish_ids(0..2).await;
    for round in 0..10 {
        let taken = rig.poll("c", 10, 1_000).await;
        assert_eq!(taken.len(), 2, "round {round}");
        rig.ack(&taken.iter().collect::<Vec<_>>()).await;
        let seek = async {
            tokio::time::sleep(Duration::from_millis(round)).await;
            rig.groups.seek(&group("default"), &StartAt::Earliest, false).await.expect("sought");
        };
        let begun = rig.clock.elapsed();
        let (got, ()) = tokio::join!(rig.poll("c", 10, 20_000), seek);
        assert!(rig.clock.elapsed() - begun < Duration::from_secs(10), "the poll slept through the seek");
        assert_eq!(got.len(), 2);
        rig.ack(&got.iter().collect::<Vec<_>>()).await;
        rig.groups
            .seek(&group("default"), &StartAt::Offset(Offset(0)), false)
            .await
            .expect("sought to offset 0");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_a_seek_does_not_name_keep_what_is_done() {
    let rig = Rig::with(20_000, 2).await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish_ids(0..8).await;
    let taken = rig.poll("c", 10, 1_000).await;
    assert_eq!(taken.len(), 8);
    // Round robin: the even ones are in one partition, the odd ones in the other.
    let done: Vec<_> = taken.iter().filter(|got| got.event.parse::<u32>().expect("a number") < 6).collect();
    rig.ack(&done).await;
    let log = rig.storage.topic(&topic()).expect("a topic");
    let odd = log
        .partitions()
        .iter()
        .find(|partition| {
            let mut found = Vec::new();
            partition.cached(Offset(0), 1, &mut found);
            found[0].record().event.id() == "1"
        })
        .expect("a partition")
        .id();
    let to = StartAt::Offsets(BTreeMap::from([(odd, Offset(1))]));
    rig.groups.seek(&group("default"), &to, false).await.expect("sought");
    let mut again = rig.poll("c", 10, 1_000).await;
    again.extend(rig.poll("c", 10, 200).await);
    let mut ids = events(&again);
    ids.sort_unstable();
    assert_eq!(ids, ["3", "5", "6", "7"], "6 was handed out and not done: it is due at once");
    assert!(again.iter().all(|got| got.attempt == 1), "{again:?}");
    let bad = StartAt::Offsets(BTreeMap::from([(PartitionId(7), Offset(0))]));
    let refused = rig.groups.seek(&group("default"), &bad, false).await;
    assert!(matches!(refused, Err(GroupError::Other(SubscribeError::BadStart(_)))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_meta_or_the_group_is_gone_a_seek_changes_nothing() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish_ids(0..3).await;
    let taken = rig.poll("c", 10, 1_000).await;
    rig.ack(&[&taken[0]]).await;
    rig.meta.fail_writes(1, BackendErrorKind::Unavailable);
    let failed = rig.groups.seek(&group("default"), &StartAt::Earliest, false).await;
    assert!(matches!(failed, Err(GroupError::Other(SubscribeError::Meta(_)))), "{failed:?}");
    assert_eq!(rig.ack(&[&taken[1]]).await, [SettleOutcome::Settled], "the ids of the group still count");
    rig.groups.seek(&group("default"), &StartAt::Latest, false).await.expect("sought");
    assert_eq!(rig.ack(&[&taken[2]]).await, [SettleOutcome::Unknown]);
    assert_eq!(rig.poll("c", 10, 100).await.len(), 0);
    let nobody = rig.groups.seek(&group("nobody"), &StartAt::Latest, false).await;
    assert!(matches!(nobody, Err(GroupError::Unknown(_))), "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seeks_among_polls_and_acks_lose_nothing_and_leave_nothing_pending() {
    let rig = Rig::with(20_000, 3).await;
    for name in ["a", "b"] {
        rig.subscribe(name, Mode::LoadBalance, AskedSettings::default()).await;
    }
    for id in 0..60 {
        rig.publish(event(&id.to_string(), (id % 2 == 0).then_some("k"))).await;
    }
    let sought = AtomicBool::new(false);
    let consume = |name: &'static str| {
        let (rig, sought) = (&rig, &sought);
        async move {
            let mut seen = Vec::new();
            loop {
                let is_last = sought.load(Ordering::Relaxed);
                let batch = rig.poll(name, 7, 400).await;
                if batch.is_empty() && is_last {
                    return seen;
                }
                rig.ack(&batch.iter().collect::<Vec<_>>()).await;
                seen.extend(batch.into_iter().map(|got| got.event));
            }
        }
    };
    let seeks = async {
        for _ in 0..20 {
            rig.groups.seek(&group("default"), &StartAt::Earliest, false).await.expect("sought");
            tokio::task::yield_now().await;
        }
        sought.store(true, Ordering::Relaxed);
    };
    let (a, b, ()) = tokio::join!(consume("a"), consume("b"), seeks);
    let seen: std::collections::BTreeSet<String> = a.into_iter().chain(b).collect();
    assert_eq!(seen.len(), 60);
    assert_eq!((rig.dispatcher.pending_count(), rig.outstanding()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_show_how_far_behind_they_are_and_what_holds_them() {
    let rig = Rig::with(4, 1).await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    rig.subscribe("d", Mode::Broadcast, AskedSettings::default()).await;
    let signals = Signals::new();
    rig.dispatcher.show_lag(&signals);
    for id in 0..10 {
        rig.publish(event(&id.to_string(), Some("k"))).await;
    }
    assert_eq!(rig.poll("c", 10, 1_000).await.len(), 4);
    let views = rig.groups.views(Some(&topic())).await.expect("views");
    assert_eq!(
        views.iter().map(|view| view.id.kind).collect::<Vec<_>>(),
        [GroupKind::LoadBalance, GroupKind::Broadcast]
    );
    let lane = &views[0].partitions[0];
    assert_eq!((lane.lag, lane.outstanding, lane.pending), (10, 4, 4));
    assert_eq!(lane.held_by_key.map(|(_, rows)| rows), Some(4));
    assert!(lane.oldest_ms.is_some_and(|at| at <= rig.clock.now().0));
    assert_eq!((views[0].members[0].in_flight, views[1].partitions[0].held_by_key), (4, None));
    let text = signals.text();
    let shared = r#"eventmesh_group_lag{tenant="default",topic="t",group="default"} 10"#;
    assert!(text.contains(shared) && text.contains(r#"eventmesh_topic_lag{topic="t"} 10"#), "{text}");
    assert_eq!(rig.groups.remove_group(&group("default")).await.expect("removed"), 1);
    assert!(!signals.text().contains("eventmesh_group_lag{"), "series of what is gone are gone");
    let polled = rig.dispatcher.poll(&anybody(), &client("c"), 1, Duration::ZERO).await;
    assert!(matches!(polled, Err(PollError::Expired)), "{polled:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_client_is_out_at_once_its_poll_told_and_nothing_pending() {
    // covers: U52 U116
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, quick()).await;
    rig.subscribe("c2", Mode::Broadcast, AskedSettings::default()).await;
    rig.publish_ids(0..3).await;
    assert_eq!(rig.poll("c2", 10, 1_000).await.len(), 3);
    let (tenant, client) = (tenant(), client("c2"));
    let anybody = anybody();
    let waiting = rig.dispatcher.poll(&anybody, &client, 10, Duration::from_secs(20));
    let reject = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        rig.groups.reject(&tenant, &client).await.expect("rejected")
    };
    let (polled, removed) = tokio::join!(waiting, reject);
    assert!(matches!(polled, Err(PollError::Expired)), "{polled:?}");
    assert_eq!((removed, rig.dispatcher.pending_count()), (1, 0));
    assert_eq!(rig.groups.reject(&tenant, &client).await.expect("nobody"), 0);
    rig.subscribe("c2", Mode::Broadcast, AskedSettings::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_grows_is_read_from_the_beginning_of_its_new_partitions() {
    let rig = Rig::new().await;
    let topics = rig.groups.topics();
    assert_eq!(
        topics.make(&topic(), Some(1), SettingsChange::default()).await.expect("made"),
        TopicMade::Created
    );
    assert_eq!(
        topics.make(&topic(), None, SettingsChange::default()).await.expect("there"),
        TopicMade::AlreadyThere
    );
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    let (got, grown) = tokio::join!(
        async {
            let mut got = Vec::new();
            while got.len() < 12 {
                let batch = rig.poll("c", 20, 2_000).await;
                rig.ack(&batch.iter().collect::<Vec<_>>()).await;
                got.extend(batch);
            }
            got
        },
        async {
            rig.publish_ids(0..4).await;
            let grown = topics.make(&topic(), Some(4), SettingsChange::default()).await.expect("grown");
            rig.publish_ids(4..12).await;
            grown
        }
    );
    assert_eq!((got.len(), grown), (12, TopicMade::Grown(3)));
    let view = topics.describe(&topic()).await.expect("described").expect("a topic");
    assert_eq!(view.partitions.iter().map(|partition| partition.end.0).sum::<u64>(), 12);
    assert!(view.partitions.iter().all(|partition| partition.end.0 >= 2), "{view:?}");
    let fewer = topics.make(&topic(), Some(2), SettingsChange::default()).await;
    assert!(matches!(fewer, Err(TopicsError::Fewer { has: 4 })), "{fewer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_with_groups_is_deleted_only_by_force_and_keeps_its_dead_letters_unless_told() {
    let rig = Rig::new().await;
    let once = AskedSettings { max_attempts: Some(1), ..quick() };
    rig.subscribe("c", Mode::LoadBalance, once).await;
    rig.publish_ids(0..2).await;
    assert_eq!(rig.poll("c", 10, 1_000).await.len(), 2);
    rig.until("the dead letters", || rig.dispatcher.pending_count() == 0).await;
    let topics = rig.groups.topics();
    let refused = topics.delete(&topic(), false, false).await;
    assert!(matches!(refused, Err(TopicsError::GroupsExist(1))), "{refused:?}");
    assert_eq!(topics.delete(&topic(), true, false).await.expect("deleted").groups, 1);
    assert!(topics.describe(&topic()).await.expect("read").is_none());
    let names: Vec<TopicName> = topics.list().into_iter().map(|view| view.name).collect();
    assert_eq!(names, [topic().dead_letter()]);
    assert!(matches!(topics.delete(&topic(), true, false).await, Err(TopicsError::Unknown(_))));
    // The topic made again is another log; its dead letters wait for whoever wants them.
    // Its lock outlasts the test: what is delivered is still out when the topic goes.
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    let letters = rig.dispatcher.letters();
    let which = LetterSelector::of(topic());
    assert_eq!(letters.replay(&which, 1).await.expect("replayed").replayed, 1);
    assert_eq!(events(&rig.poll("c", 10, 1_000).await), ["0"]);
    let deleted = topics.delete(&topic(), true, true).await.expect("deleted");
    assert_eq!((deleted.groups, deleted.dead_letters, topics.list().len()), (1, 1, 0));
    assert_eq!(letters.count(&topic()).await.expect("counted"), 0);
    assert_eq!(rig.dispatcher.pending_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_topics_only_the_one_with_limits_loses_events_and_its_group_goes_on_behind_the_gap() {
    let rig = Rig::new().await;
    let free = TopicName::new("free").expect("a legal name");
    let topics = rig.groups.topics();
    let limits = SettingsChange { backlog_max_bytes: Change::Set(2_000), ..SettingsChange::default() };
    assert_eq!(topics.make(&topic(), Some(1), limits).await.expect("made"), TopicMade::Created);
    topics.make(&free, Some(1), SettingsChange::default()).await.expect("made");
    for name in [topic(), free.clone()] {
        rig.subscribe_to(name.clone(), "c").await;
        let partition = rig.storage.topic(&name).expect("it is there").next_partition();
        for id in 0..100 {
            let event = event(&id.to_string(), None);
            let append = rig.storage.append(vec![AppendItem { partition: partition.clone(), event }]);
            rig.storage.appended(append).await.expect("stored");
        }
    }
    let retained = async |name: &TopicName| {
        let of = rig.storage.topic(name).expect("it is there");
        rig.dispatcher.retain_topic(&of).await.expect("retained");
        of.partitions()[0].start().0
    };
    let (start, untouched) = (retained(&topic()).await, retained(&free).await);
    assert!(start > 50 && start < 100, "{start}");
    assert_eq!(untouched, 0);
    let dropped = rig.dropped("dropped_backlog");
    assert_eq!(dropped, start, "each that went is counted");
    let got: BTreeMap<String, usize> =
        rig.poll_topics("c", 200, 2_000).await.into_iter().fold(BTreeMap::new(), |mut got, topic| {
            *got.entry(topic).or_default() += 1;
            got
        });
    let left = usize::try_from(100 - start).expect("small");
    assert_eq!(got, BTreeMap::from([("free".to_owned(), 100), ("t".to_owned(), left)]));
    // What a group has not done is no matter of retention, however small it is.
    let age = SettingsChange { retention_max_age_ms: Change::Set(1), ..SettingsChange::default() };
    assert_eq!(topics.make(&free, None, age).await.expect("changed"), TopicMade::AlreadyThere);
    let waited = rig.clock.now();
    rig.until("the records to be older", || rig.clock.now() > waited.plus(Duration::from_millis(5))).await;
    assert_eq!(retained(&free).await, 0, "it is not done with");
    assert_eq!(rig.dropped("dropped_backlog"), start);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_topics_only_the_one_with_retention_loses_what_is_done_with() {
    let rig = Rig::new().await;
    let (aged, sized) = (TopicName::new("aged").expect("legal"), TopicName::new("sized").expect("legal"));
    let topics = rig.groups.topics();
    let age = SettingsChange { retention_max_age_ms: Change::Set(1), ..SettingsChange::default() };
    let size = SettingsChange { retention_max_bytes: Change::Set(2_000), ..SettingsChange::default() };
    for (name, change) in [(topic(), SettingsChange::default()), (aged, age), (sized, size)] {
        topics.make(&name, Some(1), change).await.expect("made");
        // A group that has done the first sixty of a hundred.
        rig.subscribe_to(name.clone(), name.as_str()).await;
        let of = rig.storage.topic(&name).expect("it is there");
        for id in 0..100 {
            let event = event(&id.to_string(), None);
            let append = rig.storage.append(vec![AppendItem { partition: of.next_partition(), event }]);
            rig.storage.appended(append).await.expect("stored");
        }
        let got = rig.poll(name.as_str(), 60, 2_000).await;
        rig.ack(&got.iter().collect::<Vec<_>>()).await;
        let stored = rig.clock.now();
        rig.until("the records to be older", || rig.clock.now() > stored.plus(Duration::from_millis(5)))
            .await;
        rig.dispatcher.retain_topic(&of).await.expect("retained");
        let start = of.partitions()[0].start();
        let (bytes, expected) = match name.as_str() {
            "aged" => (None, 60),
            "sized" => (Some(2_000), 60),
            _ => (None, 0),
        };
        assert_eq!((of.rules().max_bytes, start), (bytes, Offset(expected)), "{name}");
    }
    assert_eq!(rig.dropped("dropped_backlog"), 0, "nothing that somebody wanted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn series_of_groups_are_bounded_and_the_rest_is_summed() {
    // covers: U118
    let rig = Rig::new().await;
    let signals = Signals::new();
    rig.dispatcher.show_lag(&signals);
    for number in 0..1_003 {
        // A client has at most ten subscriptions.
        let (client, group) = (format!("c{}", number / 10), format!("g{number}"));
        let asked = AskedSettings::default();
        rig.try_subscribe(&client, Mode::LoadBalance, Some(&group), asked).await.expect("subscribed");
    }
    rig.publish_ids(0..2).await;
    let text = signals.text();
    let series = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!((series("eventmesh_group_lag{"), series("eventmesh_topic_lag{")), (1_000, 1));
    assert!(text.contains(r#"eventmesh_topic_lag{topic="t"} 6"#), "three groups of two events are summed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_group_that_is_sought_is_never_missing_from_its_topic() {
    // What retention may drop depends on it.
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    let (done, missing) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let (dispatcher, is_done, count) = (rig.dispatcher.clone(), done.clone(), missing.clone());
    let looking = Tasks::thread("looking", move || {
        while !is_done.load(Ordering::Relaxed) {
            count.fetch_add(u32::from(dispatcher.positions(&topic()).is_empty()), Ordering::Relaxed);
        }
    });
    for _ in 0..200 {
        rig.groups.seek(&group("default"), &StartAt::Earliest, false).await.expect("sought");
    }
    done.store(true, Ordering::Relaxed);
    looking.join().expect("it looked");
    assert_eq!(missing.load(Ordering::Relaxed), 0);
}
