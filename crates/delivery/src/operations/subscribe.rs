//! Groups and members: subscribe, and who is subscribed.
//!
//! A group that is made: positions, then the membership, then the group's record, which decides it. A further
//! member: its record decides it. A change of settings: a compare-and-set of the group's record decides it.

use std::sync::Arc;

use mesh_frame::{GroupName, TenantId};
use mesh_state::shared::{GroupId, Replaced, StoredGroup, SubscriptionStore};

use super::{
    begun::Tell,
    errors::SubscribeError,
    groups::Groups,
    request::{Subscribe, Subscribed},
};
use crate::{
    group::{
        Group, Membership,
        settings::Settings,
        stored_settings::{read_settings, stored_settings},
    },
    ledger::LedgerUnavailable,
};

impl Groups {
    /// Makes a client a member of a group, and the group when there is none. Durable when it returns;
    /// events appended after that are not missed. Again with the same arguments it changes nothing.
    ///
    /// # Errors
    /// See [`SubscribeError`]. When Meta failed it may be done all the same, and asking again finds out.
    pub async fn subscribe(&self, request: Subscribe) -> Result<Subscribed, SubscribeError> {
        let operations = &self.operations;
        operations.ready()?;
        if let Some(suspension) = self.core.ledger.suspension() {
            return Err(LedgerUnavailable::from(suspension).into());
        }
        let settings = Settings::new(request.mode);
        let name = match (&request.group, request.mode.is_shared()) {
            (Some(group), true) => group.clone(),
            (None, true) => GroupName::new("default").expect("a legal name"),
            (_, false) => GroupName::new(request.client.as_str()).expect("client ids are legal group names"),
        };
        let id = GroupId {
            tenant: request.tenant.clone(),
            topic: request.topic.clone(),
            kind: request.mode.kind(),
            name,
        };
        // A topic is not deleted between here and the group.
        let topic = operations.topics.shared(&id.topic).await?;
        let client = operations.clients.alone(&(request.tenant.clone(), request.client.clone())).await?;
        let groups = self.clone();
        operations
            .own("subscribe", |asker| async move {
                let subscribed = groups.subscribe_client(&id, settings, &request, &asker).await;
                drop((topic, client));
                subscribed
            })
            .await
    }

    /// The caller has the locks of the topic and the client.
    async fn subscribe_client(
        &self,
        id: &GroupId,
        settings: Settings,
        request: &Subscribe,
        asker: &dyn Tell,
    ) -> Result<Subscribed, SubscribeError> {
        let owner = self.core.directory.clients.owner(&request.tenant, &request.client);
        if !request.over_others && owner.is_some() && owner.as_deref() != request.principal.as_deref() {
            return Err(SubscribeError::NotYours);
        }
        if owner.is_none()
            && let Some(principal) = &request.principal
        {
            self.adopt_all(&request.tenant, &request.client, principal, asker).await?;
        }
        let _alone = self.operations.groups.alone(id).await?;
        let there = self.core.directory.find(id);
        let is_member =
            there.as_ref().is_some_and(|group| group.state.lock().members.contains_key(&request.client));
        let mut place = None;
        if !is_member {
            let limit = self.core.limits.subscriptions_per_client;
            let has = self
                .core
                .directory
                .of_client(&request.tenant, &request.client)
                .map_or(0, |groups| groups.len());
            if has >= limit {
                return Err(SubscribeError::TooManySubscriptions(limit));
            }
            if let Some(most) = request.most_of_tenant {
                let used = || self.used_by(&request.tenant, there.as_ref());
                place = Some(self.places.take(&request.tenant, most, used)?);
            }
        }
        let topic = self.core.storage.ensure_topic(&id.topic, self.auto_create, None).await?;
        // What Meta holds counts, whatever an operation before this one came to.
        let held = self.meta.subscriptions.read_group(id).await.map_err(SubscribeError::Meta)?;
        let there = self.serve_what_is_held(id, there, held.as_ref(), &topic).await?;
        let (group, membership, created) = match (there, held) {
            (Some(group), Some(held)) => {
                self.adjust(&group, held, request, asker).await?;
                let membership = self.join(&group, request, asker).await?;
                (group, membership, false)
            }
            _ => {
                let settings = settings.with(&request.asked);
                let (group, membership) = self.create(id, &topic, settings, request, asker).await?;
                (group, membership, true)
            }
        };
        drop(place);
        let start = {
            let state = group.state.lock();
            state.lanes.iter().map(|lane| (lane.partition.id(), lane.lane.next_to_read())).collect()
        };
        self.core.after(&group);
        Ok(Subscribed {
            subscription: membership.subscription,
            group: id.name.clone(),
            mode: request.mode,
            start,
            created,
        })
    }

    /// What a tenant uses of the subscriptions it may have: memberships, and groups that wait without members, but
    /// for the one that is joined now.
    fn used_by(&self, tenant: &TenantId, joined: Option<&Arc<Group>>) -> u64 {
        let waits = |group: &&Arc<Group>| {
            group.id.tenant == *tenant
                && joined.is_none_or(|joined| !Arc::ptr_eq(joined, group))
                && group.state.lock().members.is_empty()
        };
        let waiting = self.core.directory.all().iter().filter(waits).count();
        (self.core.directory.clients.subscriptions(tenant) + waiting) as u64
    }

    /// Checks what a further subscribe asks against the group, and changes what a sole member may change.
    async fn adjust(
        &self,
        group: &Arc<Group>,
        mut held: StoredGroup,
        request: &Subscribe,
        asker: &dyn Tell,
    ) -> Result<(), SubscribeError> {
        self.core.ensure_lanes(group).await?;
        loop {
            let old = read_settings(&held.record).ok_or(SubscribeError::Changed)?;
            let (sole, outstanding) = {
                let mut state = group.state.lock();
                // They are what Meta holds, also when an answer about them was lost.
                if state.settings != old {
                    state.terms = old.terms(self.core.limits.outstanding, self.core.epoch, &self.core.chance);
                    state.settings = old.clone();
                }
                let others = state.members.keys().any(|client| *client != request.client);
                (!others, state.outstanding() > 0)
            };
            if old.mode != request.mode {
                return Err(SubscribeError::ModeConflict);
            }
            let wanted = old.with(&request.asked);
            let Some(setting) = old.difference(&wanted) else { return Ok(()) };
            if !sole {
                return Err(SubscribeError::GroupConflict { setting });
            }
            if old.ack != wanted.ack && outstanding {
                return Err(SubscribeError::AckConflict);
            }
            let mut record = held.record.clone();
            record.settings = stored_settings(&wanted, record.settings.from.clone());
            let update = || self.meta.subscriptions.update_group(&group.id, &held, record.clone());
            match self.operations.decide(asker, update).await? {
                Replaced::Replaced(now) => held = now,
                Replaced::Stale(Some(now)) if now.record.id == group.number => held = now,
                Replaced::Stale(_) => return Err(SubscribeError::Changed),
            }
        }
    }

    /// Makes the client a member, or changes what it already is.
    async fn join(
        &self,
        group: &Arc<Group>,
        request: &Subscribe,
        asker: &dyn Tell,
    ) -> Result<Membership, SubscribeError> {
        let old = group.state.lock().members.get(&request.client).cloned();
        let (record, membership) = self.membership(&group.id, old.as_ref(), request).await?;
        if let Some(old) = old.filter(|old| old.max_in_flight == membership.max_in_flight) {
            return Ok(old);
        }
        let member = || self.meta.subscriptions.put_member(&group.id, record.clone());
        self.operations.decide(asker, member).await?;
        self.admit(group, request, &membership);
        Ok(membership)
    }
}
