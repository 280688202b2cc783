//! The in-memory log: for tests and demonstrations. A new incarnation at every start, nothing survives.
//!
//! It keeps at most its bound of bytes over all topics; past it the oldest records of the fullest
//! partition go first, and each is counted.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use mesh_base::{BackendError, BackendErrorKind, Chance, Clock, Counter, Signals, UnixMillis};
use mesh_frame::{Event, Offset, Record, TopicName};
use parking_lot::Mutex;

use crate::{
    Append, AppendItem, Appended, Capabilities, CreateTopic, Items, LogRecord, Offsets, Partition,
    PartitionCount, PartitionInfo, ReadLimit, Retain, Retained, StoragePlugin, Tail, TopicInfo,
    TopicSettings, signals,
};

/// What messages call it.
const NAME: &str = "memory";

/// The bound a new in-memory log has: 256 MiB.
const BOUND_BYTES: u64 = 256 << 20;

/// Past the bound this share of it is dropped, so that not every append has to drop something; at most
/// [`MOST_DROPPED`] bytes.
const DROPPED_SHARE: u64 = 64;
const MOST_DROPPED: u64 = 256 << 10;

/// The in-memory log driver.
#[derive(Debug)]
pub struct Memory {
    clock: Clock,
    chance: Chance,
    tail: Arc<Tail>,
    bound_bytes: u64,
    bytes: AtomicU64,
    /// Held while what is too much is dropped; one thread is enough for that.
    shrinking: Mutex<()>,
    dropped: Counter,
    catalog: Mutex<Catalog>,
    closed: AtomicBool,
    /// By the key of their partition. Read for every event: readers must not take turns. Replaced by the holder of
    /// `catalog`.
    logs: ArcSwap<Vec<Arc<Mutex<Log>>>>,
}

/// What an append added to one partition.
#[derive(Default)]
struct Fresh {
    partition: Option<Arc<Partition>>,
    records: Vec<Arc<LogRecord>>,
}

#[derive(Debug, Default)]
struct Catalog {
    topics: BTreeMap<TopicName, TopicInfo>,
}

#[derive(Debug, Default)]
struct Log {
    records: VecDeque<Arc<LogRecord>>,
    start: u64,
    end: u64,
    bytes: u64,
    last_accepted: u64,
    /// Its topic was deleted.
    deleted: bool,
}

impl Memory {
    /// An empty log. `tail` is told of every append.
    pub fn new(clock: Clock, chance: Chance, tail: Arc<Tail>, signals: &Signals) -> Self {
        Self::with_bound(clock, chance, tail, BOUND_BYTES, signals::dropped_memory(signals))
    }

    pub(crate) fn with_bound(
        clock: Clock,
        chance: Chance,
        tail: Arc<Tail>,
        bound_bytes: u64,
        dropped: Counter,
    ) -> Self {
        Self {
            clock,
            chance,
            tail,
            bound_bytes,
            bytes: AtomicU64::new(0),
            shrinking: Mutex::default(),
            dropped,
            catalog: Mutex::default(),
            closed: AtomicBool::new(false),
            logs: ArcSwap::default(),
        }
    }

    fn log(&self, key: u32) -> Result<Arc<Mutex<Log>>, BackendError> {
        self.logs.load().get(key as usize).cloned().ok_or_else(no_partition)
    }

    fn check_open(&self, operation: &'static str) -> Result<(), BackendError> {
        if !self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(BackendError::new(BackendErrorKind::Unavailable, NAME, operation)
            .with_source("the log is closed"))
    }

    fn append_now(&self, mut items: Items) -> Appended {
        self.check_open("appending")?;
        let appended = match items.pop() {
            Some(item) if items.is_empty() => self.append_one(item),
            last => {
                items.extend(last);
                self.append_all(items)
            }
        };
        if self.bytes.load(Ordering::Acquire) > self.bound_bytes {
            self.shrink();
        }
        appended
    }

    /// What most appends are: without a list of locks.
    fn append_one(&self, AppendItem { partition, event }: AppendItem) -> Appended {
        let now = self.clock.now().0;
        let logs = self.logs.load();
        let mut log = logs.get(partition.key() as usize).ok_or_else(no_partition)?.lock();
        log.check_topic()?;
        let record = log.push(event, now);
        let offset = record.offset();
        self.bytes.fetch_add(record.weight() as u64, Ordering::AcqRel);
        // Still under the lock: the tail takes records in the order of their offsets.
        self.tail.appended(&partition, &[record]);
        Ok(Offsets::from_elem(offset, 1))
    }

    fn append_all(&self, items: Items) -> Appended {
        // Every lock is taken before the first record goes in, in the order of the partitions, so that an
        // append is one effect and two of them cannot wait for each other.
        let mut keys: Vec<u32> = items.iter().map(|item| item.partition.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        let logs = keys.iter().map(|key| self.log(*key)).collect::<Result<Vec<_>, _>>()?;
        let mut guards: Vec<_> = logs.iter().map(|log| log.lock()).collect();
        guards.iter().try_for_each(|log| log.check_topic())?;
        let mut fresh: Vec<Fresh> = keys.iter().map(|_| Fresh::default()).collect();
        let mut offsets = Offsets::with_capacity(items.len());
        let now = self.clock.now().0;
        for AppendItem { partition, event } in items {
            let place = keys.binary_search(&partition.key()).expect("its key is in the list");
            let record = guards[place].push(event, now);
            offsets.push(record.offset());
            self.bytes.fetch_add(record.weight() as u64, Ordering::AcqRel);
            fresh[place].partition = Some(partition);
            fresh[place].records.push(record);
        }
        // Still under the locks: the tail takes records in the order of their offsets.
        for Fresh { partition, records } in fresh {
            if let Some(partition) = partition {
                self.tail.appended(&partition, &records);
            }
        }
        Ok(offsets)
    }

    /// Makes that many logs more. Gives the key of the first. The catalogue is locked.
    fn more_logs(&self, count: u32) -> u32 {
        let mut logs = Vec::clone(&self.logs.load());
        let first = u32::try_from(logs.len()).expect("fewer partitions than u32 counts");
        logs.extend((0..count).map(|_| Arc::<Mutex<Log>>::default()));
        self.logs.store(Arc::new(logs));
        first
    }

    fn shrink(&self) {
        let Some(_one) = self.shrinking.try_lock() else { return };
        let logs = self.logs.load();
        let enough = self.bound_bytes - (self.bound_bytes / DROPPED_SHARE).min(MOST_DROPPED);
        loop {
            let excess = self.bytes.load(Ordering::Acquire).saturating_sub(enough);
            let Some(fullest) = logs.iter().max_by_key(|log| log.lock().bytes).filter(|_| excess > 0) else {
                return;
            };
            // Freed when the lock is open again.
            let (oldest, freed) = fullest.lock().pop(excess);
            if oldest.is_empty() {
                return;
            }
            self.bytes.fetch_sub(freed, Ordering::AcqRel);
            self.dropped.inc_by(oldest.len() as u64);
        }
    }
}

impl Log {
    fn check_topic(&self) -> Result<(), BackendError> {
        if !self.deleted {
            return Ok(());
        }
        Err(BackendError::new(BackendErrorKind::Refused, NAME, "appending")
            .with_source("the topic was deleted"))
    }

    fn push(&mut self, event: Event, now: u64) -> Arc<LogRecord> {
        self.last_accepted = self.last_accepted.max(now);
        let record = Record { event, accepted_at_ms: self.last_accepted };
        let record = Arc::new(LogRecord::new(Offset(self.end), record));
        self.end += 1;
        self.bytes += record.weight() as u64;
        self.records.push_back(record.clone());
        record
    }

    /// Takes out the oldest records, some of them, until that many bytes are freed. Gives them and their bytes.
    fn pop(&mut self, bytes: u64) -> (Vec<Arc<LogRecord>>, u64) {
        let (mut oldest, mut freed) = (Vec::new(), 0);
        while freed < bytes
            && let Some(record) = self.records.pop_front()
        {
            freed += record.weight() as u64;
            self.start = record.offset().0 + 1;
            oldest.push(record);
        }
        self.bytes -= freed;
        (oldest, freed)
    }
}

fn no_partition() -> BackendError {
    BackendError::new(BackendErrorKind::Refused, NAME, "finding a partition")
}

impl StoragePlugin for Memory {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: NAME,
            survives_kill: false,
            survives_power_loss: false,
            partition_count: PartitionCount::Known,
            shared: false,
            deduplication: true,
            retention_by_groups: true,
        }
    }

    fn topics(&self) -> Result<Vec<TopicInfo>, BackendError> {
        Ok(self.catalog.lock().topics.values().cloned().collect())
    }

    fn create_topic(
        &self,
        name: &TopicName,
        partitions: u32,
        settings: &TopicSettings,
    ) -> Result<CreateTopic, BackendError> {
        self.check_open("creating a topic")?;
        let mut catalog = self.catalog.lock();
        if let Some(there) = catalog.topics.get(name) {
            return Ok(CreateTopic::AlreadyThere(there.clone()));
        }
        let first = self.more_logs(partitions);
        let info = TopicInfo {
            name: name.clone(),
            incarnation: crate::embedded::new_incarnation(&self.chance),
            partitions: (first..first + partitions)
                .map(|key| PartitionInfo { key, start: Offset(0), end: Offset(0) })
                .collect(),
            settings: *settings,
        };
        catalog.topics.insert(name.clone(), info.clone());
        Ok(CreateTopic::Created(info))
    }

    fn set_topic(&self, name: &TopicName, settings: &TopicSettings) -> Result<bool, BackendError> {
        let mut catalog = self.catalog.lock();
        let Some(info) = catalog.topics.get_mut(name) else { return Ok(false) };
        info.settings = *settings;
        Ok(true)
    }

    fn add_partitions(&self, name: &TopicName, partitions: u32) -> Result<Option<TopicInfo>, BackendError> {
        self.check_open("adding partitions")?;
        let mut catalog = self.catalog.lock();
        let Some(info) = catalog.topics.get_mut(name) else { return Ok(None) };
        let there = u32::try_from(info.partitions.len()).expect("fewer partitions than u32 counts");
        let added = partitions.saturating_sub(there);
        let first = self.more_logs(added);
        let added = (first..first + added).map(|key| PartitionInfo { key, start: Offset(0), end: Offset(0) });
        info.partitions.extend(added);
        Ok(Some(info.clone()))
    }

    fn delete_topic(&self, name: &TopicName) -> Result<bool, BackendError> {
        let Some(info) = self.catalog.lock().topics.remove(name) else { return Ok(false) };
        for partition in info.partitions {
            let log = self.log(partition.key)?;
            let mut log = log.lock();
            self.bytes.fetch_sub(log.bytes, Ordering::AcqRel);
            log.records.clear();
            log.bytes = 0;
            log.deleted = true;
            log.start = log.end;
        }
        Ok(true)
    }

    fn append(&self, items: Items) -> Append {
        Append::Now(self.append_now(items))
    }

    fn read(
        &self,
        partition: &Partition,
        from: Offset,
        limit: ReadLimit,
    ) -> Result<Vec<Arc<LogRecord>>, BackendError> {
        let log = self.log(partition.key())?;
        let log = log.lock();
        let first = log.records.partition_point(|record| record.offset() < from);
        let mut bytes = 0;
        Ok(log
            .records
            .range(first..)
            .take(limit.records)
            .take_while(|record| {
                let room = bytes == 0 || bytes < limit.bytes;
                bytes += record.weight();
                room
            })
            .cloned()
            .collect())
    }

    fn offset_at(&self, partition: &Partition, at: UnixMillis) -> Result<Offset, BackendError> {
        let log = self.log(partition.key())?;
        let log = log.lock();
        let place = log.records.partition_point(|record| record.record().accepted_at_ms < at.0);
        Ok(log.records.get(place).map_or(Offset(log.end), |record| record.offset()))
    }

    fn retain(&self, partition: &Partition, retain: &Retain) -> Result<Retained, BackendError> {
        let log = self.log(partition.key())?;
        let mut log = log.lock();
        let mut dropped_backlog = 0;
        while let Some(oldest) = log.records.front() {
            let accepted = UnixMillis(oldest.record().accepted_at_ms);
            let done = retain.done_below.is_none_or(|below| oldest.offset() < below);
            let old = |before: Option<UnixMillis>| before.is_some_and(|before| accepted < before);
            let large = |bound: Option<u64>| bound.is_some_and(|bound| log.bytes > bound);
            let done_goes = done && (old(retain.done_before) || large(retain.done_bytes));
            let backlog_goes = old(retain.backlog_before) || large(retain.backlog_bytes);
            if !done_goes && !backlog_goes {
                break;
            }
            dropped_backlog += u64::from(!done);
            let oldest = log.records.pop_front().expect("it was there");
            log.start = oldest.offset().0 + 1;
            log.bytes -= oldest.weight() as u64;
            self.bytes.fetch_sub(oldest.weight() as u64, Ordering::AcqRel);
        }
        Ok(Retained { start: Offset(log.start), dropped_backlog })
    }

    fn raise_end(&self, partition: &Partition, at_least: Offset) -> Result<(), BackendError> {
        let log = self.log(partition.key())?;
        let mut log = log.lock();
        log.end = log.end.max(at_least.0);
        Ok(())
    }

    fn bytes(&self, partition: &Partition) -> Result<u64, BackendError> {
        Ok(self.log(partition.key())?.lock().bytes)
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}
