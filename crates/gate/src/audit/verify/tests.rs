use mesh_base::Clock;

use super::{super::log_file::LogFile, *};

/// A log of nine lines in three files, made anew for each damage.
struct Log(tempfile::TempDir);

impl Log {
    fn new() -> Self {
        let log = Self(tempfile::tempdir().expect("a folder"));
        // A line has about 200 bytes: three a file.
        let mut file = LogFile::open(&log.path(), 640, 5, Clock::system()).expect("a new log");
        for number in 0..9 {
            let members = format!("\"text\":\"event number {number}\"");
            file.append(std::iter::once(members.as_bytes())).expect("written");
        }
        file.sync().expect("synced");
        log
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("audit.log")
    }

    fn older(&self, number: u32) -> PathBuf {
        log_file::older(&self.path(), number)
    }

    fn change(&self, path: &Path, change: impl FnOnce(&mut Vec<String>)) {
        let text = fs::read_to_string(path).expect("read");
        let mut lines: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
        change(&mut lines);
        fs::write(path, lines.concat()).expect("written");
    }
}

#[test]
fn a_log_as_it_was_written_holds_together() {
    let log = Log::new();
    let report = verify_audit(&log.path()).expect("whole");
    let expected =
        AuditReport { files: 3, lines: 9, first: 1, last: 9, has_head: true, ..AuditReport::default() };
    assert_eq!(AuditReport { hash: String::new(), ..report.clone() }, expected);
    let head = fs::read_to_string(log_file::head(&log.path())).expect("a head");
    assert_eq!(head, format!("9 {}\n", report.hash));
}

#[test]
fn every_edit_cut_and_move_is_found_where_it_is() {
    type Damage = fn(&Log);
    // What is done, and where it is found.
    let cases: [(&str, Damage, &str); 16] = [
        (
            "an edit",
            |log| log.change(&log.older(1), |lines| lines[1] = lines[1].replace("number 4", "number 3")),
            "audit.log.1:2: line 5 was changed",
        ),
        (
            "an edited number",
            |log| log.change(&log.path(), |lines| lines[0] = lines[0].replace(":7,", ":8,")),
            "audit.log:1: line 8 was changed",
        ),
        (
            "a line taken out",
            |log| log.change(&log.older(1), |lines| drop(lines.remove(1))),
            "audit.log.1:2: the lines 5…5 before it are missing",
        ),
        (
            "the first line of a file taken out",
            |log| log.change(&log.path(), |lines| drop(lines.remove(0))),
            "audit.log:1: the lines 7…7 before it are missing",
        ),
        (
            "lines swapped",
            |log| log.change(&log.older(2), |lines| lines.swap(1, 2)),
            "audit.log.2:2: the lines 2…2 before it are missing",
        ),
        (
            "a line twice",
            |log| log.change(&log.path(), |lines| lines.insert(1, lines[0].clone())),
            "audit.log:2: line 7 stands behind line 7",
        ),
        (
            "a line added",
            |log| log.change(&log.path(), |lines| lines.push("{}\n".to_owned())),
            "audit.log:4: it is no line of an audit log",
        ),
        (
            "a blank line",
            |log| log.change(&log.path(), |lines| lines.insert(1, "\n".to_owned())),
            "audit.log:2: it is no line of an audit log",
        ),
        (
            "the end cut off",
            |log| log.change(&log.path(), |lines| lines.truncate(1)),
            "audit.log:1: the lines 8…9 are missing at the end",
        ),
        (
            "half the last line cut off",
            |log| log.change(&log.path(), |lines| lines[2].truncate(50)),
            "audit.log:2: the lines 9…9 are missing at the end",
        ),
        (
            "half a line in the middle cut off",
            |log| log.change(&log.older(1), |lines| lines[2].truncate(50)),
            "audit.log.1:3: the line is not finished",
        ),
        (
            "a file taken away",
            |log| fs::remove_file(log.older(1)).expect("removed"),
            "audit.log:1: the lines 4…6 before it are missing",
        ),
        (
            "the newest file taken away",
            |log| fs::remove_file(log.path()).expect("removed"),
            "audit.log.1:3: the lines 7…9 are missing at the end",
        ),
        (
            "two files swapped",
            |log| {
                let aside = log.0.path().join("aside");
                fs::rename(log.older(1), &aside).expect("renamed");
                fs::rename(log.older(2), log.older(1)).expect("renamed");
                fs::rename(aside, log.older(2)).expect("renamed");
            },
            "audit.log.1:1: line 1 stands behind line 6",
        ),
        (
            "the last line made anew",
            |log| {
                log.change(&log.path(), |lines| {
                    let mut link = Line::parse(lines[1].trim_end().as_bytes()).expect("a line").link;
                    let mut out = Vec::new();
                    link.append(b"\"text\":\"forged\"", &mut out);
                    lines[2] = String::from_utf8(out).expect("text");
                })
            },
            "audit.log:3: line 9 is not the one that the head names",
        ),
        (
            "a line made anew",
            |log| {
                log.change(&log.path(), |lines| {
                    let mut link = Line::parse(lines[0].trim_end().as_bytes()).expect("a line").link;
                    let mut out = Vec::new();
                    link.append(b"\"text\":\"forged\"", &mut out);
                    lines[1] = String::from_utf8(out).expect("text");
                })
            },
            "audit.log:3: line 9 does not follow the line that stands before it",
        ),
    ];
    for (name, damage, expected) in cases {
        let log = Log::new();
        damage(&log);
        let error = verify_audit(&log.path()).expect_err(name).to_string();
        assert!(error.contains(&format!("/{expected}")), "{name}: {error}");
    }
}

#[test]
fn what_it_cannot_know_it_says() {
    // The oldest file goes by itself one day: what is left begins later.
    let log = Log::new();
    fs::remove_file(log.older(2)).expect("removed");
    assert_eq!(verify_audit(&log.path()).expect("whole").first, 4);
    // Without a head nobody can tell whether the end is there.
    fs::remove_file(log_file::head(&log.path())).expect("removed");
    log.change(&log.path(), |lines| lines.truncate(1));
    let report = verify_audit(&log.path()).expect("it holds together");
    assert_eq!((report.last, report.has_head), (7, false));
    fs::write(log_file::head(&log.path()), "rubbish").expect("written");
    assert!(matches!(verify_audit(&log.path()), Err(VerifyError::Broken { .. })));
    let nothing = verify_audit(&log.0.path().join("nothing"));
    assert!(matches!(nothing, Err(VerifyError::Unreadable { .. })));
}
