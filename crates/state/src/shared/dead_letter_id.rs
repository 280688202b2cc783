//! Which dead letter.

use mesh_frame::{Incarnation, InstanceId, Offset, PartitionId};

use super::GroupId;

/// What a row is about: one event of a group's topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeadLetterId {
    /// The group that did not get it.
    pub group: GroupId,
    /// The instance, where instances have positions of their own.
    pub instance: Option<InstanceId>,
    /// The life of the topic.
    pub incarnation: Incarnation,
    /// The partition.
    pub partition: PartitionId,
    /// The event's offset.
    pub offset: Offset,
}
