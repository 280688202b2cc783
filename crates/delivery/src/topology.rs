//! `DeliveryTopology`: the one place that says which partitions this instance polls.
//!
//! Every hand-out of every way in passes through [`Polled::partitions`]: HTTP publish, A2A and legacy TCP end in the
//! same log and are read from here. How a subscriber is reached is not its matter.

use std::sync::Arc;

use mesh_storage::{Partition, Topic};

/// How the partitions of a topic are divided between instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeliveryTopology {
    /// Every instance polls every partition of every topic it has subscribers for. Needs no Meta store.
    #[default]
    LocalStickyPull,
}

impl DeliveryTopology {
    /// The name in configuration and in the start-up log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LocalStickyPull => "LOCAL_STICKY_PULL",
        }
    }

    /// What it comes to on this instance.
    pub fn polled(self) -> Polled {
        Polled(self)
    }
}

/// The partitions that this instance polls.
#[derive(Clone, Debug)]
pub struct Polled(DeliveryTopology);

impl Polled {
    /// The partitions of a topic that this instance polls.
    pub fn partitions(&self, topic: &Topic) -> Vec<Arc<Partition>> {
        match self.0 {
            DeliveryTopology::LocalStickyPull => topic.partitions().to_vec(),
        }
    }
}
