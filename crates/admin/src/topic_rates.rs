//! The rates of topics: kept in Meta, and in force at the gate. Durable before a change returns, and in force with it.

use std::{collections::BTreeMap, sync::Arc};

use mesh_base::BackendError;
use mesh_frame::TopicName;
use mesh_gate::{SecurityGate, TopicRate};
use mesh_state::shared::{RateLimit, RateLimitStore};
use tokio::sync::Mutex;

/// The rates of topics, kept and in force; cheap to clone.
#[derive(Clone)]
pub struct RateLimits {
    store: RateLimitStore,
    gate: SecurityGate,
    /// Changes come into force in the order they are kept.
    changing: Arc<Mutex<()>>,
}

impl RateLimits {
    /// Rates that `store` keeps and `gate` holds publishers to.
    pub fn new(store: RateLimitStore, gate: SecurityGate) -> Self {
        Self { store, gate, changing: Arc::default() }
    }

    /// Puts what is kept in force. Call it before anything is served.
    ///
    /// # Errors
    /// When Meta cannot be read.
    pub async fn load(&self) -> Result<usize, BackendError> {
        let rates = self.store.all().await?;
        self.hold(&rates);
        Ok(rates.len())
    }

    /// What is kept.
    pub(crate) async fn all(&self) -> Result<BTreeMap<TopicName, RateLimit>, BackendError> {
        self.store.all().await
    }

    /// Gives a topic a rate.
    pub(crate) async fn put(&self, topic: &TopicName, limit: RateLimit) -> Result<(), BackendError> {
        let _one_at_a_time = self.changing.lock().await;
        self.hold(&self.store.put(topic, limit).await?);
        Ok(())
    }

    /// Takes a topic's rate away; `false`: it had none.
    pub(crate) async fn remove(&self, topic: &TopicName) -> Result<bool, BackendError> {
        let _one_at_a_time = self.changing.lock().await;
        let had = self.store.all().await?.contains_key(topic);
        if had {
            self.hold(&self.store.remove(topic).await?);
        }
        Ok(had)
    }

    fn hold(&self, rates: &BTreeMap<TopicName, RateLimit>) {
        let usable =
            rates.iter().filter_map(|(topic, limit)| match TopicRate::new(limit.capacity, limit.rate) {
                Ok(rate) => Some((topic.clone(), rate)),
                Err(error) => {
                    tracing::error!(%topic, %error, "the rate that is kept for this topic cannot hold");
                    None
                }
            });
        self.gate.topic_rates().replace(usable.collect());
    }
}
