use mesh_base::Clock;

use super::{super::verify_audit, *};

fn open(path: &Path) -> Result<LogFile, LoadError> {
    LogFile::open(path, 1 << 20, 3, Clock::system())
}

fn append(log: &mut LogFile, number: u32) {
    let members = format!("\"text\":{number}");
    log.append(std::iter::once(members.as_bytes())).expect("written");
}

/// A log with lines of these numbers, closed in order.
fn written(path: &Path, numbers: std::ops::Range<u32>) {
    let mut log = open(path).expect("it opens");
    numbers.for_each(|number| append(&mut log, number));
    log.sync().expect("synced");
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("read")
}

fn cut(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("opened");
    file.set_len(file.metadata().expect("a length").len() - bytes).expect("cut");
}

#[test]
fn the_chain_goes_on_from_start_to_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.log");
    written(&path, 0..3);
    written(&path, 3..5);
    let report = verify_audit(&path).expect("whole");
    assert_eq!((report.lines, report.last, report.recovered), (5, 5, 0));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        for file in [&path, &head(&path)] {
            assert_eq!(fs::metadata(file).expect("there").permissions().mode() & 0o777, 0o600);
        }
    }
}

#[test]
fn a_torn_last_line_is_cut_off_and_the_log_says_so() {
    // covers: U67
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.log");
    written(&path, 0..2);
    {
        // A third line that the process was killed in; the head does not know it.
        let mut log = open(&path).expect("it opens");
        append(&mut log, 2);
    }
    cut(&path, 10);
    assert!(verify_audit(&path).expect("it may be being written").unfinished > 0);
    written(&path, 3..4);
    let report = verify_audit(&path).expect("whole");
    assert_eq!((report.lines, report.last, report.recovered), (4, 4, 1));
    assert!(text(&path).contains("bytes of a line that was not finished were cut off"), "{}", text(&path));
}

#[test]
fn what_was_cut_while_it_stood_still_shows_for_ever() {
    // What is done, what the log says of it, and whether it still holds together.
    type Case = (&'static str, fn(&Path), &'static str, bool);
    let cases: [Case; 5] = [
        (
            "the last line",
            |path| {
                let lines = text(path);
                let last = lines.trim_end().rfind('\n').expect("lines") + 1;
                cut(path, (lines.len() - last) as u64);
            },
            "the lines 3…3 are missing",
            false,
        ),
        ("everything", |path| cut(path, text(path).len() as u64), "the lines up to 3 are missing", true),
        ("the file", |path| fs::remove_file(path).expect("removed"), "the lines up to 3 are missing", true),
        (
            "the last line changed",
            |path| {
                fs::write(path, text(path).replace("\"text\":2", "\"text\":7")).expect("written");
            },
            "line 3 was changed",
            false,
        ),
        ("the head", |path| fs::remove_file(head(path)).expect("removed"), "the head is missing", true),
    ];
    for (name, damage, said, holds) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        written(&path, 0..3);
        damage(&path);
        written(&path, 3..5);
        assert!(text(&path).contains(said), "{name}: {}", text(&path));
        // Where nothing is left to compare with, the numbers still say that something was there.
        let verified = verify_audit(&path);
        assert_eq!(verified.is_ok(), holds, "{name}: {verified:?}");
        assert!(verified.is_err() || text(&path).contains("\"seq\":6,"), "{name}: {}", text(&path));
    }
}

#[test]
fn old_files_go_and_what_is_left_holds_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.log");
    for start in 0..4 {
        let mut log = LogFile::open(&path, 1_000, 3, Clock::system()).expect("it opens");
        let members: Vec<_> = (0..25).map(|number| format!("\"text\":{}", start * 25 + number)).collect();
        log.append(members.iter().map(String::as_bytes)).expect("written");
        log.sync().expect("synced");
        assert!(fs::metadata(&path).expect("there").len() <= 1_000);
    }
    let report = verify_audit(&path).expect("whole");
    assert_eq!((report.files, report.last, report.recovered), (4, 100, 0));
    assert_eq!(report.lines, 100 - report.first + 1);
    assert!(report.first > 70 && older(&path, 3).exists() && !older(&path, 4).exists());

    // A kill between the renaming and the new file.
    fs::rename(&path, older(&path, 1)).expect("renamed");
    written(&path, 100..101);
    let report = verify_audit(&path);
    // The file that stood under that name is gone, and that shows; not the kill.
    assert!(report.is_err() && !text(&path).contains("recovered"), "{report:?} {}", text(&path));
}

#[test]
fn a_log_that_is_taken_away_goes_on_under_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.log");
    let mut log = open(&path).expect("it opens");
    append(&mut log, 0);
    log.look().expect("it is there");
    fs::rename(&path, older(&path, 1)).expect("renamed");
    log.look().expect("a new one");
    append(&mut log, 1);
    log.sync().expect("synced");
    let report = verify_audit(&path).expect("whole");
    assert_eq!((report.files, report.lines, report.recovered), (2, 3, 1));
}

#[test]
fn what_is_no_audit_log_or_is_in_use_is_not_touched() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("other");
    for foreign in ["key=value\n", "{\"a\":1}", "x"] {
        fs::write(&path, foreign).expect("written");
        let error = open(&path).expect_err(foreign).to_string();
        assert!(error.contains("this is not an audit log"), "{error}");
        assert_eq!(text(&path), foreign);
    }
    let path = folder.path().join("audit.log");
    let _writer = open(&path).expect("a new one");
    let error = open(&path).expect_err("in use").to_string();
    assert!(error.contains("another process writes this audit log"), "{error}");
}
