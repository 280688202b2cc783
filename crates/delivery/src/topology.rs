//! `DeliveryTopology`: the one place that says which partitions this instance polls.
//!
//! Every hand-out of every way in passes through [`DeliveryTopology::partitions`]: HTTP publish, A2A and
//! legacy TCP end in the same log and are read from here. How a subscriber is reached is not its matter.

use mesh_frame::PartitionId;
use mesh_storage::Topic;

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

    /// The partitions of a topic that this instance polls.
    pub fn partitions(self, topic: &Topic) -> Vec<PartitionId> {
        match self {
            Self::LocalStickyPull => topic.partitions().iter().map(|partition| partition.id()).collect(),
        }
    }
}
