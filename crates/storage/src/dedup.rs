//! Publisher deduplication: an event whose `source` and `id` were stored within its topic's window is not stored
//! again.
//!
//! The index is fed by the log itself, from the thread that appends, and read back from the log at boot and when a
//! window becomes longer: what it knows is exactly what is stored, also when the publisher that sent it never got
//! its answer. While an event is on its way to the log, a second one of the same name waits for the first to be
//! decided. All topics share one bound of entries of about 150 bytes each; past it those go first whose window ends
//! first, and are counted. Topics without a window cost nothing.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use mesh_base::{BackendError, Clock, Counter, Signals};
use mesh_frame::{Event, Offset, PartitionId};
use parking_lot::Mutex;
use tokio::sync::Notify;
use xxhash_rust::xxh3::Xxh3;

use crate::{LogRecord, Partition, ReadLimit, StoragePlugin, Topic};

/// A claim that nobody decided within this time is void: its publisher is gone and the log did not store.
const CLAIM_FOR: Duration = Duration::from_secs(60);
/// How often void claims are forgotten.
const SWEEP: Duration = Duration::from_secs(10);
/// What is read back at a time.
const CHUNK: ReadLimit = ReadLimit { records: 1_024, bytes: 4 << 20 };

/// What names an event within a topic: 128 bits of a hash over the log's incarnation, `source` and `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventKey([u64; 2]);

impl EventKey {
    /// The name of an event in the log a partition belongs to.
    pub fn of(partition: &Partition, event: &Event) -> Self {
        let mut hash = Xxh3::new();
        hash.update(&partition.incarnation().0.to_be_bytes());
        // What one tenant published is no duplicate of another's, which may not even know of it.
        let tenant = event.attribute("emtenantid").unwrap_or_default();
        hash.update(&(tenant.len() as u64).to_be_bytes());
        hash.update(tenant.as_bytes());
        hash.update(&(event.source().len() as u64).to_be_bytes());
        hash.update(event.source().as_bytes());
        hash.update(event.id().as_bytes());
        let digest = hash.digest128();
        Self([(digest >> 64) as u64, digest as u64])
    }
}

/// Where and when an event was stored.
#[derive(Clone, Copy, Debug)]
struct Stored {
    partition: PartitionId,
    /// The window it was stored with, in milliseconds: it is forgotten at its end.
    kept_ms: u32,
    offset: Offset,
    at: u64,
}

impl Stored {
    fn until(&self) -> u64 {
        self.at.saturating_add(u64::from(self.kept_ms))
    }
}

#[derive(Debug, Default)]
struct State {
    stored: HashMap<EventKey, Stored>,
    /// The same, by the end of their window; what was stored in one millisecond, in the order of its partition.
    by_end: BTreeSet<(u64, Offset, EventKey)>,
    /// On its way to the log, since then.
    claims: HashMap<EventKey, u64>,
    swept: u64,
}

impl State {
    /// Forgets claims that are void.
    fn sweep(&mut self, now: u64) {
        if now.saturating_sub(self.swept) < millis(SWEEP) {
            return;
        }
        self.swept = now;
        self.claims.retain(|_, since| now.saturating_sub(*since) < millis(CLAIM_FOR));
        if self.claims.capacity() > 4 * self.claims.len() + 1_024 {
            self.claims.shrink_to_fit();
        }
    }
}

/// The index of what was stored within the windows; cheap to clone.
#[derive(Clone, Debug)]
pub struct Deduplicator(Arc<Inner>);

#[derive(Debug)]
struct Inner {
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
    /// An empty index with at most `most` entries.
    pub fn new(most: usize, clock: Clock, signals: &Signals) -> Self {
        Self(Arc::new(Inner {
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

    /// Claims events of a topic, waiting at most `patience` for those that another publisher has on its way. All or none
    /// are claimed, so that two publishers never wait for each other.
    pub async fn claim(&self, topic: &Topic, keys: &[EventKey], patience: Duration) -> Claim {
        let waiting = async {
            loop {
                let decided = self.0.decided.notified();
                tokio::pin!(decided);
                decided.as_mut().enable();
                if let Some((positions, claimed)) = self.try_claim(topic.dedup_window(), keys) {
                    return Claim::Granted(positions, claimed);
                }
                decided.await;
            }
        };
        tokio::time::timeout(patience, waiting).await.unwrap_or(Claim::Undecided)
    }

    #[expect(clippy::type_complexity, reason = "positions and the claim")]
    fn try_claim(
        &self,
        window: Duration,
        keys: &[EventKey],
    ) -> Option<(Vec<Option<(PartitionId, Offset)>>, Claimed)> {
        let now = self.0.clock.now().0;
        let horizon = now.saturating_sub(millis(window));
        let mut state = self.0.state.lock();
        state.sweep(now);
        let claimed = |since: &u64| now.saturating_sub(*since) < millis(CLAIM_FOR);
        if keys.iter().any(|key| state.claims.get(key).is_some_and(claimed)) {
            return None;
        }
        let mut mine: Vec<EventKey> = Vec::new();
        let mut positions = Vec::with_capacity(keys.len());
        for key in keys {
            positions.push(match state.stored.get(key) {
                Some(stored) if stored.at >= horizon => Some((stored.partition, stored.offset)),
                // The same event twice in one batch: the second has no place of its own.
                _ if state.claims.get(key) == Some(&now) && mine.contains(key) => {
                    Some((PartitionId(u32::MAX), Offset(u64::MAX)))
                }
                _ => {
                    state.claims.insert(*key, now);
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
            state.claims.remove(key);
        }
        drop(state);
        self.0.decided.notify_waiters();
    }

    /// The log stored them.
    pub(crate) fn stored(&self, partition: &Partition, records: &[Arc<LogRecord>]) {
        let window = partition.dedup_window_ms();
        if window == 0 || partition.topic().is_dead_letter() {
            return;
        }
        let now = self.0.clock.now().0;
        let mut guard = self.0.state.lock();
        let state = &mut *guard;
        state.sweep(now);
        for record in records {
            let event = &record.record().event;
            // A replayed dead letter has its event's name and does not stand in its way.
            if event.attribute("emreplaygroup").is_some() {
                continue;
            }
            let key = EventKey::of(partition, event);
            let stored = Stored {
                partition: partition.id(),
                kept_ms: u32::try_from(window).unwrap_or(u32::MAX),
                offset: record.offset(),
                at: record.record().accepted_at_ms,
            };
            state.claims.remove(&key);
            match state.stored.get(&key) {
                // Read back while it is stored again: the newer one stands.
                Some(newer) if newer.at > stored.at => continue,
                Some(older) => state.by_end.remove(&(older.until(), older.offset, key)),
                None => false,
            };
            state.stored.insert(key, stored);
            state.by_end.insert((stored.until(), stored.offset, key));
        }
        while let Some(&(until, _, key)) = state.by_end.first() {
            let ended = until < now;
            if !ended && state.by_end.len() <= self.0.most {
                break;
            }
            state.by_end.pop_first();
            state.stored.remove(&key);
            self.0.forgotten.inc_by(u64::from(!ended));
        }
        drop(guard);
        self.0.decided.notify_waiters();
    }

    /// Reads back what the log stored within a topic's window. Blocks.
    pub(crate) fn load(&self, plugin: &dyn StoragePlugin, topic: &Topic) -> Result<(), BackendError> {
        if topic.dedup_window().is_zero() || topic.name().is_dead_letter() {
            return Ok(());
        }
        let from = self.0.clock.now().minus(topic.dedup_window());
        for partition in topic.partitions().iter() {
            let mut next = plugin.offset_at(partition, from)?;
            loop {
                let records = plugin.read(partition, next, CHUNK)?;
                let Some(last) = records.last() else { break };
                next = Offset(last.offset().0 + 1);
                self.stored(partition, &records);
            }
        }
        Ok(())
    }

    /// How many stored events it knows.
    pub fn known(&self) -> usize {
        self.0.state.lock().stored.len()
    }

    /// How many events are on their way to the log, as far as it knows.
    #[cfg(feature = "conformance")]
    pub fn on_their_way(&self) -> usize {
        self.0.state.lock().claims.len()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
