//! Topics and partitions as their driver knows them.

use mesh_frame::{Incarnation, Offset, TopicName};

use crate::TopicSettings;

/// A topic as its driver knows it.
#[derive(Clone, Debug)]
pub struct TopicInfo {
    /// Its name.
    pub name: TopicName,
    /// The random number of this log of that name.
    pub incarnation: Incarnation,
    /// Its partitions, in order.
    pub partitions: Vec<PartitionInfo>,
    /// What is set on it.
    pub settings: TopicSettings,
}

/// A partition as its driver knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// The driver's own number for it, unique over all topics and never used again.
    pub key: u32,
    /// The lowest offset that may still be there.
    pub start: Offset,
    /// The offset the next record gets at the lowest.
    pub end: Offset,
}
