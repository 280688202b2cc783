//! The contract of a log driver, one function a rule. Every driver runs all of them.
//!
//! A [`Subject`] opens a driver on a place of its own; opening it again is what a restart sees.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use mesh_base::{BackendErrorKind, Clock, Signals, UnixMillis};
use mesh_frame::{EventBuilder, Offset, PartitionId, TopicName};

use crate::{
    Append, AppendItem, Cached, Change, LogRecord, Partition, ReadLimit, Retain, SettingsChange, Storage,
    StorageLimits, StoragePlugin, Tail, Topic, TopicRules, TopicSettings,
};

/// Opens the driver under test.
pub trait Subject {
    /// Opens it on this subject's place, with the clock and the tail cache it is to use.
    fn open(&self, clock: Clock, tail: Arc<Tail>) -> Arc<dyn StoragePlugin>;
}

/// An opened driver with the handle around it.
pub struct Rig {
    /// The handle.
    pub storage: Storage,
    /// The driver itself.
    pub plugin: Arc<dyn StoragePlugin>,
}

/// Everything a read may return.
const ALL: ReadLimit = ReadLimit { records: usize::MAX, bytes: usize::MAX };

impl Rig {
    /// Opens a subject with a tail cache of that many bytes.
    pub fn open(subject: &dyn Subject, tail_bytes: u64) -> Self {
        let (tail, _) = Storage::tail(tail_bytes);
        let plugin = subject.open(Clock::system(), tail.clone());
        let limits = StorageLimits { partitions: 2, topics: 1_000, rules: TopicRules::default() };
        let storage =
            Storage::new(plugin.clone(), tail, limits, None, &Signals::new()).expect("its topics are read");
        Self { storage, plugin }
    }

    /// The topic `t`, made when there is none.
    pub async fn topic(&self) -> Arc<Topic> {
        let name = TopicName::new("t").expect("a legal name");
        self.storage.ensure_topic(&name, true, None).await.expect("a topic")
    }

    /// Appends events with these ids to one partition and gives their offsets.
    pub async fn append(&self, partition: &Arc<Partition>, ids: &[&str]) -> Vec<Offset> {
        let items: Vec<_> = ids.iter().map(|id| item(partition, id)).collect();
        self.storage.appended(self.storage.append(items)).await.expect("appended").to_vec()
    }

    /// The ids the driver reads from an offset on.
    pub fn read(&self, partition: &Partition, from: u64) -> Vec<String> {
        ids(&self.plugin.read(partition, Offset(from), ALL).expect("read"))
    }
}

fn item(partition: &Arc<Partition>, id: &str) -> AppendItem {
    let event =
        EventBuilder::new(id, "/conformance", "t").text("x".repeat(100).as_str()).build().expect("an event");
    AppendItem { partition: partition.clone(), event }
}

fn ids(records: &[Arc<LogRecord>]) -> Vec<String> {
    records.iter().map(|record| record.record().event.id().to_owned()).collect()
}

/// Offsets of a partition rise by the order of the appends, and reads give that order.
pub async fn offsets_rise_and_reads_keep_their_order(subject: &dyn Subject) {
    let rig = Rig::open(subject, 1 << 20);
    let topic = rig.topic().await;
    let (a, b) = (topic.partitions()[0].clone(), topic.partitions()[1].clone());
    let first = rig.append(&a, &["1", "2"]).await;
    let second = rig.append(&a, &["3"]).await;
    rig.append(&b, &["other"]).await;
    assert!(first[0] < first[1] && first[1] < second[0], "{first:?} {second:?}");
    assert_eq!(rig.read(&a, 0), ["1", "2", "3"]);
    assert_eq!(rig.read(&a, first[1].0), ["2", "3"]);
    assert_eq!(rig.read(&b, 0), ["other"]);
    assert_eq!(a.end(), Offset(second[0].0 + 1));
}

/// An append over several partitions happens as a whole.
pub async fn a_batch_is_one_effect_over_partitions(subject: &dyn Subject) {
    let rig = Rig::open(subject, 1 << 20);
    let topic = rig.topic().await;
    let partitions = topic.partitions();
    let items = vec![item(&partitions[0], "1"), item(&partitions[1], "2"), item(&partitions[0], "3")];
    let offsets = rig.storage.appended(rig.storage.append(items)).await.expect("appended");
    assert_eq!(offsets.len(), 3);
    assert_eq!(rig.read(&partitions[0], 0), ["1", "3"]);
    assert_eq!(rig.read(&partitions[1], 0), ["2"]);
}

/// A read stops at its limits, and gives at least one record.
pub async fn a_read_obeys_its_limits(subject: &dyn Subject) {
    let rig = Rig::open(subject, 1 << 20);
    let topic = rig.topic().await;
    let partition = topic.partitions()[0].clone();
    rig.append(&partition, &["1", "2", "3", "4"]).await;
    let read = |records, bytes| {
        ids(&rig.plugin.read(&partition, Offset(0), ReadLimit { records, bytes }).expect("read"))
    };
    assert_eq!(read(2, usize::MAX), ["1", "2"]);
    assert_eq!(read(10, 1), ["1"]);
    assert_eq!(rig.plugin.read(&partition, partition.end(), ALL).expect("read").len(), 0);
}

/// What was acknowledged is there after a restart when the driver says so, and offsets go on.
pub async fn a_restart_keeps_what_the_capabilities_promise(subject: &dyn Subject) {
    let rig = Rig::open(subject, 1 << 20);
    let topic = rig.topic().await;
    let partition = topic.partitions()[0].clone();
    let before = rig.append(&partition, &["1", "2"]).await;
    let survives = rig.storage.capabilities().survives_kill;
    rig.storage.close();
    drop((rig, topic, partition));
    let rig = Rig::open(subject, 1 << 20);
    let topic = rig.topic().await;
    let partition = topic.partitions()[0].clone();
    if survives {
        assert_eq!(rig.read(&partition, 0), ["1", "2"]);
        assert!(rig.append(&partition, &["3"]).await[0] > before[1]);
        assert_eq!(rig.read(&partition, 0), ["1", "2", "3"]);
    } else {
        assert_eq!(rig.read(&partition, 0), Vec::<String>::new());
    }
}

/// A topic made again is another log; one that is there is not made again.
pub async fn a_topic_made_again_is_another_incarnation(subject: &dyn Subject) {
    let rig = Rig::open(subject, 1 << 20);
    let topic = rig.topic().await;
    assert_eq!(topic.incarnation(), rig.topic().await.incarnation());
    let partition = topic.partitions()[0].clone();
    rig.append(&partition, &["old"]).await;
    assert!(rig.storage.delete_topic(topic.name()).await.expect("deleted"));
    assert!(!rig.storage.delete_topic(topic.name()).await.expect("there is none"));
    let again = rig.topic().await;
    assert_ne!(again.incarnation(), topic.incarnation());
    assert_eq!(rig.read(&again.partitions()[0].clone(), 0), Vec::<String>::new());
    let refused = rig.storage.appended(rig.storage.append(vec![item(&partition, "late")])).await;
    if let Err(error) = refused {
        assert_eq!(error.kind(), BackendErrorKind::Refused);
    }
    assert_eq!(rig.read(&again.partitions()[0].clone(), 0), Vec::<String>::new());
}

/// A topic that grows keeps its log and gets partitions that nobody had, also over a restart.
pub async fn added_partitions_are_empty_and_the_others_stay(subject: &dyn Subject) {
    let rig = Rig::open(subject, 1 << 20);
    let topic = rig.topic().await;
    let other = TopicName::new("other").expect("a legal name");
    let other = rig.storage.ensure_topic(&other, true, Some(1)).await.expect("a topic");
    let old = topic.partitions();
    rig.append(&old[1].clone(), &["before"]).await;
    let (grown, added) = rig.storage.add_partitions(topic.name(), 4).await.expect("grown");
    assert_eq!((grown.partitions().len(), added.len()), (4, 2));
    assert_eq!(grown.incarnation(), topic.incarnation());
    let keys: BTreeSet<u32> =
        grown.partitions().iter().chain(other.partitions().iter()).map(|partition| partition.key()).collect();
    assert_eq!(keys.len(), 5, "a key was given twice");
    assert_eq!((added[0].id(), added[0].end()), (PartitionId(2), Offset(0)));
    rig.append(&added[1], &["after"]).await;
    assert_eq!((rig.read(&old[1], 0), rig.read(&added[1], 0)), (vec!["before".into()], vec!["after".into()]));
    for same in [4, 1] {
        let (same, added) = rig.storage.add_partitions(topic.name(), same).await.expect("nothing to do");
        assert_eq!((same.partitions().len(), added.len()), (4, 0));
    }
    let nobody = TopicName::new("nobody").expect("a legal name");
    assert!(rig.storage.add_partitions(&nobody, 4).await.is_err());
    if rig.storage.capabilities().survives_kill {
        rig.storage.close();
        drop((rig, topic, other, old, grown, added));
        let rig = Rig::open(subject, 1 << 20);
        let partitions = rig.topic().await.partitions();
        assert_eq!(partitions.len(), 4);
        assert_eq!(rig.read(&partitions[3].clone(), 0), ["after"]);
    }
}

/// The settings of a topic come with it, change as a whole, go with it, and stay over a restart.
pub async fn settings_of_a_topic_live_and_end_with_it(subject: &dyn Subject) {
    let rig = Rig::open(subject, 1 << 20);
    let (name, plain) = (TopicName::new("t").expect("a legal name"), TopicName::new("u").expect("legal"));
    let settings = TopicSettings { retention_max_bytes: Some(7), ..TopicSettings::default() };
    let topic = rig.storage.create_topic(&name, Some(2), settings).await.expect("a topic");
    rig.storage.ensure_topic(&plain, true, None).await.expect("a topic");
    let change = SettingsChange {
        backlog_max_age_ms: Change::Set(0),
        dedup_window_ms: Change::Set(1_000),
        ..SettingsChange::default()
    };
    rig.storage.change_topic(&name, &change).await.expect("changed");
    let expected = TopicSettings { backlog_max_age_ms: Some(0), dedup_window_ms: Some(1_000), ..settings };
    assert_eq!(topic.settings(), expected);
    rig.storage.add_partitions(&name, 3).await.expect("grown");
    let nobody = TopicName::new("nobody").expect("a legal name");
    assert!(rig.storage.change_topic(&nobody, &change).await.is_err());
    assert!(!rig.plugin.set_topic(&nobody, &settings).expect("there is none"));
    let rig = if rig.storage.capabilities().survives_kill {
        rig.storage.close();
        drop((rig, topic));
        Rig::open(subject, 1 << 20)
    } else {
        rig
    };
    let settings_of = |name: &TopicName| rig.storage.topic(name).expect("it is there").settings();
    assert_eq!((settings_of(&name), settings_of(&plain)), (expected, TopicSettings::default()));
    let back = SettingsChange { backlog_max_age_ms: Change::Unset, ..SettingsChange::default() };
    rig.storage.change_topic(&name, &back).await.expect("changed");
    assert_eq!(settings_of(&name), TopicSettings { backlog_max_age_ms: None, ..expected });
    rig.storage.delete_topic(&name).await.expect("deleted");
    let again = rig.storage.ensure_topic(&name, true, None).await.expect("a topic");
    assert!(again.settings().is_empty(), "{:?}", again.settings());
}

/// Times never fall within a partition, and a look-up finds the first record at or after a time.
pub async fn a_time_is_looked_up(subject: &dyn Subject) {
    let rig = Rig::open(subject, 1 << 20);
    let topic = rig.topic().await;
    let partition = topic.partitions()[0].clone();
    let mut offsets = Vec::new();
    for id in ["1", "2", "3"] {
        offsets.extend(rig.append(&partition, &[id]).await);
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    let records = rig.plugin.read(&partition, Offset(0), ALL).expect("read");
    let times: Vec<u64> = records.iter().map(|record| record.record().accepted_at_ms).collect();
    assert!(times.is_sorted(), "{times:?}");
    let at = |at: u64| rig.plugin.offset_at(&partition, UnixMillis(at)).expect("looked up");
    assert_eq!(at(0), offsets[0]);
    assert_eq!(at(times[1]), offsets[1]);
    assert_eq!(at(times[2] + 1), partition.end());
}

/// Retention drops what is done with and old or too much, keeps the backlog, and counts when it cannot.
pub async fn retention_drops_what_is_done_with(subject: &dyn Subject) {
    let rig = Rig::open(subject, 1 << 20);
    let topic = rig.topic().await;
    let partition = topic.partitions()[0].clone();
    let offsets = rig.append(&partition, &["1", "2", "3", "4"]).await;
    let nothing = Retain {
        done_below: Some(offsets[2]),
        done_before: None,
        done_bytes: None,
        backlog_before: None,
        backlog_bytes: None,
    };
    let retained = rig.storage.retain(&partition, nothing).await.expect("retained");
    assert_eq!((retained.start, retained.dropped_backlog), (Offset(0), 0));
    let late = Some(UnixMillis(u64::MAX));
    let old =
        rig.storage.retain(&partition, Retain { done_before: late, ..nothing }).await.expect("retained");
    assert_eq!((old.start, old.dropped_backlog), (offsets[2], 0));
    assert_eq!(partition.cached(Offset(0), 10, &mut Vec::new()), Cached::GoneTo(offsets[2]));
    assert_eq!(rig.read(&partition, 0), ["3", "4"]);
    let large =
        rig.storage.retain(&partition, Retain { backlog_bytes: Some(1), ..nothing }).await.expect("retained");
    assert_eq!((large.start, large.dropped_backlog), (partition.end(), 2));
    let next = rig.append(&partition, &["5"]).await;
    assert!(next[0] > offsets[3], "an offset was used twice");
}

/// Boot may raise the next offset, never lower it.
pub async fn the_end_can_be_raised(subject: &dyn Subject) {
    let rig = Rig::open(subject, 1 << 20);
    let topic = rig.topic().await;
    let partition = topic.partitions()[0].clone();
    rig.append(&partition, &["1"]).await;
    rig.storage.raise_end(&partition, Offset(100)).expect("raised");
    rig.storage.raise_end(&partition, Offset(5)).expect("nothing to do");
    assert_eq!(rig.append(&partition, &["2"]).await, [Offset(100)]);
    assert_eq!(rig.read(&partition, 0), ["1", "2"]);
}

/// Records leave memory under the budget and are found again in the log, in order and whole.
pub async fn a_small_tail_cache_loses_nothing(subject: &dyn Subject) {
    let rig = Rig::open(subject, 2_000);
    let topic = rig.topic().await;
    let partition = topic.partitions()[0].clone();
    let names: Vec<String> = (0..700).map(|n| n.to_string()).collect();
    for chunk in names.chunks(7) {
        let chunk: Vec<&str> = chunk.iter().map(String::as_str).collect();
        rig.append(&partition, &chunk).await;
    }
    assert!(rig.storage.tail_bytes() <= 2_000, "{}", rig.storage.tail_bytes());
    let mut from = Offset(0);
    let mut found = Vec::new();
    while from < partition.end() {
        let mut out = Vec::new();
        match partition.cached(from, 50, &mut out) {
            Cached::UpTo(to) => from = to,
            Cached::GoneTo(to) => panic!("gone to {to}"),
            Cached::Cold => rig.storage.warm(&partition, from).await.expect("warmed"),
        }
        found.extend(ids(&out));
    }
    assert_eq!(found, names);
    let one = rig.storage.record(&partition, Offset(3)).await.expect("read").expect("there");
    assert_eq!(one.record().event.id(), "3");
}

/// Appends from many tasks at once all get an offset of their own.
pub async fn concurrent_appends_share_no_offset(subject: &dyn Subject) {
    let rig = Arc::new(Rig::open(subject, 1 << 20));
    let topic = rig.topic().await;
    let partition = topic.partitions()[0].clone();
    let appends: Vec<Append> =
        (0..500).map(|n| rig.storage.append(vec![item(&partition, &n.to_string())])).collect();
    let mut offsets = Vec::new();
    for append in appends {
        offsets.extend(rig.storage.appended(append).await.expect("appended"));
    }
    assert!(offsets.is_sorted_by(|a, b| a < b), "{offsets:?}");
    assert_eq!(rig.read(&partition, 0).len(), 500);
}

/// What still holds a partition of a deleted topic can neither append to it nor read from it; an append with one item
/// for such a partition stores none of its items.
pub async fn a_deleted_topic_takes_nothing_and_shows_nothing(subject: &dyn Subject) {
    let rig = Rig::open(subject, 1 << 20);
    let gone = rig.topic().await.partitions()[0].clone();
    rig.append(&gone, &["1"]).await;
    let other = TopicName::new("other").expect("a legal name");
    let other = rig.storage.ensure_topic(&other, true, None).await.expect("a topic");
    let stays = other.partitions()[0].clone();
    let name = TopicName::new("t").expect("a legal name");
    assert!(rig.plugin.delete_topic(&name).expect("deleted"));
    for items in [vec![item(&gone, "2")], vec![item(&stays, "3"), item(&gone, "4")]] {
        let refused = rig.storage.appended(rig.plugin.append(items.into())).await;
        assert_eq!(refused.expect_err("the topic is gone").kind(), BackendErrorKind::Refused);
    }
    assert_eq!(rig.plugin.read(&gone, Offset(0), ALL).expect("read").len(), 0);
    assert_eq!(rig.plugin.bytes(&gone).expect("counted"), 0);
    let everything = Retain {
        done_below: Some(Offset(0)),
        done_before: Some(UnixMillis(u64::MAX)),
        done_bytes: Some(0),
        backlog_before: Some(UnixMillis(u64::MAX)),
        backlog_bytes: Some(0),
    };
    let dropped = rig.plugin.retain(&gone, &everything).expect("looked at").dropped_backlog;
    assert_eq!(dropped, 0, "what went with its topic was not dropped by a limit");
    assert_eq!(rig.read(&stays, 0), [""; 0], "an append is one effect");
    rig.append(&stays, &["5"]).await;
    assert_eq!(rig.read(&stays, 0), ["5"]);
    assert!(!rig.plugin.set_topic(&name, &TopicSettings::default()).expect("there is none"));
    assert!(rig.plugin.add_partitions(&name, 9).expect("there is none").is_none());
}

/// After its end a log takes no appends and makes no topics; it says that it is not available, and does not keep who
/// asked waiting.
pub async fn a_closed_log_refuses_what_is_appended_or_made(subject: &dyn Subject) {
    let rig = Rig::open(subject, 1 << 20);
    let partition = rig.topic().await.partitions()[0].clone();
    rig.append(&partition, &["1"]).await;
    rig.plugin.close();
    for items in [vec![item(&partition, "2")], vec![item(&partition, "3"), item(&partition, "4")]] {
        let refused = rig.storage.appended(rig.plugin.append(items.into())).await;
        assert_eq!(refused.expect_err("it is closed").kind(), BackendErrorKind::Unavailable);
    }
    let other = TopicName::new("other").expect("a legal name");
    let refused = rig.plugin.create_topic(&other, 1, &TopicSettings::default());
    assert_eq!(refused.expect_err("it is closed").kind(), BackendErrorKind::Unavailable);
    let refused = rig.plugin.add_partitions(partition.topic(), 9);
    assert_eq!(refused.expect_err("it is closed").kind(), BackendErrorKind::Unavailable);
    rig.plugin.close();
}

/// Runs every rule on a subject of its own.
#[macro_export]
macro_rules! storage_conformance {
    ($subject:expr) => {
        $crate::storage_conformance!(@rules $subject;
            offsets_rise_and_reads_keep_their_order,
            a_batch_is_one_effect_over_partitions,
            a_read_obeys_its_limits,
            a_restart_keeps_what_the_capabilities_promise,
            a_topic_made_again_is_another_incarnation,
            added_partitions_are_empty_and_the_others_stay,
            settings_of_a_topic_live_and_end_with_it,
            a_time_is_looked_up,
            retention_drops_what_is_done_with,
            the_end_can_be_raised,
            a_small_tail_cache_loses_nothing,
            concurrent_appends_share_no_offset,
            a_deleted_topic_takes_nothing_and_shows_nothing,
            a_closed_log_refuses_what_is_appended_or_made,
        );
    };
    (@rules $subject:expr; $($rule:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $rule() {
            $crate::conformance::$rule(&$subject).await;
        })*
    };
}
