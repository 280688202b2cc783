//! The in-memory log.

use std::sync::Arc;

use mesh_base::{Clock, Signals};
use mesh_frame::{EventBuilder, TopicName};
use mesh_storage::{
    AppendItem, Cached, Memory, Storage, StorageLimits, StoragePlugin, Tail, TopicRules, conformance::Subject,
};

struct InMemory;

impl Subject for InMemory {
    fn open(&self, clock: Clock, tail: Arc<Tail>) -> Arc<dyn StoragePlugin> {
        Arc::new(Memory::new(clock, tail, &Signals::new()))
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
