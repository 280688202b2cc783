//! The membership of a client: as Meta keeps it, and in memory.

use std::sync::Arc;

use mesh_base::Chance;
use mesh_frame::SubscriptionId;
use mesh_state::shared::{self, GroupId, SubscriptionRecord, SubscriptionStore};

use super::{errors::SubscribeError, groups::Groups, request::Subscribe};
use crate::group::{Group, Membership, settings::DEFAULT_MAX_IN_FLIGHT};

impl Groups {
    /// The membership that a request asks for, as Meta keeps it and as the group does. One that Meta has keeps its id.
    pub(super) async fn membership(
        &self,
        id: &GroupId,
        old: Option<&Membership>,
        request: &Subscribe,
    ) -> Result<(SubscriptionRecord, Membership), SubscribeError> {
        let asked = request.max_in_flight;
        let max_in_flight =
            asked.unwrap_or_else(|| old.map_or(DEFAULT_MAX_IN_FLIGHT, |old| old.max_in_flight));
        let known = match old {
            Some(old) => Some(old.subscription.clone()),
            None => {
                let held = self
                    .meta
                    .subscriptions
                    .read_member(id, &request.client)
                    .await
                    .map_err(SubscribeError::Meta)?;
                held.map(|held| held.record.subscription_id.clone())
            }
        };
        let subscription = known.unwrap_or_else(|| new_subscription(&self.core.chance));
        // A client has one owner, also where others may use it.
        let owner = self.core.directory.clients.owner(&request.tenant, &request.client);
        let owner = owner.or_else(|| request.principal.as_deref().map(Into::into));
        let record = SubscriptionRecord {
            subscription_id: subscription.clone(),
            client: request.client.clone(),
            max_in_flight,
            instance: self.meta.instance.clone(),
            principal: owner.as_deref().map(str::to_owned),
            created_at_ms: self.core.clock.now().0,
            unknown: shared::Unknown::default(),
        };
        Ok((record, Membership { subscription, max_in_flight }))
    }

    /// A membership that Meta holds, in memory: from now on the client is given something.
    pub(super) fn admit(&self, group: &Arc<Group>, request: &Subscribe, membership: &Membership) {
        let (tenant, client) = (&request.tenant, &request.client);
        let owner = self.core.directory.clients.owner(tenant, client);
        let owner = owner.or_else(|| request.principal.as_deref().map(Into::into));
        group.state.lock().admit(tenant, client, membership.clone());
        self.core.directory.clients.joined(tenant, client, group, owner.as_ref());
        self.core.look_again(tenant, client);
        self.streams.joined(tenant, client, group);
    }
}

fn new_subscription(chance: &Chance) -> SubscriptionId {
    let mut bytes = [0; 16];
    chance.fill(&mut bytes);
    let id = uuid::Builder::from_random_bytes(bytes).into_uuid();
    SubscriptionId::new(&id.to_string()).expect("a UUID is a legal id")
}
