//! The embedded log on real files.

use std::{fs, path::Path, sync::Arc, time::Duration};

use mesh_base::{BackendErrorKind, Clock, Signals};
use mesh_frame::{EventBuilder, Offset, TopicName};
use mesh_rocks::Machine;
use mesh_storage::{
    AppendItem, Embedded, EmbeddedSettings, ReadLimit, Storage, StorageLimits, StoragePlugin, SyncPolicy,
    Tail, TopicRules, Watermark,
    conformance::{Rig, Subject},
};

struct OnDisk(tempfile::TempDir);

impl OnDisk {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }
}

fn settings(path: &Path) -> EmbeddedSettings {
    EmbeddedSettings { path: path.to_owned(), sync: SyncPolicy::Always, write_buffer_bytes: 4 << 20 }
}

impl Subject for OnDisk {
    fn open(&self, clock: Clock, tail: Arc<Tail>) -> Arc<dyn StoragePlugin> {
        let watermark = Arc::new(Watermark::new(self.0.path().to_owned(), Some(0)));
        let log = Embedded::open(
            &settings(self.0.path()),
            &Machine::default(),
            clock,
            mesh_base::Chance::system(),
            tail,
            watermark,
        );
        Arc::new(log.expect("opens"))
    }
}

mesh_storage::storage_conformance!(OnDisk::new());

/// Flips a byte in every place where `needle` stands in a file of the folder.
fn damage(folder: &Path, ending: &str, needle: &[u8]) -> usize {
    let mut places = 0;
    for entry in fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        if !path.to_string_lossy().ends_with(ending) {
            continue;
        }
        let mut bytes = fs::read(&path).expect("read");
        let found: Vec<usize> = bytes
            .windows(needle.len())
            .enumerate()
            .filter(|(_, window)| *window == needle)
            .map(|(at, _)| at)
            .collect();
        for at in found {
            bytes[at] ^= 0xff;
            places += 1;
        }
        fs::write(&path, &bytes).expect("written");
    }
    places
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_write_ahead_log_stops_the_boot() {
    // proves: FM-4
    let subject = OnDisk::new();
    let rig = Rig::open(&subject, 1 << 20);
    let partition = rig.topic().await.partitions()[0].clone();
    for n in 0..50 {
        rig.append(&partition, &[format!("needle{n}").as_str()]).await;
    }
    rig.storage.close();
    drop((rig, partition));
    assert!(damage(subject.0.path(), ".log", b"needle10") > 0, "the log holds the event");
    let (tail, _) = Storage::tail(0);
    let watermark = Arc::new(Watermark::new(subject.0.path().to_owned(), Some(0)));
    let opened = Embedded::open(
        &settings(subject.0.path()),
        &Machine::default(),
        Clock::system(),
        mesh_base::Chance::system(),
        tail,
        watermark,
    );
    let Err(error) = opened else { panic!("opened a log that lost synced events") };
    assert_eq!(error.kind(), BackendErrorKind::Corrupt);
    assert!(error.chain().contains("failed to open RocksDB embedded log at"), "{}", error.chain());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_record_is_reported_and_what_is_before_it_is_read() {
    let subject = OnDisk::new();
    let rig = Rig::open(&subject, 1 << 20);
    let topic = rig.topic().await;
    let partition = topic.partitions()[0].clone();
    // More than a memtable, so that bodies are in blob files.
    let body: String =
        (0..20_000u32).map(|n| char::from(b'a' + (n.wrapping_mul(2_654_435_761) >> 27) as u8 % 26)).collect();
    for n in 0..600 {
        rig.append(&partition, &[format!("needle{n:03}-{body}").as_str()]).await;
    }
    rig.storage.close();
    drop((rig, topic, partition));
    let damaged = damage(subject.0.path(), ".blob", b"needle005");
    assert!(damaged > 0, "no blob file holds the event");
    let rig = Rig::open(&subject, 1 << 20);
    let topic = rig.topic().await;
    let partition = topic.partitions()[0].clone();
    let all = ReadLimit { records: usize::MAX, bytes: usize::MAX };
    match rig.plugin.read(&partition, Offset(0), all) {
        // A checksum of RocksDB's own stopped the scan.
        Err(error) => assert_eq!(error.kind(), BackendErrorKind::Corrupt),
        Ok(records) => {
            assert_eq!(records.len(), 5, "what is before the damage");
            let error = rig.plugin.read(&partition, Offset(5), all).expect_err("the damage itself");
            assert_eq!(error.kind(), BackendErrorKind::Corrupt);
        }
    }
    assert!(rig.storage.warm(&partition, Offset(5)).await.is_err());
    assert_eq!(rig.storage.corrupt_records(), 1, "health is told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_log_takes_little_space() {
    let subject = OnDisk::new();
    let rig = Rig::open(&subject, 1 << 20);
    rig.topic().await;
    let size: u64 = fs::read_dir(subject.0.path())
        .expect("the folder")
        .map(|entry| {
            use std::os::unix::fs::MetadataExt;
            entry.expect("an entry").metadata().expect("its size").blocks() * 512
        })
        .sum();
    assert!(size < 50 << 20, "{size} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failed_write_the_log_writes_again_by_itself_and_shows_nothing_that_failed() {
    // covers: U66
    let root = tempfile::tempdir().expect("a folder");
    let (path, away) = (root.path().join("log"), root.path().join("away"));
    let (tail, _) = Storage::tail(0);
    let watermark = Arc::new(Watermark::new(root.path().to_owned(), Some(0)));
    let log = Embedded::open(
        &settings(&path),
        &Machine::default(),
        Clock::system(),
        mesh_base::Chance::system(),
        tail.clone(),
        watermark,
    );
    let log: Arc<dyn StoragePlugin> = Arc::new(log.expect("opens"));
    let limits = StorageLimits { partitions: 1, topics: 10, rules: TopicRules::default() };
    let storage = Storage::new(log.clone(), tail, limits, None, &Signals::new()).expect("no topics");
    let name = TopicName::new("t").expect("legal");
    let topic = storage.ensure_topic(&name, true, None).await.expect("made");
    let partition = topic.partitions()[0].clone();
    let append = async |id: String| {
        let event = EventBuilder::new(&id, "/s", "t").text("x".repeat(200_000).as_str()).build();
        let item = AppendItem { partition: partition.clone(), event: event.expect("an event") };
        let appended = storage.appended(storage.append(vec![item])).await;
        appended.map(|offsets| offsets[0])
    };
    // RocksDB can make no new write-ahead log while the folder is not where it was.
    fs::rename(&path, &away).expect("moved away");
    let mut stored = Vec::new();
    let error = loop {
        match append(format!("e-{}", stored.len())).await {
            Ok(offset) => stored.push((offset, format!("e-{}", stored.len()))),
            Err(error) => break error,
        }
        assert!(stored.len() < 500, "100 MB were written without a new write-ahead log");
    };
    assert_eq!(error.kind(), BackendErrorKind::Unavailable, "{}", error.chain());
    assert!(append("failed".into()).await.is_err(), "it stays so while the cause does");
    let all = ReadLimit { records: usize::MAX, bytes: usize::MAX };
    assert_eq!(log.read(&partition, Offset(0), all).expect("reads go on").len(), stored.len());
    fs::rename(&away, &path).expect("moved back");
    let healed = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            if let Ok(offset) = append("after".into()).await {
                return offset;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let offset = healed.await.expect("the log writes again within 20 s");
    assert!(stored.iter().all(|(before, _)| *before < offset), "offsets rise");
    stored.push((offset, "after".into()));
    let other = TopicName::new("other").expect("legal");
    storage.ensure_topic(&other, true, None).await.expect("topics can be made again");
    let read = |log: &Arc<dyn StoragePlugin>| -> Vec<(Offset, String)> {
        let records = log.read(&partition, Offset(0), all).expect("read");
        records.iter().map(|record| (record.offset(), record.record().event.id().to_owned())).collect()
    };
    assert_eq!(read(&log), stored);
    storage.close();
    drop((storage, log));
    let (tail, _) = Storage::tail(0);
    let watermark = Arc::new(Watermark::new(root.path().to_owned(), Some(0)));
    let log = Embedded::open(
        &settings(&path),
        &Machine::default(),
        Clock::system(),
        mesh_base::Chance::system(),
        tail,
        watermark,
    );
    let log: Arc<dyn StoragePlugin> = Arc::new(log.expect("opens"));
    assert_eq!(read(&log), stored, "nor after a restart");
}
