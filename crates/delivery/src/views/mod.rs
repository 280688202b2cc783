//! What an operator sees of deliveries: positions, pending counts, dead letters.

pub(crate) mod groups;
pub(crate) mod lag;

use std::{collections::BTreeMap, sync::Arc};

use mesh_frame::{ClientId, GroupName, Offset, PartitionId, TenantId, TopicName};
use mesh_state::shared::{DeadLetter, GroupKind};
use mesh_storage::LogRecord;

use crate::group::{Core, member_of};

/// How far a group is on a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PositionView {
    /// The tenant of the group.
    pub tenant: TenantId,
    /// The group.
    pub group: GroupName,
    /// Whether it is a group of one client.
    pub of_one_client: bool,
    /// The partition.
    pub partition: PartitionId,
    /// Everything below is done.
    pub floor: Offset,
    /// Everything below was handed out or skipped.
    pub next_to_read: Offset,
    /// One past the last event.
    pub end: Offset,
    /// Outstanding rows.
    pub outstanding: usize,
    /// Handed out and not finished.
    pub pending: usize,
}

/// A client with what it has pending on a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientView {
    /// The client.
    pub client: ClientId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Handed out to it last and not finished.
    pub pending: usize,
}

/// A dead letter with its body.
#[derive(Clone, Debug)]
pub struct DeadLetterView {
    /// The row.
    pub letter: DeadLetter,
    /// The body; `None` when the dead-letter topic no longer has it.
    pub body: Option<Arc<LogRecord>>,
}

/// How far every group of a topic is, partition by partition.
pub(crate) fn positions(core: &Core, topic: &TopicName) -> Vec<PositionView> {
    let mut views = Vec::new();
    for group in core.directory.of_topic(topic) {
        let state = group.state.lock();
        for lane in &state.lanes {
            views.push(PositionView {
                tenant: group.id.tenant.clone(),
                group: group.id.name.clone(),
                of_one_client: group.id.kind == GroupKind::Broadcast,
                partition: lane.partition.id(),
                floor: lane.lane.floor(),
                next_to_read: lane.lane.next_to_read(),
                end: lane.partition.end(),
                outstanding: lane.lane.outstanding(),
                pending: lane.lane.pending(),
            });
        }
    }
    views
}

/// The clients of a topic with what they have, each once.
pub(crate) fn clients(core: &Core, topic: &TopicName) -> Vec<ClientView> {
    let mut pending: BTreeMap<(TenantId, ClientId), usize> = BTreeMap::new();
    for group in core.directory.of_topic(topic) {
        let state = group.state.lock();
        for client in state.members.keys() {
            let member = member_of(&group.id.tenant, client);
            let held: usize = state.lanes.iter().map(|lane| lane.lane.pending_of(member)).sum();
            *pending.entry((group.id.tenant.clone(), client.clone())).or_default() += held;
        }
    }
    pending.into_iter().map(|((tenant, client), pending)| ClientView { client, tenant, pending }).collect()
}
