//! `FileAuditSink`: records as lines of a file, chained so that nobody can change, remove or move one unseen.
//!
//! A request's task puts its record into a bounded queue and goes on; a thread of its own chains and writes them,
//! and brings them to the disk at least each second and at the stop. When the queue is full, or the disk, records
//! are refused ([`SinkFailed`]) and counted, and as soon as it can the log says in a line of its own how many.

use std::{path::PathBuf, sync::Arc, thread::JoinHandle, time::Duration};

use mesh_base::{Clock, Counter, Signals, Tasks};
use parking_lot::{Condvar, Mutex};

use super::{
    AuditRecord, AuditSink, Interest, SinkFailed, json,
    log_file::{LogFile, NotWritten},
};
use crate::filter::LoadError;

/// How long the thread gathers before it writes.
const GATHER: Duration = Duration::from_millis(20);
/// How often it brings what was written to the disk, and tries again what failed.
const SYNC: Duration = Duration::from_secs(1);

/// Where and how records are kept.
#[derive(Clone, Debug)]
pub struct FileAuditSettings {
    /// The file.
    pub path: PathBuf,
    /// Which records.
    pub interest: Interest,
    /// The size from which on the next file is begun, in bytes.
    pub largest_file: u64,
    /// How many older files are kept.
    pub kept_files: u32,
    /// How much may wait to be written, in bytes.
    pub queue_bytes: usize,
}

impl FileAuditSettings {
    /// The defaults: denials, 64 MiB a file, 10 older files, 16 MiB waiting.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            interest: Interest::Denials,
            largest_file: 64 << 20,
            kept_files: 10,
            queue_bytes: 16 << 20,
        }
    }
}

/// Keeps records in a file. Dropping it writes what waits.
#[derive(Debug)]
pub struct FileAuditSink {
    interest: Interest,
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// There is something to do.
    work: Condvar,
    /// Something is done.
    done: Condvar,
    largest: usize,
}

#[derive(Debug, Default)]
struct Queue {
    records: Records,
    /// Refused since the log said how many.
    refused: u64,
    failure: Option<String>,
    is_stopping: bool,
    has_ended: bool,
    flushes_asked: u64,
    flushes_done: u64,
    /// The file may be another one by now.
    reopen_asked: bool,
}

/// Members of records, one behind the other.
#[derive(Debug, Default)]
struct Records {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Records {
    fn lines(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let begin = |at: usize| at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.ends.iter().enumerate().map(move |(at, end)| &self.bytes[begin(at)..*end])
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

impl FileAuditSink {
    /// Opens the file, goes on where it ends, and starts the thread that writes it. Blocks.
    ///
    /// # Errors
    /// When the file cannot be opened or written, is no audit log, or is another process's.
    pub fn start(settings: &FileAuditSettings, clock: Clock, signals: &Signals) -> Result<Self, LoadError> {
        let log = LogFile::open(&settings.path, settings.largest_file, settings.kept_files, clock)?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
            largest: settings.queue_bytes,
        });
        let unwritten =
            signals.counter("audit_unwritten", "Audit records that were queued and could not be written");
        let writer = Writer { log, shared: shared.clone(), clock, synced_at: clock.elapsed(), unwritten };
        let thread = Tasks::thread("audit-file", move || writer.run());
        Ok(Self { interest: settings.interest, shared, writer: Mutex::new(Some(thread)) })
    }

    /// Waits until everything that was recorded before is on the disk, or has failed. Blocks.
    pub fn flush(&self) {
        let mut queue = self.shared.queue.lock();
        queue.flushes_asked += 1;
        let mine = queue.flushes_asked;
        self.shared.work.notify_one();
        self.shared.done.wait_while(&mut queue, |queue| queue.flushes_done < mine && !queue.has_ended);
    }

    /// Goes on in the file of that name, which may be another one by now: an operator moved the old one away. What was
    /// recorded before is still written to the old one. Waits for nothing.
    pub fn reopen(&self) {
        self.shared.queue.lock().reopen_asked = true;
        self.shared.work.notify_one();
    }

    /// Writes what waits, brings it to the disk and ends the thread; what is recorded afterwards is refused. Blocks.
    pub fn stop(&self) {
        self.shared.queue.lock().is_stopping = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.writer.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes the audit log panicked");
        }
    }
}

impl Drop for FileAuditSink {
    fn drop(&mut self) {
        self.stop();
    }
}

impl AuditSink for FileAuditSink {
    fn name(&self) -> &'static str {
        "file"
    }

    fn interest(&self) -> Interest {
        self.interest
    }

    fn record(&self, record: &AuditRecord<'_>) -> Result<(), SinkFailed> {
        let members = json::members(record);
        let mut queue = self.shared.queue.lock();
        let refusal = if queue.is_stopping || queue.has_ended {
            Some("the audit log is closed".to_owned())
        } else if let Some(failure) = &queue.failure {
            Some(format!("the audit log cannot be written: {failure}"))
        } else if queue.records.bytes.len() + members.len() > self.shared.largest {
            Some("too many audit records wait to be written".to_owned())
        } else {
            None
        };
        if let Some(refusal) = refusal {
            queue.refused += 1;
            if queue.refused == 1 {
                self.shared.work.notify_one();
            }
            return Err(SinkFailed(refusal));
        }
        let (before, half) = (queue.records.bytes.len(), self.shared.largest / 2);
        queue.records.bytes.extend_from_slice(&members);
        let after = queue.records.bytes.len();
        queue.records.ends.push(after);
        drop(queue);
        if before == 0 || (before < half && after >= half) {
            self.shared.work.notify_one();
        }
        Ok(())
    }
}

/// The thread.
struct Writer {
    log: LogFile,
    shared: Arc<Shared>,
    clock: Clock,
    synced_at: Duration,
    unwritten: Counter,
}

/// What the thread does next.
struct Turn {
    refused: u64,
    flush: u64,
    is_last: bool,
    has_failed: bool,
    reopens: bool,
}

impl Writer {
    fn run(mut self) {
        let shared = self.shared.clone();
        let ended = Ended(&shared);
        let mut records = Records::default();
        loop {
            records.clear();
            let turn = self.next(&mut records);
            let wrote = self.write(&records, turn.refused);
            let is_due = self.clock.elapsed().saturating_sub(self.synced_at) >= SYNC;
            let flushes = turn.is_last || turn.flush > shared.queue.lock().flushes_done;
            let wrote = wrote.and_then(|()| if turn.reopens { self.reopen() } else { Ok(()) });
            let synced = if wrote.is_ok() && (is_due || flushes) { self.sync() } else { Ok(()) };
            self.told(wrote.and(synced), turn.has_failed);
            let mut queue = shared.queue.lock();
            queue.flushes_done = turn.flush;
            shared.done.notify_all();
            if turn.is_last {
                break;
            }
        }
        drop(ended);
    }

    /// Waits until there is something to do, and takes it.
    fn next(&self, records: &mut Records) -> Turn {
        let mut queue = self.shared.queue.lock();
        let is_urgent = |queue: &Queue| {
            queue.is_stopping || queue.reopen_asked || queue.flushes_asked > queue.flushes_done
        };
        let has_failed = queue.failure.is_some();
        let waits = |queue: &mut Queue| {
            !is_urgent(queue) && (has_failed || (queue.records.ends.is_empty() && queue.refused == 0))
        };
        if self.log.is_synced() && !has_failed {
            self.shared.work.wait_while(&mut queue, waits);
        } else {
            // What is written has to come to the disk, or what failed is tried again.
            let _timed_out = self.shared.work.wait_while_for(&mut queue, waits, SYNC);
        }
        let half = self.shared.largest / 2;
        let gathers = |queue: &mut Queue| !is_urgent(queue) && queue.records.bytes.len() < half;
        if !has_failed && !queue.records.ends.is_empty() {
            let _timed_out = self.shared.work.wait_while_for(&mut queue, gathers, GATHER);
        }
        std::mem::swap(records, &mut queue.records);
        Turn {
            refused: std::mem::take(&mut queue.refused),
            flush: queue.flushes_asked,
            is_last: queue.is_stopping,
            has_failed,
            reopens: std::mem::take(&mut queue.reopen_asked),
        }
    }

    /// Writes the records, and how many were refused meanwhile.
    fn write(&mut self, records: &Records, refused: u64) -> Result<(), String> {
        let mut lost = refused;
        let mut failure = None;
        if let Err(NotWritten { error, lines }) = self.log.append(records.lines()) {
            failure = Some(error);
            lost += lines as u64;
            self.unwritten.inc_by(lines as u64);
        }
        if failure.is_none() && lost > 0 {
            let mut members = self.log.members("lost");
            members.extend_from_slice(format!(",\"records\":{lost}").as_bytes());
            match self.log.append(std::iter::once(&*members)) {
                Ok(()) => lost = 0,
                Err(NotWritten { error, .. }) => failure = Some(error),
            }
        }
        self.shared.queue.lock().refused += lost;
        failure.map_or(Ok(()), |error| Err(error.to_string()))
    }

    fn reopen(&mut self) -> Result<(), String> {
        self.log.reopen().map_err(|error| error.to_string())
    }

    fn sync(&mut self) -> Result<(), String> {
        self.synced_at = self.clock.elapsed();
        self.log.look().map_err(|lost| lost.error.to_string())?;
        self.log.sync().map_err(|error| error.to_string())
    }

    /// Says it when a failure begins or ends; in between records are refused.
    fn told(&self, result: Result<(), String>, had_failed: bool) {
        match (&result, had_failed) {
            (Err(failure), false) => {
                tracing::error!(failure, "the audit log cannot be written; records are lost until it can");
            }
            (Ok(()), true) => tracing::info!("the audit log can be written again"),
            _ => {}
        }
        self.shared.queue.lock().failure = result.err();
    }
}

/// Ends the wait for the thread when the thread has ended, for whatever reason.
struct Ended<'a>(&'a Shared);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().has_ended = true;
        self.0.done.notify_all();
    }
}

#[cfg(test)]
mod tests;
