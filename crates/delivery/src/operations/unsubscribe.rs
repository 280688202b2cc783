//! Leaving: memberships that end, by the client's wish or an operator's, and groups that go with them.
//!
//! A membership that ends alone: the removal of its record decides it. A group that goes: the removal of its own
//! record decides it, the records of its members follow; the next start removes those that a death left.

use std::sync::{Arc, atomic::Ordering};

use mesh_frame::{ClientId, GroupName, TenantId, TopicName};
use mesh_state::{
    positions::PositionBatch,
    shared::{GroupId, GroupKind, Removed, StoredMember, SubscriptionStore},
};

use super::{
    begun::Tell,
    errors::{GroupError, SubscribeError},
    groups::{GroupSelector, Groups},
};
use crate::group::{Group, member_of, receiver::Receiver};

impl Groups {
    /// Ends a client's membership in the group, or in all its groups of the topic, or in all. What it has
    /// goes back at once. `delete_group`: a shared group left without members goes, with its backlog. A
    /// group of one client always goes with it. `false`: there was nothing to end.
    ///
    /// # Errors
    /// See [`SubscribeError`]. When Meta failed it is done all the same as soon as Meta answers.
    pub async fn unsubscribe(
        &self,
        receiver: &Receiver,
        client: &ClientId,
        topic: Option<&TopicName>,
        group: Option<&GroupName>,
        delete_group: bool,
    ) -> Result<bool, SubscribeError> {
        let operations = &self.operations;
        operations.ready()?;
        let alone = operations.clients.alone(&(receiver.tenant().clone(), client.clone())).await?;
        let (groups, receiver, client) = (self.clone(), receiver.clone(), client.clone());
        let (topic, group) = (topic.cloned(), group.cloned());
        operations
            .own("unsubscribe", |asker| async move {
                let tenant = receiver.tenant();
                if !receiver.may_use(groups.core.directory.clients.owner(tenant, &client).as_deref()) {
                    return Err(SubscribeError::NotYours);
                }
                let fits = |id: &GroupId| {
                    topic.as_ref().is_none_or(|topic| id.topic == *topic)
                        && group.as_ref().is_none_or(|group| id.name == *group)
                };
                let ended = groups.end_all(tenant, &client, fits, delete_group, &asker).await;
                drop(alone);
                Ok(ended? > 0)
            })
            .await
    }

    /// Ends the memberships of a client that fit. The caller has the client's lock. Gives how many there were.
    async fn end_all(
        &self,
        tenant: &TenantId,
        client: &ClientId,
        fits: impl Fn(&GroupId) -> bool,
        delete_group: bool,
        asker: &dyn Tell,
    ) -> Result<usize, SubscribeError> {
        let mut ended = 0;
        for id in
            self.core.directory.of_client(tenant, client).unwrap_or_default().iter().map(|group| &group.id)
        {
            if !fits(id) {
                continue;
            }
            let alone = self.operations.groups.alone(id).await?;
            let there = self.core.directory.find(id);
            let (is_member, others) = there.as_ref().map_or((false, 0), |group| {
                let state = group.state.lock();
                let is_member = state.members.contains_key(client);
                (is_member, state.members.len() - usize::from(is_member))
            });
            if let Some(group) = there.filter(|_| is_member) {
                if others == 0 && (delete_group || id.kind == GroupKind::Broadcast) {
                    self.remove(&group, asker).await?;
                } else {
                    self.leave(&group, client, asker).await?;
                }
                ended += 1;
            }
            drop(alone);
        }
        Ok(ended)
    }

    /// Ends a membership of a group that stays. The caller has the group's lock.
    async fn leave(
        &self,
        group: &Arc<Group>,
        client: &ClientId,
        asker: &dyn Tell,
    ) -> Result<(), SubscribeError> {
        let mut held =
            self.meta.subscriptions.read_member(&group.id, client).await.map_err(SubscribeError::Meta)?;
        while let Some(ours) = held.take() {
            let remove = || self.meta.subscriptions.remove_member(&group.id, &ours);
            if let Removed::Stale(there) = self.operations.decide(asker, remove).await? {
                held = there;
            }
        }
        self.dismiss(group, client);
        Ok(())
    }

    /// Removes the record of a membership, whatever its revision. The caller has the group's lock.
    pub(super) async fn end_membership(
        &self,
        id: &GroupId,
        held: &StoredMember,
        asker: &dyn Tell,
    ) -> Result<(), SubscribeError> {
        let mut held = held.clone();
        loop {
            let remove = || self.meta.subscriptions.remove_member(id, &held);
            match self.operations.finish(asker, remove).await? {
                Removed::Removed(_) | Removed::Stale(None) => return Ok(()),
                Removed::Stale(Some(there)) => held = there,
            }
        }
    }

    /// Removes a group with its members and positions. The caller has the group's lock. Gives how many members
    /// there were.
    pub(super) async fn remove(&self, group: &Arc<Group>, asker: &dyn Tell) -> Result<usize, SubscribeError> {
        let id = &group.id;
        let mut held = self.meta.subscriptions.read_group(id).await.map_err(SubscribeError::Meta)?;
        while let Some(ours) = held.take_if(|held| held.record.id == group.number) {
            let remove = || self.meta.subscriptions.remove_group(id, &ours);
            match self.operations.decide(asker, remove).await? {
                Removed::Removed(_) => break,
                Removed::Stale(there) => held = there,
            }
        }
        let members = self.take_out(group);
        for member in self.meta.subscriptions.members(id) {
            self.end_membership(id, &member, asker).await?;
        }
        let release = || self.meta.identities.release_group_number(group.number, id);
        self.operations.finish(asker, release).await?;
        Ok(members.len())
    }

    /// Takes a group out of memory that Meta does not hold any more, with its members and positions.
    pub(super) fn take_out(&self, group: &Arc<Group>) -> Vec<ClientId> {
        let members: Vec<ClientId> = group.state.lock().members.keys().cloned().collect();
        group.closed.store(true, Ordering::Release);
        self.core.directory.remove(group);
        for client in &members {
            self.dismiss(group, client);
        }
        for partition in group.topic.partitions().iter() {
            self.core.drop_lane(group, partition);
        }
        group.state.lock().epoch = None;
        self.forget_positions(group);
        members
    }

    /// Removes a group with its positions. Its members are told that they were evicted. Gives how many there were.
    ///
    /// # Errors
    /// See [`GroupError`]. When Meta failed it is done all the same as soon as Meta answers.
    pub async fn remove_group(&self, which: &GroupSelector) -> Result<usize, GroupError> {
        let operations = &self.operations;
        operations.ready()?;
        let id = self.find(which)?.id.clone();
        let alone = operations.groups.alone(&id).await?;
        let groups = self.clone();
        let which = which.clone();
        operations
            .own("remove a group", |asker| async move {
                let group = groups.find(&which)?;
                let removed = groups.evict_all(&group, &asker).await;
                drop(alone);
                Ok(removed?)
            })
            .await
    }

    /// Removes a group whose members are told that they were evicted. The caller has the group's lock.
    pub(super) async fn evict_all(
        &self,
        group: &Arc<Group>,
        asker: &dyn Tell,
    ) -> Result<usize, SubscribeError> {
        let tenant = &group.id.tenant;
        let members: Vec<ClientId> = group.state.lock().members.keys().cloned().collect();
        // First: a poll that is woken by the end of its subscription is told why.
        for client in &members {
            if self.core.directory.of_client(tenant, client).is_some_and(|groups| groups.len() == 1) {
                self.core.directory.clients.evicted(tenant, client, self.core.clock.now());
            }
        }
        self.remove(group, asker).await
    }

    /// Ends every subscription of a client for it: the client is told so when it polls. Gives how many there were;
    /// 0: there is no such client.
    ///
    /// # Errors
    /// As [`Groups::unsubscribe`].
    pub async fn reject(&self, tenant: &TenantId, client: &ClientId) -> Result<usize, SubscribeError> {
        self.evict(tenant, client, |_| true).await
    }

    /// The same where that `holds` once the client has nothing else under way.
    pub(super) async fn evict(
        &self,
        tenant: &TenantId,
        client: &ClientId,
        holds: impl FnOnce(&Self) -> bool + Send + 'static,
    ) -> Result<usize, SubscribeError> {
        let operations = &self.operations;
        operations.ready()?;
        let alone = operations.clients.alone(&(tenant.clone(), client.clone())).await?;
        let (groups, tenant, client) = (self.clone(), tenant.clone(), client.clone());
        operations
            .own("evict", |asker| async move {
                if groups.core.directory.of_client(&tenant, &client).is_none() || !holds(&groups) {
                    return Ok(0);
                }
                // First: a poll that is woken by the end of its subscription is told why.
                groups.core.directory.clients.evicted(&tenant, &client, groups.core.clock.now());
                let ended = groups.end_all(&tenant, &client, |_| true, false, &asker).await;
                drop(alone);
                ended
            })
            .await
    }
}

impl Groups {
    /// Ends a membership in memory: what the client has goes back at once.
    fn dismiss(&self, group: &Arc<Group>, client: &ClientId) {
        let (core, tenant) = (&self.core, &group.id.tenant);
        core.directory.clients.left(tenant, client, group);
        self.streams.left(tenant, client, group);
        let now = core.clock.now();
        let epoch = core.ledger.epoch();
        let mut batch = PositionBatch::new();
        {
            let mut guard = core.enter(group, now);
            let state = &mut *guard;
            state.dismiss(tenant, client);
            if state.epoch == Some(epoch) {
                let member = member_of(tenant, client);
                for lane in &mut state.lanes {
                    lane.lane.member_left(member, now, &state.terms, &mut state.windows, &mut batch);
                }
                core.ledger.commit_later(epoch, batch);
            }
        }
        // A poll that waits is told at once that it has nothing to wait for.
        group.waiters.wake(usize::MAX, |other| other == member_of(tenant, client).0);
        core.attention.make_dead(group);
        core.after(group);
    }
}
