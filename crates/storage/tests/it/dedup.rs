//! Publisher deduplication on the embedded log.

use std::{sync::Arc, time::Duration};

use mesh_base::{Clock, Signals};
use mesh_frame::{Event, EventBuilder, Offset, PartitionId, TopicName};
use mesh_rocks::Machine;
use mesh_storage::{
    AppendItem, Claim, Deduplicator, Embedded, EmbeddedSettings, EventKey, Partition, Storage, StorageLimits,
    SyncPolicy, Watermark,
};

struct Opened {
    storage: Storage,
    index: Deduplicator,
    partition: Arc<Partition>,
}

async fn open(folder: &std::path::Path, most: usize) -> Opened {
    let (tail, announcements) = Storage::tail(1 << 20);
    let watermark = Arc::new(Watermark::new(folder.to_owned(), Some(0)));
    let settings =
        EmbeddedSettings { path: folder.to_owned(), sync: SyncPolicy::Always, write_buffer_bytes: 1 << 20 };
    let log = Embedded::open(&settings, &Machine::default(), Clock::system(), tail.clone(), watermark)
        .expect("opens");
    let limits = StorageLimits { partitions: 1, topics: 10 };
    let storage = Storage::new(Arc::new(log), tail, limits, None, &Signals::new()).expect("topics");
    let index = Deduplicator::new(Duration::from_secs(600), most, Clock::system(), &Signals::new());
    announcements.deduplicate(&storage, &index).expect("reads the window");
    let topic =
        storage.ensure_topic(&TopicName::new("t").expect("legal"), true, None).await.expect("a topic");
    let partition = topic.partition(PartitionId(0)).expect("it has one");
    Opened { storage, index, partition }
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
        self.index.claim(&keys, Duration::from_millis(50)).await
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
        log.index.claim(std::slice::from_ref(&keys[0]), Duration::from_secs(10)),
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
    }
    let found = before(&log.claim(&["1", "2", "3", "4"]).await);
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, true, true]);
}
