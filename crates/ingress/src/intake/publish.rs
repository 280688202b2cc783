//! Publish: events into the log, durable before it succeeds.
//!
//! An append that the log decides at once is answered at once, without a timer. One that takes longer than the
//! publish timeout ends as [`PublishError::TimedOut`]: it may still be stored.

use mesh_base::BackendError;
use mesh_frame::{Event, Offset, PartitionId, TenantId, TopicName};
use mesh_gate::{Action, Admitted, Asks, Cost, Resource};
use mesh_storage::{
    Append, AppendItem, Claim, Claimed, Deduplicator, EventKey, Items, Offsets, Topic, TopicError,
};
use smallvec::smallvec;
use thiserror::Error;

use super::{Intake, entry::Incoming};

/// One event for a topic.
#[derive(Clone, Debug)]
pub struct PublishEvent {
    /// The topic.
    pub topic: TopicName,
    /// The event.
    pub event: Event,
}

/// What an event counts for the rates of its tenant: its data and attributes as they are stored, whatever it came as.
fn stored_bytes(event: &Event) -> u64 {
    event.frame().as_bytes().len() as u64
}

impl Asks for PublishEvent {
    fn action(&self) -> Action {
        Action::Publish
    }

    fn resource(&self) -> Resource<'_> {
        Resource::Topic(&self.topic)
    }

    fn cost(&self) -> Option<Cost> {
        Some(Cost { events: 1, bytes: stored_bytes(&self.event) })
    }
}

impl Incoming for PublishEvent {
    fn events(&self) -> &[Event] {
        std::slice::from_ref(&self.event)
    }
}

/// Events for a topic that are stored together or not at all.
#[derive(Clone, Debug)]
pub struct PublishBatch {
    /// The topic.
    pub topic: TopicName,
    /// The events.
    pub events: Vec<Event>,
}

impl Asks for PublishBatch {
    fn action(&self) -> Action {
        Action::Publish
    }

    fn resource(&self) -> Resource<'_> {
        Resource::Topic(&self.topic)
    }

    fn cost(&self) -> Option<Cost> {
        Some(Cost { events: self.events.len() as u64, bytes: self.events.iter().map(stored_bytes).sum() })
    }
}

impl Incoming for PublishBatch {
    fn events(&self) -> &[Event] {
        &self.events
    }
}

/// Where an event was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: PartitionId,
    /// The place in the partition.
    pub offset: Offset,
    /// It was stored before, there; this time it was not.
    pub duplicate: bool,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    /// How many events it had.
    pub count: usize,
    /// How many of them had been stored before.
    pub duplicates: usize,
}

/// Where one event is.
struct Place {
    partition: PartitionId,
    offset: Offset,
    duplicate: bool,
}

/// Why nothing was stored, or is not known to be.
#[derive(Debug, Error)]
pub enum PublishError {
    /// There is no such topic, and none could be made.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The disk watermark stops publishing.
    #[error("there is too little free space to publish")]
    StorageLow,
    /// The log did not answer in time; what was published may or may not have been stored.
    #[error("the log did not answer in time")]
    TimedOut,
    /// The log refused; nothing of it will be read.
    #[error("the log did not store")]
    Storage(#[source] BackendError),
}

impl Intake {
    /// Stores an event: by its key, or in the partition whose turn it is.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish(&self, admitted: Admitted<PublishEvent>) -> Result<Stored, PublishError> {
        let (PublishEvent { topic, event }, caller) = admitted.into_parts();
        let stored = self.store_one(&topic, event, caller.tenant()).await;
        let Place { partition, offset, duplicate } = stored.inspect_err(|_| self.failed(1))?;
        self.signals.published.inc_by(u64::from(!duplicate));
        Ok(Stored { topic, partition, offset, duplicate })
    }

    /// Stores events as one atomic effect: those with a key by it, the others in one partition together. Says how
    /// many of them are duplicates, which were not stored again.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_batch(&self, admitted: Admitted<PublishBatch>) -> Result<StoredBatch, PublishError> {
        let (PublishBatch { topic, events }, caller) = admitted.into_parts();
        let count = events.len();
        if count == 0 {
            return Ok(StoredBatch { count, duplicates: 0 });
        }
        let stored = self.store_all(&topic, events, caller.tenant()).await;
        let stored = stored.inspect_err(|_| self.failed(count))?;
        self.signals.published.inc_by(stored as u64);
        Ok(StoredBatch { count, duplicates: count - stored })
    }

    async fn store_one(
        &self,
        topic: &TopicName,
        event: Event,
        tenant: &TenantId,
    ) -> Result<Place, PublishError> {
        let topic = self.topic_to_publish(topic).await?;
        let partition = match event.partition_key() {
            Some(key) => topic.partition_of_key(key),
            None => topic.next_partition(),
        };
        let id = partition.id();
        let items: Items = smallvec![AppendItem { partition, event: self.with_tenant(event, tenant) }];
        let Some(index) = self.index_of(&topic) else {
            let offsets = self.append(items).await?;
            return Ok(Place { partition: id, offset: first(&offsets), duplicate: false });
        };
        let (before, claimed) = self.claim(index, &topic, &items).await?;
        if let Some(Some((partition, offset))) = before.first() {
            return Ok(Place { partition: *partition, offset: *offset, duplicate: true });
        }
        let offsets = self.append_claimed(index, items, claimed).await?;
        Ok(Place { partition: id, offset: first(&offsets), duplicate: false })
    }

    /// How many were stored; the others had been before.
    async fn store_all(
        &self,
        topic: &TopicName,
        events: Vec<Event>,
        tenant: &TenantId,
    ) -> Result<usize, PublishError> {
        let topic = self.topic_to_publish(topic).await?;
        let mut keyless = None;
        let place = |event: Event| {
            let partition = match event.partition_key() {
                Some(key) => topic.partition_of_key(key),
                None => keyless.get_or_insert_with(|| topic.next_partition()).clone(),
            };
            AppendItem { partition, event: self.with_tenant(event, tenant) }
        };
        let items: Items = events.into_iter().map(place).collect();
        let Some(index) = self.index_of(&topic) else {
            return Ok(self.append(items).await?.len());
        };
        let (before, claimed) = self.claim(index, &topic, &items).await?;
        let fresh: Items = items
            .into_iter()
            .zip(before)
            .filter(|(_, before)| before.is_none())
            .map(|(item, _)| item)
            .collect();
        if fresh.is_empty() {
            return Ok(0);
        }
        Ok(self.append_claimed(index, fresh, claimed).await?.len())
    }

    /// The index of what was published, for a topic with a window.
    fn index_of(&self, topic: &Topic) -> Option<&Deduplicator> {
        self.settings.dedup.as_ref().filter(|_| !topic.dedup_window().is_zero())
    }

    async fn claim(
        &self,
        index: &Deduplicator,
        topic: &Topic,
        items: &[AppendItem],
    ) -> Result<(Vec<Option<(PartitionId, Offset)>>, Claimed), PublishError> {
        let keys: Vec<EventKey> =
            items.iter().map(|item| EventKey::of(&item.partition, &item.event)).collect();
        match index.claim(topic, &keys, self.settings.publish_timeout).await {
            Claim::Granted(before, claimed) => Ok((before, claimed)),
            Claim::Undecided => Err(PublishError::TimedOut),
        }
    }

    /// Appends events that are ours to store. What the log refused others may store; what it did not answer is
    /// decided by what it stores.
    async fn append_claimed(
        &self,
        index: &Deduplicator,
        items: Items,
        mut claimed: Claimed,
    ) -> Result<Offsets, PublishError> {
        let keys = claimed.submitted();
        let appended = self.append(items).await;
        if matches!(appended, Err(PublishError::Storage(_))) {
            index.release(&keys);
        }
        appended
    }

    async fn topic_to_publish(&self, name: &TopicName) -> Result<std::sync::Arc<Topic>, PublishError> {
        if self.storage.is_low() {
            return Err(PublishError::StorageLow);
        }
        match self.storage.topic(name) {
            Some(topic) => Ok(topic),
            None => Ok(self.storage.ensure_topic(name, self.settings.auto_create, None).await?),
        }
    }

    async fn append(&self, items: Items) -> Result<Offsets, PublishError> {
        let appended = match self.storage.append(items) {
            decided @ Append::Now(_) => self.storage.appended(decided).await,
            later @ Append::Later(_) => {
                let answer = self.storage.appended(later);
                tokio::time::timeout(self.settings.publish_timeout, answer)
                    .await
                    .map_err(|_elapsed| PublishError::TimedOut)?
            }
        };
        appended.map_err(PublishError::Storage)
    }

    /// Events of the default tenant look as they came; others say whose they are.
    fn with_tenant(&self, event: Event, tenant: &TenantId) -> Event {
        if *tenant == self.settings.default_tenant {
            event
        } else {
            event.with_attributes(&[("emtenantid", tenant.as_str())])
        }
    }

    fn failed(&self, events: usize) {
        self.signals.publish_failed.inc_by(events as u64);
    }
}

fn first(offsets: &[Offset]) -> Offset {
    *offsets.first().expect("an append answers one offset an item")
}
