//! The rates of topics, kept in Meta: one record for all of them, changed by compare-and-set.

use std::collections::BTreeMap;

use mesh_base::{BackendError, BackendErrorKind};
use mesh_frame::TopicName;
use mesh_meta::MetaStore;
use serde::{Deserialize, Serialize};

use super::{Created, Replaced, SharedRecord, Unknown, Writer, keys, records::Records};

/// How often a change is tried that others get in before.
const TRIES: usize = 64;
/// How many topics may have a rate.
const MOST: usize = 10_000;

/// How fast a topic may be published to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateLimit {
    /// How many events may come at once.
    pub capacity: u64,
    /// How many events a second come back.
    pub rate: f64,
}

/// The record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RateLimitRules {
    /// By topic.
    pub rules: BTreeMap<String, RateLimit>,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl SharedRecord for RateLimitRules {
    type Id = ();
    const NAME: &'static str = "rate limits";

    fn key((): &()) -> String {
        keys::RATE_LIMITS.to_owned()
    }

    fn read_key(key: &str) -> Option<()> {
        (key == keys::RATE_LIMITS).then_some(())
    }

    fn unknown_mut(&mut self) -> &mut Unknown {
        &mut self.unknown
    }
}

/// The rates of topics; cheap to clone.
#[derive(Clone, Debug)]
pub struct RateLimitStore(Records<RateLimitRules>);

impl RateLimitStore {
    /// The rates in `meta`; nothing is read yet.
    pub fn new(meta: &MetaStore, writer: &Writer) -> Self {
        Self(Records::new(meta.clone(), writer.clone()))
    }

    /// Every rate.
    ///
    /// # Errors
    /// When Meta cannot be read.
    pub async fn all(&self) -> Result<BTreeMap<TopicName, RateLimit>, BackendError> {
        Ok(self.0.get(&()).await?.map_or_else(BTreeMap::new, |stored| named(&stored.record)))
    }

    /// Gives a topic a rate, or another one. Durable when it returns, with every rate there is then.
    ///
    /// # Errors
    /// When Meta cannot write, or has as many rates as it may (`Refused`).
    pub async fn put(
        &self,
        topic: &TopicName,
        limit: RateLimit,
    ) -> Result<BTreeMap<TopicName, RateLimit>, BackendError> {
        self.change(|rules| {
            let is_new = rules.insert(topic.as_str().to_owned(), limit).is_none();
            !is_new || rules.len() <= MOST
        })
        .await
    }

    /// Takes a topic's rate away. Durable when it returns, with every rate that is left.
    ///
    /// # Errors
    /// When Meta cannot write.
    pub async fn remove(&self, topic: &TopicName) -> Result<BTreeMap<TopicName, RateLimit>, BackendError> {
        self.change(|rules| {
            rules.remove(topic.as_str());
            true
        })
        .await
    }

    async fn change(
        &self,
        mut change: impl FnMut(&mut BTreeMap<String, RateLimit>) -> bool,
    ) -> Result<BTreeMap<TopicName, RateLimit>, BackendError> {
        let refused = |why: &'static str| {
            BackendError::new(BackendErrorKind::Refused, "meta", "changing the rates").with_source(why)
        };
        for _ in 0..TRIES {
            let current = self.0.get(&()).await?;
            let mut record = current.as_ref().map_or_else(RateLimitRules::default, |at| at.record.clone());
            if !change(&mut record.rules) {
                return Err(refused("there are as many rates as there may be"));
            }
            let changed = named(&record);
            let is_written = match &current {
                None => matches!(self.0.create(&(), record).await?, Created::Written(_)),
                Some(at) => matches!(self.0.replace(&(), at, record).await?, Replaced::Replaced(_)),
            };
            if is_written {
                return Ok(changed);
            }
        }
        Err(refused("others kept changing them"))
    }
}

/// By their names; one that is none any more is left out.
fn named(record: &RateLimitRules) -> BTreeMap<TopicName, RateLimit> {
    record.rules.iter().filter_map(|(topic, limit)| Some((TopicName::new(topic).ok()?, *limit))).collect()
}
