//! Publisher deduplication on the embedded log.

use std::{sync::Arc, time::Duration};

use mesh_base::{Clock, Signals};
use mesh_frame::{Event, EventBuilder, Offset, PartitionId, TopicName};
use mesh_rocks::Machine;
use mesh_storage::{
    AppendItem, Change, Claim, Deduplicator, Embedded, EmbeddedSettings, EventKey, Memory, Partition,
    SettingsChange, Storage, StorageLimits, SyncPolicy, Topic, TopicRules, TopicSettings, Watermark,
};

struct Opened {
    storage: Storage,
    index: Deduplicator,
    topic: Arc<Topic>,
    partition: Arc<Partition>,
}

async fn open(folder: &std::path::Path, most: usize) -> Opened {
    let (tail, announcements) = Storage::tail(1 << 20);
    let watermark = Arc::new(Watermark::new(folder.to_owned(), Some(0)));
    let settings =
        EmbeddedSettings { path: folder.to_owned(), sync: SyncPolicy::Always, write_buffer_bytes: 1 << 20 };
    let log = Embedded::open(
        &settings,
        &Machine::default(),
        Clock::system(),
        mesh_base::Chance::system(),
        tail.clone(),
        watermark,
    )
    .expect("opens");
    let rules = TopicRules { dedup_window: Duration::from_secs(600), ..TopicRules::default() };
    let limits = StorageLimits { partitions: 1, topics: 10, rules };
    let storage = Storage::new(Arc::new(log), tail, limits, None, &Signals::new()).expect("topics");
    let index = Deduplicator::new(most, Clock::system(), &Signals::new());
    announcements.deduplicate(&storage, &index).expect("reads the window");
    let topic =
        storage.ensure_topic(&TopicName::new("t").expect("legal"), true, None).await.expect("a topic");
    let partition = topic.partition(PartitionId(0)).expect("it has one");
    Opened { storage, index, topic, partition }
}

fn event(id: &str) -> Event {
    EventBuilder::new(id, "/s", "t").build().expect("an event")
}

impl Opened {
    fn key(&self, id: &str) -> EventKey {
        EventKey::of(&self.partition, &event(id))
    }

    async fn store(&self, id: &str) -> Offset {
        let items = vec![AppendItem { partition: self.partition.clone(), event: event(id) }];
        self.storage.appended(self.storage.append(items)).await.expect("stored")[0]
    }

    async fn claim(&self, ids: &[&str]) -> Claim {
        let keys: Vec<EventKey> = ids.iter().map(|id| self.key(id)).collect();
        self.index.claim(&self.topic, &keys, Duration::from_millis(50)).await
    }
}

fn before(claim: &Claim) -> Vec<Option<Offset>> {
    match claim {
        Claim::Granted(positions, _) => {
            positions.iter().map(|found| found.map(|(_, offset)| offset)).collect()
        }
        Claim::Undecided => panic!("undecided"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_stored_is_recognised_with_its_first_position_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = open(folder.path(), 100).await;
    let claim = log.claim(&["1"]).await;
    assert_eq!(before(&claim), [None]);
    let Claim::Granted(_, mut claimed) = claim else { panic!("granted") };
    claimed.submitted();
    let offset = log.store("1").await;
    assert_eq!(before(&log.claim(&["1", "2"]).await), [Some(offset), None]);
    log.storage.close();
    drop(log);
    let log = open(folder.path(), 100).await;
    assert_eq!(before(&log.claim(&["1", "2"]).await), [Some(offset), None]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_publisher_waits_for_the_first_and_gets_its_outcome() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = open(folder.path(), 100).await;
    let Claim::Granted(_, first) = log.claim(&["1", "2"]).await else { panic!("granted") };
    assert!(matches!(log.claim(&["2", "3"]).await, Claim::Undecided), "the first has not decided");
    drop(first);
    let Claim::Granted(found, mut second) = log.claim(&["2", "3"]).await else { panic!("granted") };
    assert_eq!(found, [None, None], "the first gave up");
    let keys = second.submitted();
    assert_eq!(keys.len(), 2);
    let (third, offset) = tokio::join!(
        log.index.claim(&log.topic, std::slice::from_ref(&keys[0]), Duration::from_secs(10)),
        log.store("2")
    );
    assert_eq!(before(&third), [Some(offset)], "the log decided");
    log.index.release(&keys[1..]);
    assert_eq!(before(&log.claim(&["3", "3"]).await).iter().filter(|found| found.is_none()).count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_its_bound_the_oldest_is_forgotten_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = open(folder.path(), 3).await;
    for id in ["1", "2", "3", "4"] {
        log.store(id).await;
        // Those of one millisecond have no order.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let found = before(&log.claim(&["1", "2", "3", "4"]).await);
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, true, true]);
}

/// Claims, as a publisher that goes on to the log.
async fn submit(log: &Opened, topic: &Topic, partition: &Arc<Partition>, id: &str) -> Option<Offset> {
    let key = EventKey::of(partition, &event(id));
    match log.index.claim(topic, &[key], Duration::from_millis(50)).await {
        Claim::Granted(positions, mut claimed) => {
            let before = positions[0].map(|(_, offset)| offset);
            if before.is_none() {
                claimed.submitted();
                let items = vec![AppendItem { partition: partition.clone(), event: event(id) }];
                log.storage.appended(log.storage.append(items)).await.expect("stored");
            }
            before
        }
        Claim::Undecided => panic!("undecided"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_without_a_window_is_not_remembered_and_one_that_gets_a_window_is_read_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = open(folder.path(), 100).await;
    let off = TopicSettings { dedup_window_ms: Some(0), ..TopicSettings::default() };
    let name = TopicName::new("off").expect("legal");
    let topic = log.storage.create_topic(&name, Some(1), off).await.expect("a topic");
    let partition = topic.partition(PartitionId(0)).expect("it has one");
    let items = vec![AppendItem { partition: partition.clone(), event: event("1") }];
    let offset = log.storage.appended(log.storage.append(items)).await.expect("stored")[0];
    assert_eq!((topic.dedup_window(), log.index.known()), (Duration::ZERO, 0));
    let change = SettingsChange { dedup_window_ms: Change::Set(60_000), ..SettingsChange::default() };
    log.storage.change_topic(&name, &change).await.expect("changed");
    assert_eq!(submit(&log, &topic, &partition, "1").await, Some(offset), "it was stored before");
    assert_eq!(submit(&log, &topic, &partition, "2").await, None);
    log.storage.close();
    drop((log, topic, partition));
    let log = open(folder.path(), 100).await;
    let topic = log.storage.topic(&name).expect("it is there");
    let partition = topic.partition(PartitionId(0)).expect("it has one");
    assert_eq!((topic.dedup_window(), log.index.known()), (Duration::from_secs(60), 2));
    assert_eq!(submit(&log, &topic, &partition, "2").await, Some(Offset(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_bound_those_go_first_whose_window_ends_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = open(folder.path(), 2).await;
    let short = TopicSettings { dedup_window_ms: Some(5_000), ..TopicSettings::default() };
    let name = TopicName::new("short").expect("legal");
    let topic = log.storage.create_topic(&name, Some(1), short).await.expect("a topic");
    let partition = topic.partition(PartitionId(0)).expect("it has one");
    log.store("1").await;
    assert_eq!(submit(&log, &topic, &partition, "of the short window").await, None);
    log.store("2").await;
    assert_eq!(log.index.known(), 2);
    assert_eq!(submit(&log, &topic, &partition, "of the short window").await, None, "it was forgotten");
    assert!(before(&log.claim(&["1", "2"]).await).iter().all(Option::is_some));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_nobody_decides_is_void_after_a_minute_and_then_forgotten() {
    let (tail, announcements) = Storage::tail(1 << 20);
    let (clock, signals) = (Clock::system(), Signals::new());
    let rules = TopicRules { dedup_window: Duration::from_secs(600), ..TopicRules::default() };
    let limits = StorageLimits { partitions: 1, topics: 10, rules };
    let log = Memory::new(clock, mesh_base::Chance::system(), tail.clone(), &signals);
    let storage = Storage::new(Arc::new(log), tail, limits, None, &Signals::new()).expect("topics");
    let index = Deduplicator::new(100, clock, &signals);
    announcements.deduplicate(&storage, &index).expect("reads the window");
    let topic =
        storage.ensure_topic(&TopicName::new("t").expect("legal"), true, None).await.expect("a topic");
    let partition = topic.partition(PartitionId(0)).expect("it has one");
    let key = |id: &str| EventKey::of(&partition, &event(id));
    let keys: Vec<EventKey> = (0..1_000).map(|id| key(&id.to_string())).collect();
    let claim = index.claim(&topic, &keys, Duration::ZERO).await;
    let Claim::Granted(_, mut claimed) = claim else { panic!("granted") };
    // Its publisher timed out, and the log never stored it.
    claimed.submitted();
    drop(claimed);
    assert_eq!(index.on_their_way(), 1_000);
    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(matches!(index.claim(&topic, &keys[..1], Duration::ZERO).await, Claim::Undecided));
    tokio::time::advance(Duration::from_secs(11)).await;
    let Claim::Granted(found, other) = index.claim(&topic, &[key("other")], Duration::ZERO).await else {
        panic!("granted")
    };
    assert_eq!((found, index.on_their_way()), (vec![None], 1));
    drop(other);
    assert_eq!(before(&index.claim(&topic, &keys[..1], Duration::ZERO).await), [None]);
    assert_eq!(index.on_their_way(), 0);
}

#[tokio::test]
async fn what_another_tenant_published_is_no_duplicate() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = open(folder.path(), 100).await;
    let of =
        |tenant: &str| EventKey::of(&log.partition, &event("1").with_attributes(&[("emtenantid", tenant)]));
    assert_eq!(of("shop"), of("shop"));
    assert_ne!(of("shop"), of("other"));
    assert_ne!(of("shop"), log.key("1"));
}
