//! What an operator sees of groups and does to them: how far behind they are, who is in them, and their end.

use std::sync::Arc;

use mesh_base::BackendError;
use mesh_frame::{ClientId, Offset, PartitionId, SubscriptionId, TopicName};
use mesh_state::shared::GroupId;
use mesh_storage::{Cached, LogRecord, Partition};

use crate::{
    group::{Core, Group, PartitionLane, member_of, settings::Settings, verdict},
    lane::{Gap, LOOK, Verdict},
    operations::Groups,
};

/// A group as an operator sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupView {
    /// Tenant, topic, kind and name.
    pub id: GroupId,
    /// Raised by every seek.
    pub generation: u32,
    /// Its settings.
    pub settings: Settings,
    /// Its members, by name.
    pub members: Vec<GroupMemberView>,
    /// Its partitions.
    pub partitions: Vec<LaneView>,
}

/// A member of a group as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMemberView {
    /// The client.
    pub client: ClientId,
    /// The id of the membership.
    pub subscription: SubscriptionId,
    /// What it may have in flight.
    pub max_in_flight: u32,
    /// What it has in flight.
    pub in_flight: u32,
}

/// A group on a partition as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// The partition.
    pub partition: PartitionId,
    /// Everything below is done.
    pub floor: Offset,
    /// Everything below was handed out or skipped.
    pub next_to_read: Offset,
    /// One past the last event.
    pub end: Offset,
    /// Up to where the group looked at the log.
    scanned: Offset,
    /// Events that are not done, outstanding ones included; offsets that were never used count until they are
    /// passed over.
    pub lag: u64,
    /// How many of these the group would be given by its filters; `None`: it would take too long to find out.
    pub lag_matching: Option<u64>,
    /// The last range that the group was not given, since the start.
    pub gap: Option<Gap>,
    /// When the oldest event that is not done was accepted, in milliseconds since 1970.
    pub oldest_ms: Option<u64>,
    /// Rows of the ledger.
    pub outstanding: usize,
    /// Handed out and not finished.
    pub pending: usize,
    /// When as many are outstanding as may be: the hash of the key that most of them share, with how many.
    pub held_by_key: Option<(u64, usize)>,
}

/// Events of a lane that are not done.
pub(crate) fn lag(lane: &PartitionLane) -> u64 {
    // What the log dropped before the group looked at it is nothing to be done any more.
    let from = lane.lane.scanned().max(lane.partition.start());
    lane.partition.end().0.saturating_sub(from.0) + lane.lane.outstanding() as u64
}

impl Groups {
    /// The groups of a topic or of all, by name.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn views(&self, topic: Option<&TopicName>) -> Result<Vec<GroupView>, BackendError> {
        let core = &self.core;
        let mut groups = core.directory.all();
        groups.retain(|group| topic.is_none_or(|topic| group.id.topic == *topic));
        groups.sort_by(|one, other| one.id.cmp(&other.id));
        let mut views = Vec::with_capacity(groups.len());
        for group in groups {
            let mut view = view_of(&group);
            let mut looks = LOOKS.min(COMPARISONS / view.settings.filter_cost().max(1));
            for lane in &mut view.partitions {
                lane.lag_matching = matching(core, &group, &view.settings, lane, &mut looks).await;
            }
            for lane in &mut view.partitions {
                if lane.lag > 0
                    && let Some(partition) = group.topic.partition(lane.partition)
                {
                    lane.oldest_ms = accepted_at(core, &partition, lane.floor).await?;
                }
            }
            views.push(view);
        }
        Ok(views)
    }
}

fn view_of(group: &Group) -> GroupView {
    let state = group.state.lock();
    let mut members: Vec<GroupMemberView> = state
        .members
        .iter()
        .map(|(client, membership)| GroupMemberView {
            client: client.clone(),
            subscription: membership.subscription.clone(),
            max_in_flight: membership.max_in_flight,
            in_flight: state.windows.of(member_of(&group.id.tenant, client)),
        })
        .collect();
    members.sort_by(|one, other| one.client.cmp(&other.client));
    let lane = |lane: &PartitionLane| LaneView {
        partition: lane.partition.id(),
        floor: lane.lane.floor(),
        next_to_read: lane.lane.next_to_read(),
        end: lane.partition.end(),
        scanned: lane.lane.scanned(),
        lag: lag(lane),
        lag_matching: None,
        gap: lane.lane.gap(),
        oldest_ms: None,
        outstanding: lane.lane.outstanding(),
        pending: lane.lane.pending(),
        held_by_key: (lane.lane.outstanding() >= state.terms.max_outstanding)
            .then(|| lane.lane.busiest_key())
            .flatten(),
    };
    GroupView {
        id: group.id.clone(),
        generation: group.generation,
        settings: state.settings.clone(),
        members,
        partitions: state.lanes.iter().map(lane).collect(),
    }
}

/// How many records of a group are held against its filters for one view of it.
const LOOKS: usize = 10_000;
/// And how many comparisons that may take.
const COMPARISONS: usize = 10 * LOOKS;

/// How many of a lane's events that are not done its group would be given. Only what is in memory is looked at, and no more
/// than `looks` records.
async fn matching(
    core: &Core,
    group: &Group,
    settings: &Settings,
    lane: &LaneView,
    looks: &mut usize,
) -> Option<u64> {
    if settings.filters.is_empty() {
        return Some(lane.lag);
    }
    let partition = group.topic.partition(lane.partition)?;
    // A step holds nobody up.
    let step = (LOOK / (1 + settings.filter_cost())).clamp(1, 256);
    let (mut from, mut matching) = (lane.scanned, lane.outstanding as u64);
    let mut found = Vec::new();
    while from < lane.end {
        if *looks == 0 {
            return None;
        }
        found.clear();
        match partition.cached(from, (*looks).min(step), &mut found) {
            Cached::Cold => return None,
            Cached::GoneTo(start) => from = start,
            Cached::UpTo(to) => {
                *looks = looks.saturating_sub(found.len().max(1));
                let now = core.clock.now();
                let is_wanted = |record: &Arc<LogRecord>| {
                    verdict((&group.id, group.number), settings, record, now) == Verdict::Deliver
                };
                let below_the_end = found.iter().filter(|record| record.offset() < lane.end);
                matching += below_the_end.filter(|record| is_wanted(record)).count() as u64;
                from = to;
                tokio::task::yield_now().await;
            }
        }
    }
    Some(matching)
}

/// When the first record at or after `from` was accepted; `None` when there is none.
async fn accepted_at(
    core: &Core,
    partition: &Arc<Partition>,
    mut from: Offset,
) -> Result<Option<u64>, BackendError> {
    // A gap, a trim and a cold read are a step each; a trim meanwhile does not hold this up.
    for _ in 0..8 {
        let mut found = Vec::with_capacity(1);
        match partition.cached(from, 1, &mut found) {
            Cached::Cold => core.storage.warm(partition, from).await?,
            Cached::GoneTo(start) => from = start,
            Cached::UpTo(to) => match found.first() {
                Some(record) => return Ok(Some(record.record().accepted_at_ms)),
                None if to > from && to < partition.end() => from = to,
                None => return Ok(None),
            },
        }
    }
    Ok(None)
}
