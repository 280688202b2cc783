//! Publisher deduplication: an event whose `source` and `id` were stored within the window is not stored again.
//!
//! The index is fed by the log itself, from the thread that appends, and read back from the log at boot:
//! what it knows is exactly what is stored, also when the publisher that sent it never got its answer. While
//! an event is on its way to the log, a second one of the same name waits for the first to be decided. An
//! entry takes about 100 bytes; past the bound the oldest are forgotten first, and counted.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use mesh_base::{BackendError, Clock, Counter, Signals};
use mesh_frame::{Event, Offset, PartitionId};
use parking_lot::Mutex;
use tokio::sync::Notify;
use xxhash_rust::xxh3::Xxh3;

use crate::{LogRecord, Partition, ReadLimit, Storage, StoragePlugin};

/// A claim that nobody decided within this time is void: its publisher is gone and the log did not store.
const CLAIM_FOR: Duration = Duration::from_secs(60);
/// What the boot reads at a time.
const CHUNK: ReadLimit = ReadLimit { records: 1_024, bytes: 4 << 20 };

/// What names an event within a topic: 128 bits of a hash over the log's incarnation, `source` and `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventKey(u128);

impl EventKey {
    /// The name of an event in the log a partition belongs to.
    pub fn of(partition: &Partition, event: &Event) -> Self {
        let mut hash = Xxh3::new();
        hash.update(&partition.incarnation().0.to_be_bytes());
        hash.update(&(event.source().len() as u64).to_be_bytes());
        hash.update(event.source().as_bytes());
        hash.update(event.id().as_bytes());
        Self(hash.digest128())
    }
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    /// On its way to the log, since then.
    Claimed(u64),
    /// Stored there, then.
    Stored { partition: PartitionId, offset: Offset, at: u64 },
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<EventKey, Entry>,
    order: VecDeque<(u64, EventKey)>,
}

/// The index of what was stored within the window; cheap to clone.
#[derive(Clone, Debug)]
pub struct Deduplicator(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    window: Duration,
    most: usize,
    clock: Clock,
    state: Mutex<State>,
    decided: Notify,
    forgotten: Counter,
    duplicates: Counter,
}

/// What may be done with events that were asked for together.
#[derive(Debug)]
pub enum Claim {
    /// For each: where it was stored before, or `None`: it is this publisher's to store.
    Granted(Vec<Option<(PartitionId, Offset)>>, Claimed),
    /// One of them is on its way by another publisher, and was not decided in time.
    Undecided,
}

/// Events that are this publisher's to store. Dropped before [`Claimed::submitted`], others may store them.
#[derive(Debug)]
pub struct Claimed {
    index: Deduplicator,
    keys: Vec<EventKey>,
}

impl Claimed {
    /// They were handed to the log: it decides.
    pub fn submitted(&mut self) -> Vec<EventKey> {
        std::mem::take(&mut self.keys)
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.index.release(&self.keys);
    }
}

impl Deduplicator {
    /// An empty index: of `window`, with at most `most` entries.
    pub fn new(window: Duration, most: usize, clock: Clock, signals: &Signals) -> Self {
        Self(Arc::new(Inner {
            window,
            most,
            clock,
            state: Mutex::default(),
            decided: Notify::new(),
            forgotten: signals.counter(
                "dedup_forgotten",
                "Events forgotten before their window was over, for lack of room",
            ),
            duplicates: signals.counter("publish_duplicates", "Events not stored because they were before"),
        }))
    }

    /// Claims events, waiting at most `patience` for those that another publisher has on its way. All or none
    /// are claimed, so that two publishers never wait for each other.
    pub async fn claim(&self, keys: &[EventKey], patience: Duration) -> Claim {
        let waiting = async {
            loop {
                let decided = self.0.decided.notified();
                tokio::pin!(decided);
                decided.as_mut().enable();
                if let Some((positions, claimed)) = self.try_claim(keys) {
                    return Claim::Granted(positions, claimed);
                }
                decided.await;
            }
        };
        tokio::time::timeout(patience, waiting).await.unwrap_or(Claim::Undecided)
    }

    #[expect(clippy::type_complexity, reason = "positions and the claim")]
    fn try_claim(&self, keys: &[EventKey]) -> Option<(Vec<Option<(PartitionId, Offset)>>, Claimed)> {
        let now = self.0.clock.now().0;
        let horizon = now.saturating_sub(millis(self.0.window));
        let mut state = self.0.state.lock();
        let on_its_way = |entry: Option<&Entry>| matches!(entry, Some(Entry::Claimed(since)) if now.saturating_sub(*since) < millis(CLAIM_FOR));
        if keys.iter().any(|key| on_its_way(state.entries.get(key))) {
            return None;
        }
        let mut mine: Vec<EventKey> = Vec::new();
        let mut positions = Vec::with_capacity(keys.len());
        for key in keys {
            positions.push(match state.entries.get(key) {
                Some(Entry::Stored { partition, offset, at }) if *at >= horizon => {
                    Some((*partition, *offset))
                }
                // The same event twice in one batch: the second has no place of its own.
                Some(Entry::Claimed(since)) if *since == now && mine.contains(key) => {
                    Some((PartitionId(u32::MAX), Offset(u64::MAX)))
                }
                Some(Entry::Stored { .. } | Entry::Claimed(_)) | None => {
                    state.entries.insert(*key, Entry::Claimed(now));
                    mine.push(*key);
                    None
                }
            });
        }
        self.0.duplicates.inc_by(positions.iter().flatten().count() as u64);
        Some((positions, Claimed { index: self.clone(), keys: mine }))
    }

    /// The log did not store them, for certain.
    pub fn release(&self, keys: &[EventKey]) {
        if keys.is_empty() {
            return;
        }
        let mut state = self.0.state.lock();
        for key in keys {
            if matches!(state.entries.get(key), Some(Entry::Claimed(_))) {
                state.entries.remove(key);
            }
        }
        drop(state);
        self.0.decided.notify_waiters();
    }

    /// The log stored them.
    pub(crate) fn stored(&self, partition: &Partition, records: &[Arc<LogRecord>]) {
        if partition.topic().is_dead_letter() {
            return;
        }
        let horizon = self.0.clock.now().0.saturating_sub(millis(self.0.window));
        let mut state = self.0.state.lock();
        for record in records {
            let at = record.record().accepted_at_ms;
            let key = EventKey::of(partition, &record.record().event);
            // A replayed dead letter has its event's name and does not stand in its way.
            if record.record().event.attribute("emreplaygroup").is_some() {
                continue;
            }
            let entry = Entry::Stored { partition: partition.id(), offset: record.offset(), at };
            state.entries.insert(key, entry);
            state.order.push_back((at, key));
        }
        while let Some((at, key)) = state.order.front().copied() {
            let over = state.order.len() > self.0.most;
            if at >= horizon && !over {
                break;
            }
            state.order.pop_front();
            if matches!(state.entries.get(&key), Some(Entry::Stored { at: stored, .. }) if *stored == at) {
                state.entries.remove(&key);
                self.0.forgotten.inc_by(u64::from(at >= horizon));
            }
        }
        drop(state);
        self.0.decided.notify_waiters();
    }

    /// Reads back what the log stored within the window. Blocks; for boot.
    pub(crate) fn load(&self, plugin: &dyn StoragePlugin, storage: &Storage) -> Result<usize, BackendError> {
        let from = self.0.clock.now().minus(self.0.window);
        for topic in storage.topics() {
            for partition in topic.partitions().iter() {
                let mut next = plugin.offset_at(partition, from)?;
                loop {
                    let records = plugin.read(partition, next, CHUNK)?;
                    let Some(last) = records.last() else { break };
                    next = Offset(last.offset().0 + 1);
                    self.stored(partition, &records);
                }
            }
        }
        Ok(self.0.state.lock().entries.len())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
