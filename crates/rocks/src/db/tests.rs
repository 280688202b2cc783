//! The policies of a local database, on real files.

use super::*;

const FAMILIES: &[Family] = &[Family { name: "rows", kind: FamilyKind::Rows }];

fn spec(path: &Path) -> Spec {
    Spec { name: "offset store", path: path.to_owned(), families: FAMILIES, write_buffer_bytes: 1 << 20 }
}

fn put(db: &LocalDb, key: &str, value: &str) {
    let mut batch = WriteBatch::default();
    batch.put_cf(db.family("rows"), key, value);
    db.write(batch, Durability::Logged).expect("a write to a healthy database");
}

fn filled() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let db = LocalDb::open(&spec(folder.path()), &Machine::default()).expect("a new database");
    for n in 0..100 {
        put(&db, &format!("key{n:03}"), &"v".repeat(200));
    }
    drop(db);
    folder
}

fn error_of(folder: &Path) -> String {
    match LocalDb::open(&spec(folder), &Machine::default()) {
        Ok(db) => panic!("opened with sequence {}", db.sequence()),
        Err(error) => error.chain(),
    }
}

fn file_ending(folder: &Path, ending: &str) -> PathBuf {
    let mut names: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().contains(ending))
        .collect();
    names.sort_by_key(|path| fs::metadata(path).expect("its size").len());
    names.pop().expect("a file of that kind")
}

#[test]
fn what_was_written_is_there_after_it_is_opened_again() {
    // proves: FM-3
    let folder = filled();
    let db = LocalDb::open(&spec(folder.path()), &Machine::default()).expect("opens again");
    assert_eq!(db.get("rows", b"key099").expect("reads").map(|v| v.len()), Some(200));
    let mut keys = 0;
    db.scan("rows", b"key050", Some(b"key060"), |_, _| {
        keys += 1;
        true
    })
    .expect("scans");
    assert_eq!(keys, 10);
    let (key, _) = db.last_below("rows", b"key050").expect("seeks").expect("a key below");
    assert_eq!(&*key, b"key049");
}

#[test]
fn a_damaged_log_that_lost_synced_writes_is_refused_and_left_as_it_is() {
    // proves: FM-4
    let folder = filled();
    let log = file_ending(folder.path(), ".log");
    let mut bytes = fs::read(&log).expect("the log");
    let middle = 5_000;
    bytes[middle] ^= 0xff;
    fs::write(&log, &bytes).expect("damaged");
    let text = error_of(folder.path());
    assert!(
        text.contains(&format!("failed to open RocksDB offset store at {}", folder.path().display())),
        "{text}"
    );
    assert!(text.contains("100 writes were synced"), "{text}");
}

#[test]
fn a_refused_database_keeps_every_file_as_it_was() {
    // proves: FM-4
    let folder = filled();
    let log = file_ending(folder.path(), ".log");
    let mut bytes = fs::read(&log).expect("the log");
    bytes[5_000] ^= 0xff;
    fs::write(&log, &bytes).expect("damaged");
    let listing = || -> Vec<(String, u64)> {
        let mut files: Vec<(String, u64)> = fs::read_dir(folder.path())
            .expect("the folder")
            .map(|entry| entry.expect("an entry"))
            .filter(|entry| !entry.file_name().to_string_lossy().starts_with("LOG"))
            .map(|entry| {
                (entry.file_name().to_string_lossy().into_owned(), entry.metadata().expect("its size").len())
            })
            .collect();
        files.sort();
        files
    };
    let before = listing();
    error_of(folder.path());
    assert_eq!(listing(), before);
    assert_eq!(fs::read(&log).expect("still there"), bytes);
}

#[test]
fn a_manifest_that_ends_early_or_was_changed_is_refused() {
    // covers: U65
    for share in [20, 40, 60, 80, 95] {
        let folder = filled();
        let manifest = file_ending(folder.path(), "MANIFEST");
        let bytes = fs::read(&manifest).expect("the manifest");
        fs::write(&manifest, &bytes[..bytes.len() * share / 100]).expect("cut");
        assert!(error_of(folder.path()).contains("manifest is damaged"), "{share} %");
        let mut changed = bytes.clone();
        changed[bytes.len() * share / 100] ^= 1;
        fs::write(&manifest, &changed).expect("changed");
        assert!(error_of(folder.path()).contains("manifest is damaged"), "{share} %");
    }
}

#[test]
fn a_lost_pointer_file_is_refused_instead_of_starting_empty() {
    // covers: U65
    let folder = filled();
    fs::remove_file(folder.path().join("CURRENT")).expect("removed");
    assert!(error_of(folder.path()).contains("no CURRENT file"));
}

#[test]
fn a_damaged_manifest_is_refused() {
    // covers: U65
    let folder = filled();
    fs::write(file_ending(folder.path(), "MANIFEST"), b"rubbish").expect("damaged");
    assert!(error_of(folder.path()).contains("failed to open RocksDB offset store"));
}

#[test]
fn a_torn_last_record_costs_only_what_was_not_synced() {
    // covers: U67
    let folder = tempfile::tempdir().expect("a folder");
    let db = LocalDb::open(&spec(folder.path()), &Machine::default()).expect("a new database");
    put(&db, "synced", "1");
    db.sync().expect("syncs");
    put(&db, "tail", &"2".repeat(300));
    // As a killed process leaves it: copied while open, its log cut short.
    let copy = tempfile::tempdir().expect("a folder");
    for entry in fs::read_dir(folder.path()).expect("the folder") {
        let entry = entry.expect("an entry");
        if entry.file_name() != "LOCK" {
            fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("copied");
        }
    }
    let log = file_ending(copy.path(), ".log");
    let bytes = fs::read(&log).expect("the log");
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("not empty") + 1;
    fs::write(&log, &bytes[..end - 10]).expect("cut");
    let db = LocalDb::open(&spec(copy.path()), &Machine::default()).expect("opens");
    assert_eq!(db.get("rows", b"synced").expect("reads").as_deref(), Some(&b"1"[..]));
    assert_eq!(db.get("rows", b"tail").expect("reads"), None);
}
