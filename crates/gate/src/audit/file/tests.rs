use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use mesh_base::UnixMillis;

use super::*;
use crate::{Action, CredentialKind, Outcome, Protocol, VerifyError, verify_audit};

fn record(resource: &str) -> AuditRecord<'_> {
    AuditRecord {
        at: UnixMillis(0),
        outcome: Outcome::Denied,
        filter: Some("acl"),
        reason: "no",
        operation: Some(Action::Publish),
        resource,
        tenant: "t",
        principal: None,
        credential: CredentialKind::None,
        remote: None,
        protocol: Protocol::Http,
        trace: None,
    }
}

fn start(settings: &FileAuditSettings) -> FileAuditSink {
    FileAuditSink::start(settings, Clock::system(), &Signals::new()).expect("a new log")
}

fn settings(folder: &Path) -> FileAuditSettings {
    FileAuditSettings::new(folder.join("audit.log"))
}

#[test]
fn what_many_record_at_once_is_there_and_in_one_chain() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = FileAuditSettings { largest_file: 100_000, kept_files: 100, ..settings(folder.path()) };
    let sink = start(&settings);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let sink = &sink;
            scope.spawn(move || {
                for number in 0..500 {
                    sink.record(&record(&format!("topic:{thread}-{number}\n"))).expect("there is room");
                }
            });
        }
    });
    sink.flush();
    let report = verify_audit(&settings.path).expect("whole");
    assert_eq!((report.lines, report.lost, report.recovered), (2_000, 0, 0));
    assert!(report.files > 4, "{}", report.files);
    drop(sink);
    assert_eq!(verify_audit(&settings.path).expect("whole"), report);
}

#[test]
fn what_is_refused_is_counted_in_the_log_and_what_waits_is_written_at_the_stop() {
    // covers: U110
    let folder = tempfile::tempdir().expect("a folder");
    let settings = FileAuditSettings { queue_bytes: 400, ..settings(folder.path()) };
    let sink = start(&settings);
    let large = "x".repeat(500);
    for _ in 0..3 {
        let refused = sink.record(&record(&large)).expect_err("more than the queue holds");
        assert_eq!(refused.to_string(), "too many audit records wait to be written");
    }
    sink.record(&record("topic:small")).expect("it has room");
    sink.stop();
    assert_eq!(sink.record(&record("x")).expect_err("stopped").to_string(), "the audit log is closed");
    let report = verify_audit(&settings.path).expect("whole");
    assert_eq!(report.lost, 3);
    assert!(fs::read_to_string(&settings.path).expect("read").contains("topic:small"));
}

#[test]
fn a_log_that_cannot_be_written_refuses_and_goes_on_when_it_can() {
    // proves: SG-5  covers: U110
    let folder = tempfile::tempdir().expect("a folder");
    let settings = FileAuditSettings { largest_file: 300, kept_files: 1, ..settings(folder.path()) };
    let signals = Signals::new();
    let sink = FileAuditSink::start(&settings, Clock::system(), &signals).expect("a new log");
    // Where the older file should come stands a folder: the next file cannot be begun.
    let in_the_way = folder.path().join("audit.log.1");
    fs::create_dir(&in_the_way).expect("made");
    sink.record(&record("topic:first")).expect("queued");
    sink.flush();
    sink.record(&record("topic:second")).expect("queued");
    sink.flush();
    let refused = sink.record(&record("topic:third")).expect_err("it cannot be written").to_string();
    assert!(refused.starts_with("the audit log cannot be written: "), "{refused}");
    assert!(signals.text().contains("eventmesh_audit_unwritten_total 1"), "{}", signals.text());

    fs::remove_dir(&in_the_way).expect("removed");
    sink.flush();
    sink.record(&record("topic:fourth")).expect("it can be written again");
    drop(sink);
    // The first file went when the third was begun; what is left says what was lost.
    let report = verify_audit(&settings.path).expect("whole");
    assert_eq!((report.last, report.files), (3, 2));
    let texts = [&in_the_way, &settings.path].map(|path| fs::read_to_string(path).expect("read"));
    assert!(texts[0].contains("\"kind\":\"lost\",\"records\":2"), "{texts:?}");
    assert!(texts[1].contains("topic:fourth"), "{texts:?}");
}

#[test]
fn a_log_can_be_verified_while_it_is_written_and_rotated() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = FileAuditSettings { largest_file: 20_000, kept_files: 1_000, ..settings(folder.path()) };
    let sink = start(&settings);
    let rounds = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while rounds.load(Ordering::Relaxed) < 20 {
                for number in 0..100 {
                    sink.record(&record(&format!("topic:{number}"))).expect("there is room");
                }
                sink.flush();
            }
        });
        let mut failure = None;
        while failure.is_none() && rounds.fetch_add(1, Ordering::Relaxed) < 20 {
            failure = verify_audit(&settings.path).err().map(|error: VerifyError| error.to_string());
        }
        rounds.store(20, Ordering::Relaxed);
        assert_eq!(failure, None);
    });
    drop(sink);
    verify_audit(&settings.path).expect("whole");
}
