//! Seek: a group starts anew somewhere else, while its members stay connected.
//!
//! The old [`Group`] is closed and followed by one with the next generation and the same number, members and
//! waiters. In between nothing is staged for the group, so the positions of the new generation are made from what
//! is committed: first they are synced, then Meta names the generation. A crash between the two leaves the old
//! one, and positions nobody knows, which boot removes. Delivery ids carry their generation: the old ones are void.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use mesh_base::{BackendError, BackendErrorKind, UnixMillis};
use mesh_frame::{ClientId, Offset, PartitionId};
use mesh_rocks::Durability;
use mesh_state::{
    positions::{Cursor, LaneKey, PositionBatch, Positions, Row, RowState},
    shared::{GroupId, GroupRecord, Replaced, StoredGroup, SubscriptionStore},
};

use super::{
    begun::Tell,
    errors::{GroupError, SubscribeError},
    groups::{GroupSelector, Groups},
};
use crate::{
    group::{Group, GroupState, start_at::StartAt},
    ledger::LedgerUnavailable,
    owned::Unable,
};

/// What a seek did, or would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sought {
    /// The group.
    pub group: GroupId,
    /// Its generation from now on.
    pub generation: u32,
    /// How far every partition was: everything below was done.
    pub from: BTreeMap<PartitionId, Offset>,
    /// Where it goes on.
    pub to: BTreeMap<PartitionId, Offset>,
}

/// Where the partitions go on that a seek names.
type Starts = BTreeMap<PartitionId, Offset>;

impl Groups {
    /// Makes a group go on somewhere else; durable when it returns. Partitions that `to` does not name stay where
    /// they are, with what is outstanding due at once. Ids of deliveries made before are void. `dry_run` changes
    /// nothing.
    ///
    /// # Errors
    /// See [`GroupError`]. The group then goes on where it was. When an answer of Meta was lost it is served again as
    /// soon as Meta says where it stands, there or where it was to go.
    pub async fn seek(
        &self,
        which: &GroupSelector,
        to: &StartAt,
        dry_run: bool,
    ) -> Result<Sought, GroupError> {
        let operations = &self.operations;
        operations.ready()?;
        let id = self.find(which)?.id.clone();
        let alone = operations.groups.alone(&id).await?;
        let (groups, which, to) = (self.clone(), which.clone(), to.clone());
        operations
            .own("seek", |asker| async move {
                let sought = groups.seek_alone(&which, &to, dry_run, &asker).await;
                drop(alone);
                sought
            })
            .await
    }

    /// The caller has the group's lock.
    async fn seek_alone(
        &self,
        which: &GroupSelector,
        to: &StartAt,
        dry_run: bool,
        asker: &dyn Tell,
    ) -> Result<Sought, GroupError> {
        let group = self.find(which)?;
        self.core.ensure_lanes(&group).await?;
        let mut starts: Starts = self.resolve(&group.topic, to).await?.into_iter().collect();
        if let StartAt::Offsets(named) = to {
            starts.retain(|partition, _| named.contains_key(partition));
        }
        // Past the view: while Meta does not answer nothing is begun.
        let held = self.meta.subscriptions.read_group(&group.id).await.map_err(SubscribeError::Meta)?;
        let held = held.filter(|held| held.record.id == group.number).ok_or(GroupError::Changed)?;
        let generation = held.record.generation.max(group.generation).saturating_add(1);
        let mut sought = Sought {
            group: group.id.clone(),
            generation: if dry_run { group.generation } else { generation },
            from: floors(&group.state.lock()),
            to: BTreeMap::new(),
        };
        sought.to = sought.from.iter().map(|(id, at)| (*id, *starts.get(id).unwrap_or(at))).collect();
        if !dry_run {
            self.follow(&group, generation, &starts, held, asker).await?;
        }
        Ok(sought)
    }

    /// Freezes a group, makes its next positions, and puts its follower in its place: with the new generation, or
    /// with the old one when that failed. Until Meta says which of the two holds, the group serves nobody.
    async fn follow(
        &self,
        old: &Arc<Group>,
        generation: u32,
        starts: &Starts,
        held: StoredGroup,
        asker: &dyn Tell,
    ) -> Result<(), GroupError> {
        let _nobody_loads = old.loading.lock().await;
        let frozen = {
            let mut state = old.state.lock();
            old.closed.store(true, Ordering::Release);
            // Nobody stages anything without the epoch, and nobody takes without being a member.
            state.epoch = None;
            let members = std::mem::take(&mut state.members);
            (state.settings.clone(), state.terms.clone(), members, state.limits.clone())
        };
        let result = match self.start_anew(old, generation, starts).await {
            Ok(()) => self.name_generation(old, generation, held, asker).await,
            Err(error) => Err(error.into()),
        };
        if let Err(GroupError::Other(SubscribeError::Unable(Unable::Stopping))) = result {
            // It is not known which generation holds: nobody is served before the next start.
            return result;
        }
        let now = if result.is_ok() { generation } else { old.generation };
        let (settings, terms, members, limits) = frozen;
        let clients: Vec<ClientId> = members.keys().cloned().collect();
        let next = old.followed_by(now, settings, terms, members, limits);
        if let Err(error) = self.core.ensure_lanes(&next).await {
            tracing::warn!(group = %old.id, %error, "the group is read again once the ledger can be");
        }
        // Whether or not it could be read: the ticker looks at it soon.
        self.core
            .attention
            .schedule
            .no_later_than(&next, self.core.clock.now().plus(Duration::from_millis(500)));
        self.core.directory.replace(old, &next);
        self.core.directory.clients.follow(&old.id.tenant, &clients, old, &next);
        for client in &clients {
            self.streams.followed(&old.id.tenant, client, old, &next);
        }
        if result.is_ok() {
            self.forget_positions(old);
        }
        // Waiting polls look at the group's follower now.
        next.waiters.wake(usize::MAX, |_| true);
        self.core.after(&next);
        result
    }

    /// Names the generation in Meta. When that failed and it is not certain that it did not happen, the record that
    /// is there is written anew, so that the first write cannot happen any more, or is found to have happened.
    async fn name_generation(
        &self,
        group: &Arc<Group>,
        generation: u32,
        held: StoredGroup,
        asker: &dyn Tell,
    ) -> Result<(), GroupError> {
        let record = GroupRecord { generation, ..held.record.clone() };
        let failed = match self.meta.subscriptions.update_group(&group.id, &held, record).await {
            Ok(Replaced::Replaced(_)) => return Ok(()),
            Ok(Replaced::Stale(_)) => return Err(GroupError::Changed),
            Err(error) if error.kind() == BackendErrorKind::Unavailable => error,
            Err(error) => return Err(SubscribeError::Meta(error).into()),
        };
        let again = || self.meta.subscriptions.update_group(&group.id, &held, held.record.clone());
        let settled = self.operations.decide(asker, again).await;
        match settled.map_err(SubscribeError::from)? {
            Replaced::Stale(Some(there))
                if (there.record.id, there.record.generation) == (group.number, generation) =>
            {
                Ok(())
            }
            Replaced::Replaced(_) | Replaced::Stale(_) => Err(SubscribeError::Meta(failed).into()),
        }
    }
}

impl Groups {
    /// Writes the positions of a generation that is to come, and syncs them.
    async fn start_anew(
        &self,
        old: &Arc<Group>,
        generation: u32,
        starts: &Starts,
    ) -> Result<(), LedgerUnavailable> {
        let ledger = &self.core.ledger;
        let epoch = ledger.epoch();
        // Everything that was staged before is committed when this is.
        ledger.commit(epoch, PositionBatch::new(), Durability::Synced).await?;
        let (positions, group, starts) = (ledger.positions.clone(), old.clone(), starts.clone());
        let now = self.core.clock.now();
        let made = tokio::task::spawn_blocking(move || {
            let mut batch = PositionBatch::new();
            for partition in group.topic.partitions().iter() {
                let from = group.lane_key(partition);
                let to = LaneKey { generation, ..from };
                batch.forget(to);
                match starts.get(&partition.id()) {
                    Some(start) => {
                        let incarnation = group.topic.incarnation();
                        batch.put_cursor(to, Cursor { next_to_read: *start, incarnation });
                    }
                    None => carry_over(&positions, &group, from, to, now, &mut batch)?,
                }
            }
            Ok::<_, BackendError>(batch)
        });
        let batch = made.await.map_err(|error| {
            BackendError::new(BackendErrorKind::Unavailable, "offset store", "seeking").with_source(error)
        })??;
        ledger.commit(epoch, batch, Durability::Synced).await?;
        Ok(())
    }
}

/// A partition that stays where it is: its cursor and rows in the new generation. What a client has is withdrawn,
/// uncounted.
fn carry_over(
    positions: &Positions,
    group: &Group,
    from: LaneKey,
    to: LaneKey,
    now: UnixMillis,
    batch: &mut PositionBatch,
) -> Result<(), BackendError> {
    let start = Cursor { next_to_read: Offset(0), incarnation: group.topic.incarnation() };
    batch.put_cursor(to, positions.offsets().cursor(from)?.unwrap_or(start));
    for (offset, row) in positions.deliveries().rows(from)? {
        let row = match row.state {
            RowState::InFlight => Row {
                state: RowState::Waiting,
                attempt: row.attempt.saturating_sub(1),
                void_below: row.serial.saturating_add(1),
                at: now,
                ..row
            },
            RowState::Waiting | RowState::Dead(_) => row,
        };
        batch.put_row(to, offset, row);
    }
    Ok(())
}

fn floors(state: &GroupState) -> BTreeMap<PartitionId, Offset> {
    state.lanes.iter().map(|lane| (lane.partition.id(), lane.lane.floor())).collect()
}
