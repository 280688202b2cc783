//! The storage handle: what everyone but a driver holds.
//!
//! It knows every topic, appends, serves reads from memory, and warms the caches off the async workers.
//! Topics are made here, once, also when several callers ask at the same time.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use mesh_base::{BackendError, BackendErrorKind, ReadMap, Signals, UnixMillis};
use mesh_frame::{Offset, TopicName};

use crate::{
    Append, Appended, Cached, Capabilities, CreateTopic, Items, LogRecord, Partition, ReadLimit, Retain,
    Retained, SettingsChange, StoragePlugin, Tail, Topic, TopicInfo, TopicRules, TopicSettings, Watermark,
    cold::ColdBudget, dedup::Deduplicator, signals::StorageSignals,
};

/// Told of every append, by topic and number of records, from the thread that made it. Must be quick.
pub type Listener = Box<dyn Fn(&TopicName, usize) + Send + Sync>;

/// One chunk read from the log holds at most this much.
const CHUNK: ReadLimit = ReadLimit { records: 256, bytes: 512 << 10 };

/// All cold chunks together hold about this much.
const COLD_BYTES: i64 = 32 << 20;

/// Bounds of the handle.
#[derive(Clone, Copy, Debug)]
pub struct StorageLimits {
    /// Partitions a topic gets when no number is given.
    pub partitions: u32,
    /// How many topics there may be.
    pub topics: usize,
    /// What holds for a topic that sets nothing.
    pub rules: TopicRules,
}

/// Why a topic could not be used.
#[derive(Debug, thiserror::Error)]
pub enum TopicError {
    /// There is none of that name, and none is made on the way.
    #[error("topic {0} does not exist and is not created automatically (eventmesh.topic.autoCreate=false)")]
    Unknown(TopicName),
    /// There are as many topics as may be.
    #[error("there are already {0} topics (eventmesh.topic.max)")]
    TooMany(usize),
    /// The log failed.
    #[error("the log could not make topic {topic}")]
    Backend {
        /// Which topic.
        topic: TopicName,
        /// Why.
        #[source]
        source: BackendError,
    },
}

/// The handle on the log; cheap to clone.
#[derive(Clone)]
pub struct Storage(Arc<Inner>);

struct Inner {
    plugin: Arc<dyn StoragePlugin>,
    #[cfg_attr(not(feature = "conformance"), expect(dead_code, reason = "only tests ask how much it holds"))]
    tail: Arc<Tail>,
    limits: StorageLimits,
    topics: ReadMap<TopicName, Arc<Topic>>,
    creating: tokio::sync::Mutex<()>,
    watermark: Option<Arc<Watermark>>,
    signals: StorageSignals,
    cold: ColdBudget,
    corrupt: AtomicU64,
    dedup: OnceLock<Deduplicator>,
}

/// Where a tail cache announces appends before the handle that listens exists.
#[derive(Default)]
pub struct Announcements(OnceLock<Listener>, OnceLock<Deduplicator>);

impl Storage {
    /// A tail cache of `budget_bytes` and the place where its announcements can be listened to.
    pub fn tail(budget_bytes: u64) -> (Arc<Tail>, Arc<Announcements>) {
        let announcements = Arc::new(Announcements::default());
        let listened = announcements.clone();
        let tail = Tail::new(budget_bytes, move |partition, records| {
            if let Some(index) = listened.1.get() {
                index.stored(partition, records);
            }
            if let Some(listener) = listened.0.get() {
                listener(partition.topic(), records.len());
            }
        });
        (tail, announcements)
    }

    /// The handle on an opened driver; reads the topics it holds. Blocks.
    ///
    /// # Errors
    /// When the driver's catalogue cannot be read.
    pub fn new(
        plugin: Arc<dyn StoragePlugin>,
        tail: Arc<Tail>,
        limits: StorageLimits,
        watermark: Option<Arc<Watermark>>,
        signals: &Signals,
    ) -> Result<Self, BackendError> {
        let topic = |info: &TopicInfo| (info.name.clone(), Topic::new(info, limits.rules));
        let topics = plugin.topics()?.iter().map(topic).collect();
        Ok(Self(Arc::new(Inner {
            plugin,
            tail,
            limits,
            topics,
            creating: tokio::sync::Mutex::new(()),
            watermark,
            signals: StorageSignals::new(signals),
            cold: ColdBudget::new(COLD_BYTES),
            corrupt: AtomicU64::new(0),
            dedup: OnceLock::new(),
        })))
    }

    /// What the driver can do.
    pub fn capabilities(&self) -> Capabilities {
        self.0.plugin.capabilities()
    }

    /// The topic of that name, when there is one.
    pub fn topic(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.0.topics.get(name)
    }

    /// Every topic.
    pub fn topics(&self) -> Vec<Arc<Topic>> {
        self.0.topics.values()
    }

    /// The topic of that name, made with `partitions` (default: the limit's) when there is none and
    /// `create` allows. Durable when it returns.
    ///
    /// # Errors
    /// See [`TopicError`].
    pub async fn ensure_topic(
        &self,
        name: &TopicName,
        create: bool,
        partitions: Option<u32>,
    ) -> Result<Arc<Topic>, TopicError> {
        if let Some(topic) = self.topic(name) {
            return Ok(topic);
        }
        if !create {
            return Err(TopicError::Unknown(name.clone()));
        }
        self.create_topic(name, partitions, TopicSettings::default()).await
    }

    /// The topic of that name, made with `partitions` (default: the limit's) and these settings when there is
    /// none. Durable when it returns.
    ///
    /// # Errors
    /// See [`TopicError`].
    pub async fn create_topic(
        &self,
        name: &TopicName,
        partitions: Option<u32>,
        settings: TopicSettings,
    ) -> Result<Arc<Topic>, TopicError> {
        let _one_at_a_time = self.0.creating.lock().await;
        if let Some(topic) = self.topic(name) {
            return Ok(topic);
        }
        if self.0.topics.len() >= self.0.limits.topics {
            return Err(TopicError::TooMany(self.0.limits.topics));
        }
        let partitions = partitions.unwrap_or(self.0.limits.partitions);
        let asked = name.clone();
        let created = self
            .blocking("creating a topic", move |plugin| plugin.create_topic(&asked, partitions, &settings))
            .await
            .map_err(|source| TopicError::Backend { topic: name.clone(), source })?;
        let (CreateTopic::Created(info) | CreateTopic::AlreadyThere(info)) = created;
        let topic = Topic::new(&info, self.0.limits.rules);
        self.0.topics.insert(name.clone(), topic.clone());
        Ok(topic)
    }

    /// Changes settings of a topic; durable when it returns. A deduplication window that became longer knows what
    /// was stored before: the log is read back that far.
    ///
    /// # Errors
    /// [`TopicError::Unknown`] when there is none of that name; [`TopicError::Backend`] when the log failed:
    /// then the settings may be stored, and asking again settles it.
    pub async fn change_topic(
        &self,
        name: &TopicName,
        change: &SettingsChange,
    ) -> Result<Arc<Topic>, TopicError> {
        let _one_at_a_time = self.0.creating.lock().await;
        let unknown = || TopicError::Unknown(name.clone());
        let topic = self.topic(name).ok_or_else(unknown)?;
        let (old, window) = (topic.settings(), topic.dedup_window());
        let new = old.changed(change);
        if new == old {
            return Ok(topic);
        }
        let failed = |source| TopicError::Backend { topic: name.clone(), source };
        let asked = name.clone();
        let there = self
            .blocking("changing a topic", move |plugin| plugin.set_topic(&asked, &new))
            .await
            .map_err(failed)?;
        if !there {
            return Err(unknown());
        }
        topic.set(new);
        if let Some(index) = self.0.dedup.get().filter(|_| topic.dedup_window() > window) {
            let (index, of) = (index.clone(), topic.clone());
            let read = self.blocking("reading a window", move |plugin| index.load(plugin, &of)).await;
            // Seen as unchanged it would not be read again.
            read.inspect_err(|_| topic.set(old)).map_err(failed)?;
        }
        Ok(topic)
    }

    /// What holds for a topic, with the bytes that 20 % of the volume are.
    pub fn rules(&self, topic: &Topic) -> TopicRules {
        let mut rules = topic.rules();
        let volume = || self.watermark().map(|watermark| watermark.total_bytes() / 5);
        rules.backlog_max_bytes = rules.backlog_max_bytes.or_else(volume);
        rules
    }

    /// Gives a topic `partitions` in all, when it has fewer; the new ones are empty. Durable when it returns.
    /// The events of a key may go to another partition from then on. Gives the topic and what was added.
    ///
    /// # Errors
    /// [`TopicError::Unknown`] when there is none of that name; [`TopicError::Backend`] when the log failed.
    pub async fn add_partitions(
        &self,
        name: &TopicName,
        partitions: u32,
    ) -> Result<(Arc<Topic>, Vec<Arc<Partition>>), TopicError> {
        let _one_at_a_time = self.0.creating.lock().await;
        let unknown = || TopicError::Unknown(name.clone());
        let topic = self.topic(name).ok_or_else(unknown)?;
        let asked = name.clone();
        let info = self
            .blocking("adding partitions", move |plugin| plugin.add_partitions(&asked, partitions))
            .await
            .map_err(|source| TopicError::Backend { topic: name.clone(), source })?
            .ok_or_else(unknown)?;
        let added = topic.grow(&info);
        Ok((topic, added))
    }

    /// Removes a topic with everything in it; `false` when there was none.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub async fn delete_topic(&self, name: &TopicName) -> Result<bool, BackendError> {
        let _one_at_a_time = self.0.creating.lock().await;
        let topic = self.topic(name);
        self.0.topics.remove(name);
        let asked = name.clone();
        let deleted = self.blocking("deleting a topic", move |plugin| plugin.delete_topic(&asked)).await;
        if let (Err(_), Some(topic)) = (&deleted, topic) {
            // It is still there, and can be asked for again.
            self.0.topics.insert(name.clone(), topic);
        }
        deleted
    }

    /// Whether the disk watermark stops publishing now.
    pub fn is_low(&self) -> bool {
        self.0.watermark.as_ref().is_some_and(|watermark| watermark.is_low())
    }

    /// The watermark, where the log has a disk.
    pub fn watermark(&self) -> Option<&Watermark> {
        self.0.watermark.as_deref()
    }

    /// Appends all items as one atomic effect; see [`StoragePlugin::append`].
    pub fn append(&self, items: impl Into<Items>) -> Append {
        self.0.plugin.append(items.into())
    }

    /// Waits for an append.
    ///
    /// # Errors
    /// The driver's error; `Unavailable` when the driver ended.
    pub async fn appended(&self, append: Append) -> Appended {
        let result = match append {
            Append::Now(result) => result,
            Append::Later(answer) => answer.await.unwrap_or_else(|_| {
                Err(BackendError::new(BackendErrorKind::Unavailable, self.capabilities().name, "appending")
                    .with_source("the log was closed"))
            }),
        };
        result.inspect_err(|error| self.count(error))
    }

    /// Brings the records from `from` on into memory, so that [`Partition::cached`] serves them. Readers of
    /// one partition share one read.
    ///
    /// # Errors
    /// The driver's error; nothing is skipped.
    pub async fn warm(&self, partition: &Arc<Partition>, from: Offset) -> Result<(), BackendError> {
        let _single_flight = partition.warming.lock().await;
        if partition.cached(from, 1, &mut Vec::new()) != Cached::Cold {
            return Ok(());
        }
        self.0.signals.cold_reads.inc();
        // Before the read: what is appended while it runs is not taken for offsets that were never used.
        let end = partition.end();
        let wanted = partition.clone();
        let records = self.blocking("reading", move |plugin| plugin.read(&wanted, from, CHUNK)).await?;
        let reached = match records.last() {
            // The read stopped at its limit or at the end: it speaks for what it returned.
            Some(last) => Offset(last.offset().0 + 1),
            // Nothing below that end: a stretch of offsets that were never used.
            None => end,
        };
        let grew = partition.cold.lock().keep(from, reached, records);
        self.0.cold.changed(partition, grew);
        Ok(())
    }

    /// A stretch of records at and after `from`, from the log; empty at its end.
    ///
    /// # Errors
    /// The driver's error.
    pub async fn read(
        &self,
        partition: &Arc<Partition>,
        from: Offset,
    ) -> Result<Vec<Arc<LogRecord>>, BackendError> {
        let wanted = partition.clone();
        self.blocking("reading", move |plugin| plugin.read(&wanted, from, CHUNK)).await
    }

    /// One record, from memory or from the log; `None` when it is gone.
    ///
    /// # Errors
    /// The driver's error.
    pub async fn record(
        &self,
        partition: &Arc<Partition>,
        offset: Offset,
    ) -> Result<Option<Arc<LogRecord>>, BackendError> {
        let mut found = Vec::new();
        if partition.cached(offset, 1, &mut found) == Cached::Cold {
            self.warm(partition, offset).await?;
            // Others may have made it leave again: that it is not in memory does not mean that it is gone.
            if partition.cached(offset, 1, &mut found) == Cached::Cold {
                found = self.read(partition, offset).await?;
            }
        }
        Ok(found.into_iter().next().filter(|record| record.offset() == offset))
    }

    /// See [`StoragePlugin::offset_at`].
    ///
    /// # Errors
    /// The driver's error.
    pub async fn offset_at(
        &self,
        partition: &Arc<Partition>,
        at: UnixMillis,
    ) -> Result<Offset, BackendError> {
        let wanted = partition.clone();
        self.blocking("looking up a time", move |plugin| plugin.offset_at(&wanted, at)).await
    }

    /// See [`StoragePlugin::retain`].
    ///
    /// # Errors
    /// The driver's error.
    pub async fn retain(&self, partition: &Arc<Partition>, retain: Retain) -> Result<Retained, BackendError> {
        let wanted = partition.clone();
        let retained =
            self.blocking("dropping old records", move |plugin| plugin.retain(&wanted, &retain)).await?;
        if retained.start > partition.start() {
            partition.raise_start(retained.start);
            let freed = partition.cold.lock().clear();
            self.0.cold.changed(partition, -freed);
        }
        self.0.signals.dropped_backlog.inc_by(retained.dropped_backlog);
        Ok(retained)
    }

    /// The next record of the partition gets at least this offset. Blocks; for boot.
    ///
    /// # Errors
    /// The driver's error.
    pub fn raise_end(&self, partition: &Partition, at_least: Offset) -> Result<(), BackendError> {
        self.0.plugin.raise_end(partition, at_least)?;
        partition.raise_end(at_least);
        Ok(())
    }

    /// About how many bytes the partition's records take.
    ///
    /// # Errors
    /// The driver's error.
    pub async fn bytes(&self, partition: &Arc<Partition>) -> Result<u64, BackendError> {
        let wanted = partition.clone();
        self.blocking("measuring", move |plugin| plugin.bytes(&wanted)).await
    }

    /// Bytes in the tail cache.
    #[cfg(feature = "conformance")]
    pub fn tail_bytes(&self) -> u64 {
        self.0.tail.bytes()
    }

    /// How many damaged records have been met; more than none is a reason for health to be `DOWN`.
    pub fn corrupt_records(&self) -> u64 {
        self.0.corrupt.load(Ordering::Acquire)
    }

    /// Writes what waits and ends the driver's threads. Blocks.
    pub fn close(&self) {
        self.0.plugin.close();
    }

    async fn blocking<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&dyn StoragePlugin) -> Result<T, BackendError> + Send + 'static,
    ) -> Result<T, BackendError> {
        let plugin = self.0.plugin.clone();
        let name = self.capabilities().name;
        tokio::task::spawn_blocking(move || work(&*plugin))
            .await
            .unwrap_or_else(|error| {
                Err(BackendError::new(BackendErrorKind::Unavailable, name, operation).with_source(error))
            })
            .inspect_err(|error| self.count(error))
    }

    fn count(&self, error: &BackendError) {
        self.0.signals.errors.get_or_create(&vec![("kind", error.kind().as_str().to_owned())]).inc();
        if error.kind() == BackendErrorKind::Corrupt && self.0.corrupt.fetch_add(1, Ordering::AcqRel) == 0 {
            tracing::error!(error = %error.chain(), "the log is damaged; what follows the damage is not delivered");
        }
    }
}

impl Announcements {
    /// Keeps an index of what is stored from now on, and of what was within its window. Blocks. Once, before
    /// anything is appended.
    ///
    /// # Errors
    /// When the log cannot be read.
    ///
    /// # Panics
    /// When there is an index already.
    pub fn deduplicate(&self, storage: &Storage, index: &Deduplicator) -> Result<usize, BackendError> {
        for topic in storage.topics() {
            index.load(&*storage.0.plugin, &topic)?;
        }
        assert!(self.1.set(index.clone()).is_ok(), "one index a log");
        assert!(storage.0.dedup.set(index.clone()).is_ok(), "one index a log");
        Ok(index.known())
    }

    /// Listens. Once; a second listener is refused.
    ///
    /// # Panics
    /// When there is a listener already.
    pub fn listen(&self, listener: Listener) {
        assert!(self.0.set(listener).is_ok(), "one listener a log");
    }
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Storage").field("driver", &self.0.plugin.capabilities().name).finish_non_exhaustive()
    }
}
