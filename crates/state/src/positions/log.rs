//! The thread that commits positions, and its suspension.
//!
//! Commits are carried out in the order they were handed in, many in one write. A failed write fails it
//! and everything behind it, and raises the **ledger epoch**: commits made from an older view are refused.
//! While suspended the thread tries twice a second to heal the store; the first try that succeeds opens the log again.
//! Who reads positions after that sees what is there for good.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use crossbeam_channel::{Receiver, Sender, select, tick, unbounded};
use mesh_base::{BackendError, BackendErrorKind, Counter, Gauge, Signals, Tasks};
use mesh_rocks::Durability;
use parking_lot::Mutex;

use super::{
    PositionBatch, PositionStore,
    commit::{Commit, CommitError, Decider},
};

/// How often a suspended log tries whether it can write.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// At most this many commits share a write.
const GATHER: usize = 1_024;

/// Which view of the database a commit was made from. Raised by every suspension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerEpoch(pub u64);

struct Job {
    epoch: LedgerEpoch,
    batch: PositionBatch,
    durability: Durability,
    done: Decider,
}

struct Shared {
    epoch: AtomicU64,
    open: AtomicBool,
    full: AtomicBool,
    write_failures: Counter,
    suspended: Gauge,
}

/// The way changes reach the position database; cheap to clone.
#[derive(Clone)]
pub struct PositionLog {
    jobs: Arc<Mutex<Option<Sender<Job>>>>,
    sender: Sender<Job>,
    shared: Arc<Shared>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl PositionLog {
    pub(super) fn start(store: Arc<dyn PositionStore>, signals: &Signals) -> Self {
        let shared = Arc::new(Shared {
            epoch: AtomicU64::new(0),
            open: AtomicBool::new(true),
            full: AtomicBool::new(false),
            write_failures: signals
                .counter("offset_write_failures", "Writes of the position database that failed"),
            suspended: signals.gauge("ledger_suspended", "1 while the ledger cannot write"),
        });
        let (sender, jobs) = unbounded();
        let (work, stop) = (shared.clone(), sender.clone());
        let thread = Tasks::thread("ledger", move || run(&*store, &work, &jobs));
        Self {
            jobs: Arc::new(Mutex::new(Some(stop))),
            sender,
            shared,
            thread: Arc::new(Mutex::new(Some(thread))),
        }
    }

    /// The epoch a view read now belongs to. Read it before the database.
    pub fn epoch(&self) -> LedgerEpoch {
        LedgerEpoch(self.shared.epoch.load(Ordering::Acquire))
    }

    /// Whether it can write.
    pub fn is_open(&self) -> bool {
        self.shared.open.load(Ordering::Acquire)
    }

    /// Why it cannot write, when it cannot.
    pub fn suspension(&self) -> Option<CommitError> {
        (!self.is_open()).then(|| self.reason())
    }

    fn reason(&self) -> CommitError {
        if self.shared.full.load(Ordering::Acquire) { CommitError::Full } else { CommitError::Suspended }
    }

    /// How many writes failed since the start.
    pub fn write_failures(&self) -> u64 {
        self.shared.write_failures.get()
    }

    /// Hands in a batch made from the view of `epoch`. It is carried out after everything handed in before;
    /// an empty batch is a barrier. With [`Durability::Logged`] it is answered once it is in the
    /// write-ahead log, with [`Durability::Synced`] once it is on the disk.
    pub fn commit(&self, epoch: LedgerEpoch, batch: PositionBatch, durability: Durability) -> Commit {
        let (done, answer) = Decider::new();
        if let Err(refused) = self.sender.send(Job { epoch, batch, durability, done }) {
            refused.0.done.decide(Err(CommitError::Closed));
        }
        answer
    }

    /// [`PositionLog::commit`], waited for.
    ///
    /// # Errors
    /// See [`CommitError`].
    pub async fn committed(&self, commit: Commit) -> Result<(), CommitError> {
        commit.await
    }

    /// Carries out what waits and ends the thread. Blocks. Later commits fail.
    pub(super) fn close(&self) {
        let Some(stop) = self.jobs.lock().take() else { return };
        let (done, _) = Decider::new();
        let last = Job {
            epoch: LedgerEpoch(u64::MAX),
            batch: PositionBatch::new(),
            durability: Durability::Logged,
            done,
        };
        if stop.send(last).is_err() {
            tracing::error!("the ledger thread had ended");
        }
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the ledger thread panicked");
        }
    }
}

fn run(store: &dyn PositionStore, shared: &Shared, jobs: &Receiver<Job>) {
    let mut probes = None;
    loop {
        let first = if shared.open.load(Ordering::Acquire) {
            probes = None;
            jobs.recv()
        } else {
            let probes = probes.get_or_insert_with(|| tick(PROBE_EVERY));
            select! {
                recv(probes) -> _ => {
                    heal(store, shared);
                    continue;
                }
                recv(jobs) -> job => job,
            }
        };
        let Ok(first) = first else { return };
        let mut gathered = vec![first];
        gathered.extend(jobs.try_iter().take(GATHER - 1));
        let last = gathered.iter().position(|job| job.epoch == LedgerEpoch(u64::MAX));
        let closing = last.map(|at| gathered.split_off(at));
        write(store, shared, gathered);
        if let Some(closing) = closing {
            for (place, job) in closing.into_iter().enumerate() {
                job.done.decide(if place == 0 { Ok(()) } else { Err(CommitError::Closed) });
            }
            return;
        }
    }
}

fn write(store: &dyn PositionStore, shared: &Shared, jobs: Vec<Job>) {
    let epoch = LedgerEpoch(shared.epoch.load(Ordering::Acquire));
    let open = shared.open.load(Ordering::Acquire);
    let reason = if shared.full.load(Ordering::Acquire) { CommitError::Full } else { CommitError::Suspended };
    let (mut batches, mut waiting) = (Vec::with_capacity(jobs.len()), Vec::with_capacity(jobs.len()));
    let mut durability = Durability::Logged;
    for job in jobs {
        if !open || job.epoch != epoch {
            job.done.decide(Err(reason));
            continue;
        }
        if job.durability == Durability::Synced {
            durability = Durability::Synced;
        }
        batches.push(job.batch);
        waiting.push(job.done);
    }
    // A barrier asks nothing of the store.
    let nothing = batches.iter().all(PositionBatch::is_empty);
    let result = if nothing { Ok(()) } else { store.commit(&batches, durability) };
    let answer = result.map_err(|error| suspend(shared, &error));
    // The caller may have gone: the change is made all the same, and a view in memory is told by the epoch.
    for done in waiting {
        done.decide(answer);
    }
}

fn suspend(shared: &Shared, error: &BackendError) -> CommitError {
    let full = error.kind() == BackendErrorKind::Full;
    shared.full.store(full, Ordering::Release);
    shared.open.store(false, Ordering::Release);
    shared.epoch.fetch_add(1, Ordering::AcqRel);
    shared.write_failures.inc();
    shared.suspended.set(1);
    tracing::error!(error = %error.chain(), "the ledger cannot write: deliveries stay as they are until it can");
    if full { CommitError::Full } else { CommitError::Suspended }
}

fn heal(store: &dyn PositionStore, shared: &Shared) {
    match store.heal() {
        Ok(()) => {
            shared.full.store(false, Ordering::Release);
            shared.suspended.set(0);
            shared.open.store(true, Ordering::Release);
            tracing::info!("the ledger writes again");
        }
        Err(error) => {
            shared.full.store(error.kind() == BackendErrorKind::Full, Ordering::Release);
            tracing::debug!(error = %error.chain(), "the ledger cannot write yet");
        }
    }
}
