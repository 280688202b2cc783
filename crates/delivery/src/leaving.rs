//! Leaving: memberships that end, by the client's wish or an operator's, and groups that go with them.

use std::sync::{Arc, atomic::Ordering};

use mesh_frame::{ClientId, GroupName, TenantId, TopicName};
use mesh_rocks::Durability;
use mesh_state::{
    positions::PositionBatch,
    shared::{GroupKind, SubscriptionStore},
};

use crate::{
    Groups, Receiver, SubscribeError,
    dispatcher::LedgerUnavailable,
    group::{Group, member_of},
};

impl Groups {
    /// Ends a client's membership in the group, or in all its groups of the topic, or in all. What it has
    /// goes back at once. `delete_group`: a shared group left without members goes, with its backlog. A
    /// group of one client always goes with it. `false`: there was nothing to end.
    ///
    /// # Errors
    /// When Meta or the ledger cannot write; what was ended before stays ended.
    pub async fn unsubscribe(
        &self,
        receiver: &Receiver,
        client: &ClientId,
        topic: Option<&TopicName>,
        group: Option<&GroupName>,
        delete_group: bool,
    ) -> Result<bool, SubscribeError> {
        let (tenant, inner) = (receiver.tenant(), self.inner());
        let _one_at_a_time = self.changing.lock().await;
        if !receiver.may_use(inner.clients.owner(tenant, client).as_deref()) {
            return Err(SubscribeError::NotYours);
        }
        let mut removed = false;
        for found in inner.groups_of(tenant, client).unwrap_or_default() {
            let fits = topic.is_none_or(|topic| found.id.topic == *topic)
                && group.is_none_or(|group| found.id.name == *group);
            if fits {
                self.leave(&found, tenant, client).await?;
                let empty = found.state.lock().members.is_empty();
                if empty && (delete_group || found.id.kind == GroupKind::Broadcast) {
                    self.remove(&found).await?;
                }
                removed = true;
            }
        }
        Ok(removed)
    }

    pub(crate) async fn leave(
        &self,
        group: &Arc<Group>,
        tenant: &TenantId,
        client: &ClientId,
    ) -> Result<(), SubscribeError> {
        if let Some(known) = self.store.member(&group.id, client) {
            let _outcome = self.store.remove_member(&group.id, &known).await.map_err(SubscribeError::Meta)?;
        }
        let inner = self.inner();
        inner.clients.left(tenant, client, group);
        inner.left_with_stream(tenant, client, group);
        let now = inner.clock.now();
        let epoch = inner.positions.log().epoch();
        let mut batch = PositionBatch::new();
        {
            let mut guard = group.state.lock();
            let state = &mut *guard;
            state.dismiss(tenant, client);
            if state.epoch == Some(epoch) {
                let member = member_of(tenant, client);
                for lane in &mut state.lanes {
                    lane.lane.member_left(member, now, &state.terms, &mut state.windows, &mut batch);
                }
                inner.commit_later(epoch, batch);
            }
        }
        // A poll that waits is told at once that it has nothing to wait for.
        group.waiters.wake(usize::MAX, |other| other == member_of(tenant, client).0);
        inner.condemn(group);
        inner.after(group);
        Ok(())
    }

    /// Removes a group: first from Meta, then its positions, then the reservation of its number.
    pub(crate) async fn remove(&self, group: &Arc<Group>) -> Result<(), SubscribeError> {
        let inner = self.inner();
        if let Some(stored) = self.store.group(&group.id) {
            let _outcome = self.store.remove_group(&group.id, &stored).await.map_err(SubscribeError::Meta)?;
        }
        group.closed.store(true, Ordering::Release);
        inner.groups.write().remove(group);
        let mut batch = PositionBatch::new();
        {
            let mut state = group.state.lock();
            for lane in &state.lanes {
                batch.forget(lane.lane.key());
            }
            state.lanes.clear();
            state.epoch = None;
        }
        let log = inner.positions.log();
        log.committed(log.commit(log.epoch(), batch, Durability::Synced))
            .await
            .map_err(LedgerUnavailable::from)?;
        if let Err(error) = self.identities.release_group_number(group.number, &group.id).await {
            tracing::warn!(group = %group.id, error = %error.chain(), "its number stays reserved until the next start");
        }
        Ok(())
    }

    /// Ends every subscription of a client for it: the client is told so when it polls.
    ///
    /// # Errors
    /// As [`Groups::unsubscribe`].
    pub async fn evict(&self, tenant: &TenantId, client: &ClientId) -> Result<bool, SubscribeError> {
        let inner = self.inner();
        if inner.groups_of(tenant, client).is_none() {
            return Ok(false);
        }
        // First: a poll that is woken by the end of its subscription is told why.
        inner.clients.evicted(tenant, client, inner.clock.now());
        self.unsubscribe(&Receiver::anybody(tenant.clone()).over_others(), client, None, None, false).await
    }
}
