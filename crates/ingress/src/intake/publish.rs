//! Publish: events into the log, durable before it succeeds.
//!
//! An append that the log decides at once is answered at once, without a timer. One that takes longer than the
//! publish timeout ends as [`PublishError::TimedOut`]: it may still be stored.

use mesh_base::BackendError;
use mesh_frame::{Event, Offset, PartitionId, TenantId, TopicName};
use mesh_gate::Admitted;
use mesh_storage::{Append, AppendItem, Topic, TopicError};
use thiserror::Error;

use super::Intake;

/// One event for a topic.
#[derive(Clone, Debug)]
pub struct PublishEvent {
    /// The topic.
    pub topic: TopicName,
    /// The event.
    pub event: Event,
}

/// Events for a topic that are stored together or not at all.
#[derive(Clone, Debug)]
pub struct PublishBatch {
    /// The topic.
    pub topic: TopicName,
    /// The events.
    pub events: Vec<Event>,
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
        let (partition, offset) = self.counted(stored, 1)?;
        Ok(Stored { topic, partition, offset })
    }

    /// Stores events as one atomic effect and says how many: those with a key by it, the others in one partition
    /// together.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_batch(&self, admitted: Admitted<PublishBatch>) -> Result<usize, PublishError> {
        let (PublishBatch { topic, events }, caller) = admitted.into_parts();
        let count = events.len();
        if count == 0 {
            return Ok(0);
        }
        let stored = self.store_all(&topic, events, caller.tenant()).await;
        self.counted(stored, count)?;
        Ok(count)
    }

    async fn store_one(
        &self,
        topic: &TopicName,
        event: Event,
        tenant: &TenantId,
    ) -> Result<(PartitionId, Offset), PublishError> {
        let topic = self.topic_to_publish(topic).await?;
        let partition = match event.partition_key() {
            Some(key) => topic.partition_of_key(key),
            None => topic.next_partition(),
        };
        let id = partition.id();
        let offsets =
            self.append(vec![AppendItem { partition, event: self.with_tenant(event, tenant) }]).await?;
        Ok((id, *offsets.first().expect("an append answers one offset an item")))
    }

    async fn store_all(
        &self,
        topic: &TopicName,
        events: Vec<Event>,
        tenant: &TenantId,
    ) -> Result<Vec<Offset>, PublishError> {
        let topic = self.topic_to_publish(topic).await?;
        let mut keyless = None;
        let place = |event: Event| {
            let partition = match event.partition_key() {
                Some(key) => topic.partition_of_key(key),
                None => keyless.get_or_insert_with(|| topic.next_partition()).clone(),
            };
            AppendItem { partition, event: self.with_tenant(event, tenant) }
        };
        let items = events.into_iter().map(place).collect();
        self.append(items).await
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

    async fn append(&self, items: Vec<AppendItem>) -> Result<Vec<Offset>, PublishError> {
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

    fn counted<T>(&self, stored: Result<T, PublishError>, events: usize) -> Result<T, PublishError> {
        let counter = if stored.is_ok() { &self.signals.published } else { &self.signals.publish_failed };
        counter.inc_by(events as u64);
        stored
    }
}
