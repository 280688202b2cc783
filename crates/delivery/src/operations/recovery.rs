//! Recovery: what boot does before anything is served.
//!
//! [`Groups::align_pull_offsets_to_ack`] makes log and positions agree; [`Groups::recover`] brings every
//! group back with what it had in flight. Attempts go on where they were, locks of polled deliveries stand,
//! and nothing moves because a client is absent.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use mesh_base::{BackendError, BackendErrorKind};
use mesh_frame::ClientId;
use mesh_rocks::Durability;
use mesh_state::{
    positions::{Cursor, LaneKey, PositionBatch},
    shared::{GroupId, GroupKind, GroupRecord, Removed, StoredGroup, SubscriptionStore},
};
use mesh_storage::{Topic, TopicError};

use super::{errors::SubscribeError, groups::Groups};
use crate::{
    group::{Group, Membership, stored_settings::read_settings},
    ledger::LedgerUnavailable,
};

/// Why recovery stopped the boot.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// A topic of a group could not be made again.
    #[error("could not bring back the topic of a group")]
    Topic(#[from] TopicError),
    /// Positions or the log could not be read or written.
    #[error("could not bring back the groups")]
    Backend(#[from] BackendError),
    /// Positions could not be written.
    #[error("could not bring back the groups")]
    Ledger(#[from] LedgerUnavailable),
}

/// What recovery found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Groups that are served again.
    pub groups: usize,
    /// Deliveries that are pending again.
    pub pending: usize,
    /// Positions nobody knew, removed.
    pub orphans: usize,
    /// Dead letters that an interrupted replay had copied, removed.
    pub replayed: usize,
}

impl From<RecoveryError> for SubscribeError {
    fn from(error: RecoveryError) -> Self {
        match error {
            RecoveryError::Topic(error) => error.into(),
            RecoveryError::Backend(error) => LedgerUnavailable::from(error).into(),
            RecoveryError::Ledger(error) => error.into(),
        }
    }
}

impl Groups {
    /// Brings every group back. Call it once, before anything is served; until it is done nothing can be changed.
    /// The Meta store is this process's own: every group in it is ours, also when the instance was called otherwise
    /// before.
    ///
    /// # Errors
    /// See [`RecoveryError`]; the boot stops.
    pub async fn recover(&self) -> Result<Recovered, RecoveryError> {
        let mut known: HashMap<u64, u32> = HashMap::new();
        let mut recovered = Recovered::default();
        self.end_what_was_left().await?;
        for (id, stored) in self.meta.subscriptions.groups() {
            known.insert(stored.record.id, stored.record.generation);
            let topic = self.core.storage.ensure_topic(&id.topic, true, None).await?;
            let back = self.bring_back(&id, &stored, &topic).await?;
            recovered.groups += usize::from(back.is_some());
        }
        recovered.orphans = self.forget_orphans(&known).await?;
        recovered.replayed = self.letters.settle_replays().await?;
        recovered.pending = self.core.directory.pending();
        self.core.owned.recovered();
        Ok(recovered)
    }

    /// Removes what the death of an operation left in Meta: memberships of no group, and groups of one client
    /// without it. What is there and cannot be read, because a newer release wrote it, counts as there.
    async fn end_what_was_left(&self) -> Result<(), BackendError> {
        for (id, member) in self.meta.subscriptions.all_members() {
            if self.meta.subscriptions.group(&id).is_some()
                || is_there(self.meta.subscriptions.read_group(&id).await)?
            {
                continue;
            }
            tracing::info!(group = %id, client = %member.record.client, "a subscription that was never finished, or not ended to the last step, is removed");
            let mut held = Some(member);
            while let Some(ours) = held.take() {
                if let Removed::Stale(there) = self.meta.subscriptions.remove_member(&id, &ours).await? {
                    held = there;
                }
            }
        }
        for (id, group) in self.meta.subscriptions.groups() {
            if id.kind == GroupKind::LoadBalance || !self.meta.subscriptions.members(&id).is_empty() {
                continue;
            }
            let Ok(client) = ClientId::new(id.name.as_str()) else { continue };
            if is_there(self.meta.subscriptions.read_member(&id, &client).await)? {
                continue;
            }
            tracing::info!(group = %id, "a group of one client without it is removed");
            let mut held = Some(group);
            while let Some(ours) = held.take() {
                if let Removed::Stale(there) = self.meta.subscriptions.remove_group(&id, &ours).await? {
                    held = there;
                }
            }
        }
        Ok(())
    }

    /// Serves a group that Meta holds, with its members. `None`: this release does not understand its settings.
    pub(super) async fn bring_back(
        &self,
        id: &GroupId,
        stored: &StoredGroup,
        topic: &Arc<Topic>,
    ) -> Result<Option<Arc<Group>>, RecoveryError> {
        let Some(settings) = read_settings(&stored.record) else {
            tracing::error!(group = %id, "the settings of this group are of a newer release: it is not served");
            return Ok(None);
        };
        let terms = settings.terms(self.core.limits.outstanding, self.core.epoch, &self.core.chance);
        let GroupRecord { id: number, generation, .. } = stored.record;
        let group = Group::new(id.clone(), number, generation, topic.clone(), settings, terms);
        self.align_pull_offsets_to_ack(id, stored, &group).await?;
        self.core.ensure_lanes(&group).await?;
        for member in self.meta.subscriptions.members(id) {
            let record = &member.record;
            let membership = Membership {
                subscription: record.subscription_id.clone(),
                max_in_flight: record.max_in_flight,
            };
            group.state.lock().admit(&id.tenant, &record.client, membership);
            let owner = record.principal.as_deref().map(Into::into);
            self.core.directory.clients.joined(&id.tenant, &record.client, &group, owner.as_ref());
        }
        self.core.directory.add(&group);
        Ok(Some(group))
    }

    /// Makes memory serve the group that Meta holds: takes out one that is another, brings in one that is not there.
    pub(crate) async fn serve_what_is_held(
        &self,
        id: &GroupId,
        there: Option<Arc<Group>>,
        held: Option<&StoredGroup>,
        topic: &Arc<Topic>,
    ) -> Result<Option<Arc<Group>>, SubscribeError> {
        let is_held = |group: &Arc<Group>| {
            held.is_some_and(|held| {
                (held.record.id, held.record.generation) == (group.number, group.generation)
            })
        };
        if there.as_ref().is_some_and(is_held) {
            return Ok(there);
        }
        if let Some(other) = there {
            tracing::warn!(group = %id, "Meta holds another group than is served: what Meta holds is served now");
            self.take_out(&other);
        }
        match held {
            Some(held) => Ok(self.bring_back(id, held, topic).await?),
            None => Ok(None),
        }
    }

    /// Makes a group's positions and the log agree: the log's next offset is at least every
    /// `next_to_read`, and positions of another log of that name start at the beginning of this one.
    async fn align_pull_offsets_to_ack(
        &self,
        id: &GroupId,
        stored: &StoredGroup,
        group: &Group,
    ) -> Result<(), RecoveryError> {
        let mut batch = PositionBatch::new();
        for partition in group.topic.partitions().iter() {
            let key = group.lane_key(partition);
            match self.core.ledger.positions.offsets().cursor(key)? {
                Some(cursor) if cursor.incarnation == group.topic.incarnation() => {
                    self.core.storage.raise_end(partition, cursor.next_to_read)?;
                }
                None if stored.record.incarnation == group.topic.incarnation() => {
                    tracing::info!(
                        group = %id,
                        partition = partition.id().0,
                        "a partition that was added since: the group starts at its beginning"
                    );
                    let start =
                        Cursor { next_to_read: partition.start(), incarnation: group.topic.incarnation() };
                    batch.put_cursor(key, start);
                }
                other => {
                    tracing::warn!(
                        group = %id,
                        partition = partition.id().0,
                        had_positions = other.is_some(),
                        was = stored.record.incarnation.0,
                        now = group.topic.incarnation().0,
                        "the log is another one than the group knew: it starts at its beginning"
                    );
                    let start =
                        Cursor { next_to_read: partition.start(), incarnation: group.topic.incarnation() };
                    batch.forget(key);
                    batch.put_cursor(key, start);
                }
            }
        }
        if !batch.is_empty() {
            self.core.ledger.write(batch, Durability::Synced).await.map_err(LedgerUnavailable::from)?;
        }
        Ok(())
    }

    /// Removes positions that Meta does not know: a subscribe or a seek that did not get that far, or an
    /// unsubscribe or a seek that was cut short.
    async fn forget_orphans(&self, known: &HashMap<u64, u32>) -> Result<usize, RecoveryError> {
        let cursors = self.core.ledger.positions.offsets().cursors()?.into_iter().map(|(key, _)| key);
        let rows = self.core.ledger.positions.deliveries().lanes()?.into_iter().map(|(key, _)| key);
        let orphans: HashSet<LaneKey> =
            cursors.chain(rows).filter(|key| known.get(&key.group) != Some(&key.generation)).collect();
        if orphans.is_empty() {
            return Ok(0);
        }
        let mut batch = PositionBatch::new();
        for key in &orphans {
            batch.forget(*key);
        }
        self.core.ledger.write(batch, Durability::Synced).await.map_err(LedgerUnavailable::from)?;
        Ok(orphans.len())
    }
}

/// Whether a record is there, by what reading it gave.
fn is_there<T>(read: Result<Option<T>, BackendError>) -> Result<bool, BackendError> {
    match read {
        Ok(held) => Ok(held.is_some()),
        Err(error) if matches!(error.kind(), BackendErrorKind::Refused | BackendErrorKind::Corrupt) => {
            Ok(true)
        }
        Err(error) => Err(error),
    }
}
