//! The tail cache: the newest records of every partition, in memory, under one budget of bytes.
//!
//! A ring holds a partition's records from some offset to its end without a gap. When the budget is
//! passed, the records that have been cached longest leave first, whichever partition they are in.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use mesh_frame::Offset;
use parking_lot::Mutex;

use crate::{LogRecord, Partition};

/// When the budget is passed this share of it is freed, so that not every append has to free something; at most
/// [`MOST_FREED`] bytes.
const FREED_SHARE: u64 = 64;
const MOST_FREED: u64 = 256 << 10;
/// Records that were cached one after another in one partition leave together: at most so many, and of what is freed
/// at once at most this share, so that the newest stay.
const TOGETHER: u32 = 64;
const TOGETHER_SHARE: u64 = 4;

/// Records of one partition that were cached one after another.
struct Together {
    partition: Arc<Partition>,
    records: u32,
    /// What they weigh.
    bytes: u64,
}

/// Told of every append to a partition, before its publisher is.
type Announce = Box<dyn Fn(&Partition, &[Arc<LogRecord>]) + Send + Sync>;

/// The tail cache of all partitions, and where drivers announce what they appended.
pub struct Tail {
    budget_bytes: u64,
    bytes: AtomicU64,
    order: Mutex<VecDeque<Together>>,
    announce: Announce,
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tail").field("budget_bytes", &self.budget_bytes).field("bytes", &self.bytes).finish()
    }
}

impl Tail {
    /// A cache of at most about `budget_bytes`; `announce` is told of every append, from the thread that
    /// made it, and must be quick.
    pub fn new(
        budget_bytes: u64,
        announce: impl Fn(&Partition, &[Arc<LogRecord>]) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            budget_bytes,
            bytes: AtomicU64::new(0),
            order: Mutex::new(VecDeque::new()),
            announce: Box::new(announce),
        })
    }

    /// Takes in records that were appended to a partition, in the order of their offsets, makes them
    /// readable and wakes its readers. One thread at a time a partition.
    pub fn appended(&self, partition: &Arc<Partition>, records: &[Arc<LogRecord>]) {
        let Some(last) = records.last() else { return };
        let end = Offset(last.offset().0 + 1);
        let count = records.len();
        let weight: usize = records.iter().map(|record| record.weight()).sum();
        {
            let mut ring = partition.ring.lock();
            let end_before = partition.end();
            for record in records {
                ring.push(record.clone(), end_before);
            }
            partition.raise_end(end);
        }
        let taken = u32::try_from(count).expect("an append holds fewer records than that");
        let weight = weight as u64;
        // Before they can leave again.
        let total = self.bytes.fetch_add(weight, Ordering::AcqRel) + weight;
        self.put_in_order(partition, taken, weight);
        if total > self.budget_bytes {
            self.evict();
        }
        (self.announce)(partition, records);
    }

    /// How many bytes it holds, about.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// What is freed at once when the budget is passed, at least.
    fn freed_at_once(&self) -> u64 {
        (self.budget_bytes / FREED_SHARE).min(MOST_FREED)
    }

    fn put_in_order(&self, partition: &Arc<Partition>, records: u32, bytes: u64) {
        let most = self.freed_at_once() / TOGETHER_SHARE;
        let mut order = self.order.lock();
        match order.back_mut() {
            Some(last)
                if last.records < TOGETHER
                    && last.bytes + bytes <= most
                    && Arc::ptr_eq(&last.partition, partition) =>
            {
                last.records += records;
                last.bytes += bytes;
            }
            _ => order.push_back(Together { partition: partition.clone(), records, bytes }),
        }
    }

    fn evict(&self) {
        let enough = self.budget_bytes - self.freed_at_once();
        while self.bytes() > enough {
            let Some(Together { partition, records, bytes }) = self.order.lock().pop_front() else { return };
            let left: Vec<Arc<LogRecord>> = {
                let mut ring = partition.ring.lock();
                (0..records).map_while(|_| ring.pop()).collect()
            };
            self.bytes.fetch_sub(bytes, Ordering::AcqRel);
            // Freed when the ring is open again.
            drop(left);
        }
    }
}
