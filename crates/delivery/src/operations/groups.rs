//! The handle on groups: what its operations stand on.

use std::sync::Arc;

use mesh_frame::{GroupName, InstanceId, TenantId, TopicName};
use mesh_rocks::Durability;
use mesh_state::{
    positions::{LaneKey, PositionBatch},
    shared::{ClusterSubscriptionStore, GroupId, GroupKind, IdentityStore},
};

use super::{begun::Operations, errors::GroupError, places::Places};
use crate::{
    dead_letters::DeadLetters,
    group::{Core, Group},
    handout::streams::Streams,
};

/// Which group an operator means. Without a kind, the one that is there.
#[derive(Clone, Debug)]
pub struct GroupSelector {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its topic.
    pub topic: TopicName,
    /// Its name.
    pub name: GroupName,
    /// Whether its members share.
    pub kind: Option<GroupKind>,
}

/// The groups as Meta holds them.
pub(super) struct InMeta {
    pub(super) subscriptions: Arc<ClusterSubscriptionStore>,
    pub(super) identities: IdentityStore,
    /// The name of this instance.
    pub(super) instance: InstanceId,
}

/// The groups of this instance; cheap to clone.
#[derive(Clone)]
pub struct Groups {
    pub(crate) core: Arc<Core>,
    pub(super) streams: Arc<Streams>,
    pub(super) letters: DeadLetters,
    pub(super) operations: Arc<Operations>,
    pub(super) meta: Arc<InMeta>,
    pub(super) places: Places,
    pub(super) auto_create: bool,
}

impl std::fmt::Debug for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Groups").finish_non_exhaustive()
    }
}

/// Where groups are kept, and how topics come to be.
#[derive(Clone)]
pub struct GroupStores {
    /// Groups and memberships.
    pub subscriptions: Arc<ClusterSubscriptionStore>,
    /// Where numbers of groups come from.
    pub identities: IdentityStore,
    /// Whether topics are made by the first subscribe.
    pub auto_create: bool,
}

impl Groups {
    pub(crate) fn new(
        core: Arc<Core>,
        streams: Arc<Streams>,
        letters: DeadLetters,
        instance: InstanceId,
        stores: GroupStores,
    ) -> Self {
        let GroupStores { subscriptions, identities, auto_create } = stores;
        Self {
            operations: Arc::new(Operations::new(core.clone())),
            core,
            streams,
            letters,
            meta: Arc::new(InMeta { subscriptions, identities, instance }),
            places: Places::default(),
            auto_create,
        }
    }

    /// The group an operator means.
    pub(crate) fn find(&self, which: &GroupSelector) -> Result<Arc<Group>, GroupError> {
        let kinds = which.kind.map_or(vec![GroupKind::LoadBalance, GroupKind::Broadcast], |kind| vec![kind]);
        let mut found = kinds.into_iter().filter_map(|kind| {
            let id = GroupId {
                tenant: which.tenant.clone(),
                topic: which.topic.clone(),
                kind,
                name: which.name.clone(),
            };
            self.core.directory.find(&id)
        });
        let first = found.next().ok_or_else(|| GroupError::Unknown(which.name.clone()))?;
        if found.next().is_some() { Err(GroupError::Ambiguous) } else { Ok(first) }
    }

    /// Removes the positions of a group that is not there any more, in a task of the process: until it is done, or
    /// the next start does it.
    pub(super) fn forget_positions(&self, group: &Arc<Group>) {
        let partitions = group.topic.partitions();
        let keys: Vec<LaneKey> = partitions.iter().map(|partition| group.lane_key(partition)).collect();
        let core = self.core.clone();
        self.core.owned.tasks.spawn("forget positions", async move {
            let stop = core.owned.tasks.stop();
            loop {
                let mut batch = PositionBatch::new();
                keys.iter().for_each(|key| batch.forget(*key));
                if core.ledger.write(batch, Durability::Logged).await.is_ok() {
                    return;
                }
                tokio::select! {
                    () = stop.wait() => return,
                    () = tokio::time::sleep(std::time::Duration::from_millis(500)) => {}
                }
            }
        });
    }
}
