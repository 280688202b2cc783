//! The policies of a local database, on real files.

use super::*;

const FAMILIES: &[Family] = &[Family { name: "rows", kind: FamilyKind::Rows }];

fn spec(path: &Path) -> Spec {
    Spec { name: "offset store", path: path.to_owned(), families: FAMILIES, write_buffer_bytes: 1 << 20 }
}

fn put(db: &LocalDb, key: &str, value: &str) {
    let mut batch = Batch::new();
    batch.put("rows", key, value);
    db.write(&batch, Durability::Logged).expect("a write to a healthy database");
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
        Ok(db) => panic!("opened with sequence {:?}", db.sequence()),
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

/// A fault that is not about space: the folder is gone from under the open database, so that RocksDB can make no new
/// write-ahead log. Dropping it brings the folder back.
struct FolderGone {
    here: PathBuf,
    away: PathBuf,
}

impl FolderGone {
    fn from(path: &Path) -> Self {
        let away = path.with_extension("away");
        fs::rename(path, &away).expect("moved away");
        Self { here: path.to_owned(), away }
    }
}

impl Drop for FolderGone {
    fn drop(&mut self) {
        fs::rename(&self.away, &self.here).expect("moved back");
    }
}

fn probe() -> Batch {
    let mut probe = Batch::new();
    probe.put("default", "probe", "1");
    probe
}

/// Writes until it is refused; how many were taken.
fn write_until_refused(db: &LocalDb) -> usize {
    for n in 0..10_000 {
        let mut batch = Batch::new();
        batch.put("rows", format!("while {n:05}"), vec![7; 4_096]);
        if db.write(&batch, Durability::Logged).is_err() {
            return n;
        }
    }
    panic!("40 MB were written without a new write-ahead log");
}

#[test]
fn after_a_failed_write_it_heals_by_itself_once_the_cause_is_gone() {
    // covers: U66
    let root = tempfile::tempdir().expect("a folder");
    let path = root.path().join("db");
    let db = LocalDb::open(&spec(&path), &Machine::default()).expect("a new database");
    put(&db, "before", "1");
    let gone = FolderGone::from(&path);
    let taken = write_until_refused(&db);
    assert!(db.is_suspect());
    let error = db.heal(&probe()).expect_err("its folder is gone");
    assert_eq!(error.kind(), BackendErrorKind::Unavailable, "{}", error.chain());
    assert_eq!(db.get("rows", b"before").expect("reads go on").as_deref(), Some(&b"1"[..]));
    drop(gone);
    let mut batch = Batch::new();
    batch.put("rows", "refused", "1");
    assert!(db.write(&batch, Durability::Logged).is_err(), "RocksDB keeps the error by itself");
    assert_eq!(db.heal(&probe()).expect("heals"), Healed::Reopened);
    assert!(!db.is_suspect());
    put(&db, "after", "1");
    db.sync().expect("syncs");
    for n in 0..taken {
        assert!(db.get("rows", format!("while {n:05}").as_bytes()).expect("reads").is_some(), "write {n}");
    }
    drop(db);
    let db = LocalDb::open(&spec(&path), &Machine::default()).expect("opens again");
    for key in ["before", "after"] {
        assert!(db.get("rows", key.as_bytes()).expect("reads").is_some(), "{key}");
    }
    assert!(db.get("default", b"probe").expect("reads").is_some());
}

#[test]
fn a_healthy_database_takes_the_probe_as_it_is() {
    let folder = filled();
    let db = LocalDb::open(&spec(folder.path()), &Machine::default()).expect("opens");
    assert_eq!(db.heal(&probe()).expect("heals"), Healed::Resumed);
}

#[test]
fn one_that_is_being_read_is_not_closed_and_heals_later() {
    let root = tempfile::tempdir().expect("a folder");
    let path = root.path().join("db");
    let db = LocalDb::open(&spec(&path), &Machine::default()).expect("a new database");
    put(&db, "before", "1");
    let gone = FolderGone::from(&path);
    write_until_refused(&db);
    drop(gone);
    let mut seen = 0;
    db.scan("rows", b"", None, |_, _| {
        if seen == 0 {
            // From another thread: a reader must not use the database itself.
            let refused = std::thread::scope(|scope| scope.spawn(|| db.heal(&probe())).join());
            let refused = refused.expect("it does not panic").expect_err("somebody reads");
            assert!(refused.chain().contains("it is being read"), "{}", refused.chain());
        }
        seen += 1;
        true
    })
    .expect("the scan goes on");
    assert!(seen > 1);
    assert_eq!(db.heal(&probe()).expect("heals"), Healed::Reopened);
}

#[test]
fn one_that_cannot_be_opened_again_says_why_and_is_tried_again() {
    let root = tempfile::tempdir().expect("a folder");
    let path = root.path().join("db");
    let db = LocalDb::open(&spec(&path), &Machine::default()).expect("a new database");
    put(&db, "before", "1");
    db.sync().expect("syncs");
    let gone = FolderGone::from(&path);
    write_until_refused(&db);
    drop(gone);
    let manifest = file_ending(&path, "MANIFEST");
    let whole = fs::read(&manifest).expect("the manifest");
    fs::write(&manifest, b"rubbish").expect("damaged");
    let error = db.heal(&probe()).expect_err("it is damaged");
    assert_eq!(error.kind(), BackendErrorKind::Corrupt, "{}", error.chain());
    let error = db.get("rows", b"before").expect_err("it is closed");
    assert!(error.chain().contains("failed to open RocksDB offset store"), "{}", error.chain());
    assert_eq!(db.sequence(), None);
    fs::write(&manifest, whole).expect("restored");
    assert_eq!(db.heal(&probe()).expect("heals"), Healed::Reopened);
    assert_eq!(db.get("rows", b"before").expect("reads").as_deref(), Some(&b"1"[..]));
}
