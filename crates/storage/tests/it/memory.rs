//! The in-memory log.

use std::sync::Arc;

use mesh_base::{Chance, Clock, Signals};
use mesh_frame::{EventBuilder, Offset, TopicName};
use mesh_storage::{
    AppendItem, Cached, Memory, Storage, StorageLimits, StoragePlugin, Tail, TopicRules, conformance::Subject,
};

struct InMemory;

impl Subject for InMemory {
    fn open(&self, clock: Clock, tail: Arc<Tail>) -> Arc<dyn StoragePlugin> {
        Arc::new(Memory::new(clock, Chance::system(), tail, &Signals::new()))
    }
}

mesh_storage::storage_conformance!(InMemory);

#[tokio::test]
async fn the_newest_records_stay_in_memory_whatever_their_size() {
    const BUDGET: u64 = 4 << 20;
    for bytes in [200, 20_000, 300_000, 900_000] {
        let (tail, _) = Storage::tail(BUDGET);
        let plugin = InMemory.open(Clock::system(), tail.clone());
        let limits = StorageLimits { partitions: 1, topics: 10, rules: TopicRules::default() };
        let storage = Storage::new(plugin, tail, limits, None, &Signals::new()).expect("topics");
        let name = TopicName::new("t").expect("legal");
        let partition = storage.ensure_topic(&name, true, None).await.expect("a topic").next_partition();
        let data = "x".repeat(bytes);
        for id in 0..(3 * BUDGET as usize / bytes) {
            let event = EventBuilder::new(&id.to_string(), "/s", "t").text(&data).build().expect("legal");
            let item = AppendItem { partition: partition.clone(), event };
            let offset = storage.appended(storage.append(vec![item])).await.expect("stored")[0];
            let mut found = Vec::new();
            assert_ne!(partition.cached(offset, 1, &mut found), Cached::Cold, "{bytes} bytes, {id}");
            assert_eq!(found.len(), 1, "{bytes} bytes, {id}");
            assert!(storage.tail_bytes() <= BUDGET, "{bytes} bytes, {id}: {}", storage.tail_bytes());
        }
        // Not much less than fits is there; a record counts twice for its JSON.
        let least = BUDGET - BUDGET / 16 - 2 * (2 * bytes as u64 + 400);
        assert!(storage.tail_bytes() >= least, "{bytes} bytes: {}", storage.tail_bytes());
    }
}

/// An event of a topic of its own, or one more of it, that is no longer in the tail.
async fn cold_event(storage: &Storage, name: &str, bytes: usize) -> (Arc<mesh_storage::Partition>, Offset) {
    let name = TopicName::new(name).expect("legal");
    let partition = storage.ensure_topic(&name, true, Some(1)).await.expect("a topic").next_partition();
    let event = EventBuilder::new("1", "/s", "t").text(&"x".repeat(bytes)).build().expect("legal");
    let item = AppendItem { partition: partition.clone(), event };
    let offset = storage.appended(storage.append(vec![item])).await.expect("stored")[0];
    (partition, offset)
}

#[tokio::test]
async fn what_is_in_the_log_is_never_said_to_be_gone_and_deleted_topics_hold_no_room() {
    // The tail keeps nothing, and a few of these are more than the cold chunks of all partitions may hold.
    let (tail, _) = Storage::tail(1);
    let plugin = InMemory.open(Clock::system(), tail.clone());
    let limits = StorageLimits { partitions: 1, topics: 100, rules: TopicRules::default() };
    let storage = Storage::new(plugin, tail, limits, None, &Signals::new()).expect("topics");
    let mut large = Vec::new();
    for _ in 0..8 {
        large.push(cold_event(&storage, "t", 5 << 20).await);
    }
    for (partition, offset) in &large {
        let found = storage.record(partition, *offset).await.expect("read");
        assert!(found.is_some(), "{offset:?} is there");
    }
    for number in 0..8 {
        let name = format!("old-{number}");
        let (partition, offset) = cold_event(&storage, &name, 5 << 20).await;
        assert!(storage.record(&partition, offset).await.expect("read").is_some());
        drop(partition);
        assert!(storage.delete_topic(&TopicName::new(&name).expect("legal")).await.expect("deleted"));
    }
    // Two partitions that are read in turns keep what was read of them.
    let (one, at) = cold_event(&storage, "one", 100).await;
    let (other, other_at) = cold_event(&storage, "other", 100).await;
    for (partition, offset) in [(&one, at), (&other, other_at)] {
        storage.warm(partition, offset).await.expect("read");
    }
    for (partition, offset) in [(&one, at), (&other, other_at)] {
        assert_ne!(partition.cached(offset, 1, &mut Vec::new()), Cached::Cold, "{:?}", partition.topic());
    }
}

#[tokio::test]
async fn it_keeps_256_mebibytes_and_drops_the_oldest_beyond_them_counted() {
    let (tail, _) = Storage::tail(1 << 20);
    let signals = Signals::new();
    let plugin = Arc::new(Memory::new(Clock::system(), Chance::system(), tail.clone(), &signals));
    let limits = StorageLimits { partitions: 1, topics: 10, rules: TopicRules::default() };
    let storage = Storage::new(plugin, tail, limits, None, &signals).expect("topics");
    let name = TopicName::new("t").expect("legal");
    let partition = storage.ensure_topic(&name, true, None).await.expect("a topic").next_partition();
    let data = "x".repeat(4 << 20);
    let dropped_after = async |events: u32| {
        for id in 0..events {
            let event = EventBuilder::new(&id.to_string(), "/s", "t").text(&data).build().expect("legal");
            let item = AppendItem { partition: partition.clone(), event };
            storage.appended(storage.append(vec![item])).await.expect("stored");
        }
        let text = signals.text();
        let dropped =
            text.lines().find_map(|line| line.strip_prefix("eventmesh_storage_memory_dropped_total "));
        dropped.expect("a metric").parse::<u64>().expect("a number")
    };
    assert_eq!(dropped_after(31).await, 0, "all of them fit: an event counts for its bytes and its JSON");
    let dropped = dropped_after(10).await;
    assert!((9..=10).contains(&dropped), "of 41 events of 4 MiB {dropped} were dropped");
    let read = storage.read(&partition, Offset(0)).await.expect("read");
    assert_eq!(read.first().map(|record| record.offset().0), Some(dropped), "the oldest");
}
