//! A topic and its partitions as the process shares them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use mesh_frame::{Incarnation, Offset, PartitionId, TopicName};
use parking_lot::Mutex;

use crate::{
    Cached, LogRecord, PartitionInfo, TopicInfo, TopicRules, TopicSettings, chunks::ColdChunks, ring::Ring,
};

/// A topic of the log.
#[derive(Debug)]
pub struct Topic {
    name: TopicName,
    incarnation: Incarnation,
    /// Read for every event: readers must not take turns.
    partitions: ArcSwap<Vec<Arc<Partition>>>,
    turn: AtomicU64,
    configured: TopicRules,
    own: Mutex<TopicSettings>,
    dedup_window_ms: Arc<AtomicU64>,
}

impl Topic {
    /// `configured`: what holds where the topic sets nothing.
    pub(crate) fn new(info: &TopicInfo, configured: TopicRules) -> Arc<Self> {
        let window = configured.with(&info.settings).dedup_window;
        let window = Arc::new(AtomicU64::new(millis(window)));
        let partition = |(id, of)| Partition::new(info, id, of, &window);
        let partitions: Vec<Arc<Partition>> = info.partitions.iter().enumerate().map(partition).collect();
        Arc::new(Self {
            name: info.name.clone(),
            incarnation: info.incarnation,
            partitions: ArcSwap::from_pointee(partitions),
            turn: AtomicU64::new(0),
            configured,
            own: Mutex::new(info.settings),
            dedup_window_ms: window,
        })
    }

    /// What is set on it.
    pub fn settings(&self) -> TopicSettings {
        *self.own.lock()
    }

    /// What holds for it.
    pub fn rules(&self) -> TopicRules {
        self.configured.with(&self.own.lock())
    }

    /// Takes over settings that are stored.
    pub(crate) fn set(&self, settings: TopicSettings) {
        let mut own = self.own.lock();
        *own = settings;
        let window = self.configured.with(&own).dedup_window;
        self.dedup_window_ms.store(millis(window), Ordering::Release);
    }

    /// How long an event is recognised when it is published again; zero: not at all.
    pub fn dedup_window(&self) -> Duration {
        Duration::from_millis(self.dedup_window_ms.load(Ordering::Acquire))
    }

    /// Takes in partitions that were added behind those it has. Gives the new ones. One at a time.
    pub(crate) fn grow(&self, info: &TopicInfo) -> Vec<Arc<Partition>> {
        let partitions = self.partitions();
        let behind = info.partitions.iter().enumerate().skip(partitions.len());
        let added: Vec<Arc<Partition>> =
            behind.map(|(id, of)| Partition::new(info, id, of, &self.dedup_window_ms)).collect();
        if !added.is_empty() {
            self.partitions.store(Arc::new(partitions.iter().chain(&added).cloned().collect()));
        }
        added
    }

    /// Its name.
    pub fn name(&self) -> &TopicName {
        &self.name
    }

    /// The random number of this log of that name.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Its partitions, in order.
    pub fn partitions(&self) -> Arc<Vec<Arc<Partition>>> {
        self.partitions.load_full()
    }

    /// The partition of that number.
    pub fn partition(&self, id: PartitionId) -> Option<Arc<Partition>> {
        self.partitions.load().get(id.0 as usize).cloned()
    }

    /// The partition an event with this key goes to: always the same one while their number stays.
    pub fn partition_of_key(&self, key: &str) -> Arc<Partition> {
        let partitions = self.partitions.load();
        let place = xxhash_rust::xxh3::xxh3_64(key.as_bytes()) % partitions.len() as u64;
        partitions[usize::try_from(place).expect("below the length")].clone()
    }

    /// The partition whose turn it is for an event without a key.
    pub fn next_partition(&self) -> Arc<Partition> {
        let partitions = self.partitions.load();
        let place = self.turn.fetch_add(1, Ordering::Relaxed) % partitions.len() as u64;
        partitions[usize::try_from(place).expect("below the length")].clone()
    }
}

/// A partition of a topic: a log of records with rising offsets.
#[derive(Debug)]
pub struct Partition {
    topic: TopicName,
    incarnation: Incarnation,
    id: PartitionId,
    key: u32,
    start: AtomicU64,
    end: AtomicU64,
    dedup_window_ms: Arc<AtomicU64>,
    pub(crate) ring: Mutex<Ring>,
    pub(crate) cold: Mutex<ColdChunks>,
    pub(crate) warming: tokio::sync::Mutex<()>,
}

impl Partition {
    fn new(topic: &TopicInfo, id: usize, of: &PartitionInfo, window: &Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self {
            topic: topic.name.clone(),
            incarnation: topic.incarnation,
            id: PartitionId(u32::try_from(id).expect("partition counts fit u32")),
            key: of.key,
            start: AtomicU64::new(of.start.0),
            end: AtomicU64::new(of.end.0),
            dedup_window_ms: window.clone(),
            ring: Mutex::new(Ring::default()),
            cold: Mutex::new(ColdChunks::default()),
            warming: tokio::sync::Mutex::new(()),
        })
    }

    /// The topic it belongs to.
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// The random number of the log it belongs to.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Its number in the topic.
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// The driver's own number for it.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// The lowest offset that may still be there.
    pub fn start(&self) -> Offset {
        Offset(self.start.load(Ordering::Acquire))
    }

    /// One past the last offset that can be read.
    pub fn end(&self) -> Offset {
        Offset(self.end.load(Ordering::Acquire))
    }

    /// Its topic's window, in milliseconds.
    pub(crate) fn dedup_window_ms(&self) -> u64 {
        self.dedup_window_ms.load(Ordering::Acquire)
    }

    pub(crate) fn raise_start(&self, to: Offset) {
        self.start.fetch_max(to.0, Ordering::AcqRel);
    }

    pub(crate) fn raise_end(&self, to: Offset) {
        self.end.fetch_max(to.0, Ordering::AcqRel);
    }

    /// Copies out cached records at and after `from`, at most `most` of them. Never blocks on a disk.
    pub fn cached(&self, from: Offset, most: usize, out: &mut Vec<Arc<LogRecord>>) -> Cached {
        let start = self.start();
        if from < start {
            return Cached::GoneTo(start);
        }
        // The end is read before the ring: what is appended meanwhile is only seen later.
        let end = self.end();
        if from >= end {
            return Cached::UpTo(end);
        }
        if let Some(cached) = self.ring.lock().from(from, end, most, out) {
            return cached;
        }
        self.cold.lock().from(from, most, out).unwrap_or(Cached::Cold)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
