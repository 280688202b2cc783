//! The local driver keeps the contract, on real files.

use mesh_base::BackendErrorKind;
use tokio::task::JoinSet;

use super::*;
use crate::{WatchEvent, conformance};

fn opened(folder: &tempfile::TempDir) -> Arc<dyn MetaDriver> {
    let settings = LocalMetaSettings::at(folder.path().join("meta"));
    Arc::new(LocalMeta::open(&settings, &Machine::default()).expect("opens"))
}

crate::conformance_tests!({
    let folder = tempfile::tempdir().expect("a folder");
    (opened(&folder), folder)
});

#[tokio::test]
async fn a_restart_keeps_everything() {
    // proves: MB-5
    let folder = tempfile::tempdir().expect("a folder");
    let last = conformance::before_a_restart(opened(&folder)).await;
    conformance::a_restart_keeps_everything(opened(&folder), last).await;
}

#[tokio::test]
async fn a_database_that_cannot_be_opened_is_named_with_its_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("meta");
    drop(opened(&folder));
    std::fs::write(path.join("CURRENT"), b"nonsense\n").expect("damaged");
    let error = LocalMeta::open(&LocalMetaSettings::at(&path), &Machine::default()).err().expect("refused");
    assert!(
        error.chain().contains(&format!("failed to open RocksDB meta store at {}", path.display())),
        "{}",
        error.chain()
    );
}

#[tokio::test]
async fn a_second_process_is_refused_while_the_first_has_the_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let _first = opened(&folder);
    let settings = LocalMetaSettings::at(folder.path().join("meta"));
    let error = LocalMeta::open(&settings, &Machine::default()).err().expect("refused");
    assert_eq!(error.kind(), BackendErrorKind::Unavailable, "{}", error.chain());
}

#[tokio::test]
async fn a_store_of_a_newer_format_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = LocalMetaSettings::at(folder.path().join("meta"));
    let spec = Spec {
        name: NAME,
        path: settings.path.clone(),
        families: FAMILIES,
        write_buffer_bytes: settings.write_buffer_bytes,
    };
    let db = LocalDb::open(&spec, &Machine::default()).expect("opens");
    let mut batch = mesh_rocks::Batch::new();
    batch.put("default", b"format", [2]);
    db.write(&batch, mesh_rocks::Durability::Synced).expect("writes");
    drop(db);
    let error = LocalMeta::open(&settings, &Machine::default()).err().expect("refused");
    assert_eq!(error.kind(), BackendErrorKind::Refused);
    assert!(error.chain().contains("format [2]"), "{}", error.chain());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_share_a_batch_see_each_other_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let driver = opened(&folder);
    let mut watch = driver.watch("/k/").await.expect("watches");
    let mut writers = JoinSet::new();
    for n in 0..200 {
        let driver = driver.clone();
        writers.spawn(async move {
            let key = format!("/k/{}", n % 5);
            match driver.put_if_absent(&key, Bytes::from(vec![n])).await.expect("answers") {
                PutIfAbsent::Written(_) => {}
                PutIfAbsent::AlreadyThere(current) => {
                    // Another writer may have been first.
                    match driver.try_remove(&key, &current.value).await.expect("answers") {
                        Remove::Removed(_) | Remove::Stale(_) => {}
                    }
                }
            }
        });
    }
    writers.join_all().await;
    // The events alone rebuild exactly what the store holds.
    let end = driver.put("/k/end", Bytes::new()).await.expect("writes");
    let mut rebuilt = std::collections::BTreeMap::new();
    let mut last = Revision(0);
    loop {
        match watch.next().await.expect("open") {
            WatchEvent::Put { key, value, revision } => {
                assert!(revision > last);
                last = revision;
                rebuilt.insert(key, value);
            }
            WatchEvent::Delete { key, revision } => {
                assert!(revision > last);
                last = revision;
                assert!(rebuilt.remove(&key).is_some(), "{key} was there");
            }
            WatchEvent::Lost => panic!("the queue is long enough"),
        }
        if last == end {
            break;
        }
    }
    let listing = driver.get_with_prefix("/k/", &Page::first(100)).await.expect("lists");
    let stored: std::collections::BTreeMap<_, _> =
        listing.entries.into_iter().map(|entry| (entry.key, entry.current.value)).collect();
    assert_eq!(rebuilt, stored);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failed_write_it_takes_changes_again_by_itself_and_watchers_look_again() {
    // covers: U66
    let folder = tempfile::tempdir().expect("a folder");
    let (path, away) = (folder.path().join("meta"), folder.path().join("away"));
    let driver = opened(&folder);
    driver.put("/k/before", Bytes::from_static(b"1")).await.expect("writes");
    // RocksDB can make no new write-ahead log while the folder is not where it was.
    std::fs::rename(&path, &away).expect("moved away");
    let mut answered = 0;
    while driver.put(&format!("/k/{answered:04}"), Bytes::from(vec![7; 256 << 10])).await.is_ok() {
        answered += 1;
        assert!(answered < 400, "100 MB were written without a new write-ahead log");
    }
    let mut watch = driver.watch("/k/").await.expect("watches");
    let held = driver.get("/k/before").await.expect("reads go on").expect("it is there");
    let refused = driver.try_acquire("/k/before", &held.value, Bytes::from_static(b"2")).await;
    assert_eq!(refused.expect_err("no writes").kind(), BackendErrorKind::Unavailable);
    std::fs::rename(&away, &path).expect("moved back");
    let lost = tokio::time::timeout(Duration::from_secs(20), watch.next()).await;
    assert_eq!(lost.expect("healed within 20 s"), Some(WatchEvent::Lost));
    let revision = driver.put("/k/after", Bytes::new()).await.expect("writes again");
    assert!(revision > held.revision);
    let listing = driver.get_with_prefix("/k/", &Page::first(1_000)).await.expect("lists");
    assert!(listing.revision >= revision);
    for n in 0..answered {
        assert!(driver.get(&format!("/k/{n:04}")).await.expect("reads").is_some(), "put {n} was answered");
    }
    drop(driver);
    let driver = opened(&folder);
    assert!(driver.get("/k/after").await.expect("reads").is_some());
}
