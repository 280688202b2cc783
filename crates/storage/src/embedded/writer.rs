//! The writer thread: group commit.
//!
//! It takes whatever appends wait, gives each event its offset, and writes them as one synced batch; the
//! appends that arrive during the sync are the next batch. Nothing waits for company: a lone append is
//! written at once.
//!
//! After a write that failed the writer is **suspended**: appends fail with the failure's kind, and twice a second it
//! tries whether the log takes writes again, opening the database again where that is what it takes. The offsets that
//! failed appends had are never given again, and what may be in the database under them is removed before anybody can
//! read it: a publisher was told that it failed.

use std::{collections::HashMap, sync::Arc, thread::JoinHandle, time::Duration};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, select, tick, unbounded};
use mesh_base::{BackendError, BackendErrorKind, Clock, Tasks};
use mesh_frame::{Offset, Record};
use mesh_rocks::{Batch, Durability, Healed, LocalDb};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{
    catalog,
    keys::{self, NAME},
};
use crate::{Append, AppendItem, Appended, Items, LogRecord, Offsets, Partition, PartitionInfo, Tail};

/// A batch takes no further append once it holds this many events or bytes.
const BATCH_EVENTS: usize = 4_096;
const BATCH_BYTES: usize = 8 << 20;
/// And this much room of it is kept for the next one.
const KEPT_BYTES: usize = 256 << 10;
/// How often a suspended writer tries whether the log takes writes.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// How often an idle writer looks whether a write by another thread has failed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

enum Job {
    Append { items: Items, done: oneshot::Sender<Appended> },
    Know { partitions: Vec<PartitionInfo>, done: Sender<()> },
    Forget { keys: Vec<u32>, done: Sender<()> },
    RaiseEnd { key: u32, at_least: Offset, done: Sender<()> },
    Close,
}

/// The handle on the writer thread.
pub(super) struct Writer {
    jobs: Sender<Job>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub(super) fn start(
        db: Arc<LocalDb>,
        durability: Durability,
        clock: Clock,
        tail: Arc<Tail>,
    ) -> Result<Self, BackendError> {
        let mut ends = HashMap::new();
        for topic in catalog::topics(&db)? {
            for partition in topic.partitions {
                ends.insert(partition.key, End::read(&db, &partition)?);
            }
        }
        let (jobs, waiting) = unbounded();
        let mut state = State {
            db,
            durability,
            clock,
            tail,
            ends,
            buffer: Vec::new(),
            spare: Batch::new(),
            suspended: None,
            failed: Vec::new(),
        };
        let thread = Tasks::thread("log-writer", move || state.run(&waiting));
        Ok(Self { jobs, thread: Mutex::new(Some(thread)) })
    }

    pub(super) fn append(&self, items: Items) -> Append {
        let (done, answer) = oneshot::channel();
        match self.jobs.send(Job::Append { items, done }) {
            Ok(()) => Append::Later(answer),
            Err(_) => Append::Now(Err(closed())),
        }
    }

    /// Blocks until the writer knows partitions that were made.
    pub(super) fn know(&self, partitions: &[PartitionInfo]) -> Result<(), BackendError> {
        self.ask(|done| Job::Know { partitions: partitions.to_vec(), done })
    }

    /// Blocks until the writer has forgotten partitions that were removed.
    pub(super) fn forget(&self, partitions: &[PartitionInfo]) -> Result<(), BackendError> {
        self.ask(|done| Job::Forget {
            keys: partitions.iter().map(|partition| partition.key).collect(),
            done,
        })
    }

    /// Blocks until the next append to that partition gets at least this offset.
    pub(super) fn raise_end(&self, key: u32, at_least: Offset) -> Result<(), BackendError> {
        self.ask(|done| Job::RaiseEnd { key, at_least, done })
    }

    fn ask(&self, job: impl FnOnce(Sender<()>) -> Job) -> Result<(), BackendError> {
        let (done, answer) = bounded(1);
        self.jobs.send(job(done)).map_err(|_| closed())?;
        answer.recv().map_err(|_| closed())
    }

    /// Ends the thread after everything that waits was written.
    pub(super) fn close(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        if self.jobs.send(Job::Close).is_err() || thread.join().is_err() {
            tracing::error!("the log's writer thread had ended");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

fn closed() -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, NAME, "appending").with_source("the log is closed")
}

/// Where a partition ends, for the writer alone.
#[derive(Clone, Copy, Debug)]
struct End {
    next: u64,
    bytes: u64,
    accepted_at_ms: u64,
}

impl End {
    fn read(db: &LocalDb, partition: &PartitionInfo) -> Result<Self, BackendError> {
        let last = db.last_below(keys::RECORDS, &keys::record(partition.key, u64::MAX))?;
        let last = last.filter(|(key, _)| keys::offset_of(key, partition.key).is_some());
        let bytes = last.as_ref().and_then(|(_, value)| keys::number(value)).unwrap_or(0);
        // A damaged last record is reported when it is read; its time only keeps times rising.
        let accepted_at_ms = last
            .and_then(|(_, value)| value.get(keys::CUMULATIVE..).map(bytes::Bytes::copy_from_slice))
            .and_then(|envelope| Record::decode(envelope).ok())
            .map_or(0, |record| record.accepted_at_ms);
        Ok(Self { next: partition.end.0, bytes, accepted_at_ms })
    }
}

struct State {
    db: Arc<LocalDb>,
    durability: Durability,
    clock: Clock,
    tail: Arc<Tail>,
    ends: HashMap<u32, End>,
    buffer: Vec<u8>,
    /// The last batch, empty: its room serves the next one.
    spare: Batch,
    /// Why nothing can be written now.
    suspended: Option<BackendError>,
    /// Offsets of appends that failed, by partition, which may be in the database all the same: from, and up to but
    /// without.
    failed: Vec<(u32, Offset, Offset)>,
}

/// The appends of one batch, and what becomes of them when it is written.
#[derive(Default)]
struct Gathered {
    batch: Batch,
    events: usize,
    answers: Vec<(oneshot::Sender<Appended>, Offsets)>,
    fresh: Vec<(Arc<Partition>, Vec<Arc<LogRecord>>)>,
    places: HashMap<u32, usize>,
}

impl State {
    fn run(&mut self, jobs: &Receiver<Job>) {
        let mut probes = None;
        loop {
            let first = if self.suspended.is_some() {
                let probes = probes.get_or_insert_with(|| tick(PROBE_EVERY));
                select! {
                    recv(probes) -> _ => {
                        self.probe();
                        continue;
                    }
                    recv(jobs) -> job => job.map_err(|_| RecvTimeoutError::Disconnected),
                }
            } else {
                probes = None;
                jobs.recv_timeout(LOOK_EVERY)
            };
            let first = match first {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => {
                    if self.db.is_suspect() {
                        self.probe();
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut gathered = self.gathered();
            let mut next = Some(first);
            while let Some(job) = next.take() {
                match job {
                    Job::Append { items, done } => self.gather(&mut gathered, items, done),
                    other => {
                        let next = self.gathered();
                        self.write(std::mem::replace(&mut gathered, next));
                        if !self.obey(other) {
                            return;
                        }
                    }
                }
                if gathered.events < BATCH_EVENTS && gathered.batch.size_in_bytes() < BATCH_BYTES {
                    next = jobs.try_recv().ok();
                }
            }
            self.write(gathered);
        }
    }

    /// A batch without appends.
    fn gathered(&mut self) -> Gathered {
        Gathered { batch: std::mem::take(&mut self.spare), ..Gathered::default() }
    }

    /// `false`: it was the order to close.
    fn obey(&mut self, job: Job) -> bool {
        let done = match job {
            Job::Append { .. } => unreachable!("appends are gathered"),
            Job::Close => return false,
            Job::Know { partitions, done } => {
                for partition in partitions {
                    let end = End { next: partition.end.0, bytes: 0, accepted_at_ms: 0 };
                    self.ends.insert(partition.key, end);
                }
                done
            }
            Job::Forget { keys, done } => {
                for key in keys {
                    self.ends.remove(&key);
                }
                done
            }
            Job::RaiseEnd { key, at_least, done } => {
                if let Some(end) = self.ends.get_mut(&key) {
                    end.next = end.next.max(at_least.0);
                }
                done
            }
        };
        // The caller may have gone; the order was carried out.
        if done.send(()).is_err() {
            tracing::trace!("nobody waited for an order");
        }
        true
    }

    fn gather(&mut self, gathered: &mut Gathered, items: Items, done: oneshot::Sender<Appended>) {
        if let Some(suspension) = &self.suspended {
            drop(done.send(Err(suspension.copy())));
            return;
        }
        if items.iter().any(|item| !self.ends.contains_key(&item.partition.key())) {
            let refused = BackendError::new(BackendErrorKind::Refused, NAME, "appending")
                .with_source("the topic was deleted");
            drop(done.send(Err(refused)));
            return;
        }
        let now = self.clock.now().0;
        let mut offsets = Offsets::with_capacity(items.len());
        for AppendItem { partition, event } in items {
            let end = self.ends.get_mut(&partition.key()).expect("checked above");
            end.accepted_at_ms = end.accepted_at_ms.max(now);
            let offset = Offset(end.next);
            let record = Record { event, accepted_at_ms: end.accepted_at_ms };
            self.buffer.clear();
            self.buffer.extend_from_slice(&[0; keys::CUMULATIVE]);
            record.encode(&mut self.buffer);
            end.next += 1;
            end.bytes += self.buffer.len() as u64;
            self.buffer[..keys::CUMULATIVE].copy_from_slice(&end.bytes.to_be_bytes());
            gathered.batch.put(keys::RECORDS, keys::record(partition.key(), offset.0), &self.buffer);
            offsets.push(offset);
            let place = *gathered.places.entry(partition.key()).or_insert_with(|| {
                gathered.fresh.push((partition, Vec::new()));
                gathered.fresh.len() - 1
            });
            gathered.fresh[place].1.push(Arc::new(LogRecord::new(offset, record)));
        }
        gathered.events += offsets.len();
        gathered.answers.push((done, offsets));
    }

    fn write(&mut self, gathered: Gathered) {
        if gathered.answers.is_empty() {
            self.spare = gathered.batch;
            return;
        }
        let written = self.db.write(&gathered.batch, self.durability);
        self.spare = gathered.batch;
        self.spare.clear(KEPT_BYTES);
        match written {
            Ok(()) => {
                for (partition, records) in gathered.fresh {
                    self.tail.appended(&partition, &records);
                }
                for (done, offsets) in gathered.answers {
                    // A publisher that gave up has its event stored all the same.
                    drop(done.send(Ok(offsets)));
                }
            }
            Err(error) => {
                for (partition, records) in &gathered.fresh {
                    if let (Some(first), Some(last)) = (records.first(), records.last()) {
                        let above = Offset(last.offset().0 + 1);
                        self.failed.push((partition.key(), first.offset(), above));
                    }
                }
                for (done, _) in gathered.answers {
                    drop(done.send(Err(error.copy())));
                }
                tracing::error!(error = %error.chain(), "the log cannot write: publishes are refused until it can");
                self.suspended = Some(error);
            }
        }
    }

    /// Tries whether the log takes writes again, with the removal of what failed as the first of them.
    fn probe(&mut self) {
        let mut probe = Batch::new();
        probe.put("default", keys::PROBE, []);
        for (key, from, to) in &self.failed {
            probe.delete_range(keys::RECORDS, keys::record(*key, from.0), keys::record(*key, to.0));
        }
        let healed = self.db.heal(&probe).and_then(|healed| match healed {
            Healed::Resumed => Ok(()),
            Healed::Reopened => self.look_again(),
        });
        match healed {
            Ok(()) => {
                self.failed.clear();
                self.suspended = None;
                tracing::info!("the log writes again");
            }
            Err(error) => {
                tracing::debug!(error = %error.chain(), "the log cannot write yet");
                self.suspended = Some(error);
            }
        }
    }

    /// Learns what a database that was opened again holds: the change of a topic that was answered as failed may be in
    /// it. No offset that was given is given again.
    fn look_again(&mut self) -> Result<(), BackendError> {
        let mut ends = HashMap::new();
        for topic in catalog::topics(&self.db)? {
            for partition in topic.partitions {
                let mut end = End::read(&self.db, &partition)?;
                if let Some(known) = self.ends.get(&partition.key) {
                    end.next = end.next.max(known.next);
                    end.accepted_at_ms = end.accepted_at_ms.max(known.accepted_at_ms);
                }
                ends.insert(partition.key, end);
            }
        }
        self.ends = ends;
        Ok(())
    }
}
