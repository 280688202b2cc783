//! Subscribe and unsubscribe: memberships of clients in groups.

use std::time::Duration;

use mesh_delivery::{AskedSettings, Mode, StartAt, SubscribeError, Subscribed};
use mesh_frame::{ClientId, Event, GroupName, TopicName};
use mesh_gate::{Action, Admitted, Asks, Caller, Cost, Denied, Exceeded, Ownership, Resource};
use thiserror::Error;

use super::{
    Intake,
    access::{Hidden, UsableClient},
    entry::Incoming,
};

/// Makes a client a member of a group. Tenant and principal are the caller's.
#[derive(Clone, Debug)]
pub struct Subscribe {
    /// The client.
    pub client: ClientId,
    /// To what.
    pub topic: TopicName,
    /// How events are shared.
    pub mode: Mode,
    /// The group's name; only with a mode that shares.
    pub group: Option<GroupName>,
    /// What is asked of the group's settings.
    pub asked: AskedSettings,
    /// What the member may have in flight.
    pub max_in_flight: Option<u32>,
    /// Where the group starts when it is made.
    pub start: StartAt,
    /// How many bytes it came as: about those of its record, which count for the tenant's rate.
    pub bytes: u64,
}

impl Asks for Subscribe {
    fn action(&self) -> Action {
        Action::Subscribe
    }

    fn resource(&self) -> Resource<'_> {
        Resource::Topic(&self.topic)
    }

    fn cost(&self) -> Option<Cost> {
        Some(Cost { events: 0, bytes: self.bytes })
    }
}

impl Incoming for Subscribe {
    fn events(&self) -> &[Event] {
        &[]
    }
}

/// Ends memberships of a client.
#[derive(Clone, Debug)]
pub struct Unsubscribe {
    /// The client.
    pub client: UsableClient,
    /// On this topic only.
    pub topic: Option<TopicName>,
    /// In the group of this name only.
    pub group: Option<GroupName>,
    /// Whether a shared group goes with its last member, cursor and backlog too.
    pub delete_group: bool,
}

impl Asks for Unsubscribe {
    /// The owner of the client may leave. A client without an owner becomes the caller's with this, and a group may go
    /// with its backlog: both take the right to use it.
    fn action(&self) -> Action {
        if self.client.is_owned() && !self.delete_group { Action::Unsubscribe } else { Action::Subscribe }
    }

    fn resource(&self) -> Resource<'_> {
        self.client.resource()
    }

    fn cost(&self) -> Option<Cost> {
        None
    }
}

impl Incoming for Unsubscribe {
    fn events(&self) -> &[Event] {
        &[]
    }
}

/// Why memberships stayed as they were.
#[derive(Debug, Error)]
pub enum MembershipError {
    /// The tenant has as many subscriptions as it may.
    #[error(transparent)]
    Denied(Denied),
    /// The client is another principal's, of which the caller is not told.
    #[error(transparent)]
    Hidden(Hidden),
    /// Delivery did not change them.
    #[error(transparent)]
    Delivery(SubscribeError),
}

impl Intake {
    /// Makes a client a member of a group; the same again changes nothing. Durable when it returns.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn subscribe(&self, admitted: Admitted<Subscribe>) -> Result<Subscribed, MembershipError> {
        let most_of_tenant = admitted.limits().subscriptions;
        let (asked, caller) = admitted.into_parts();
        let Subscribe { client, topic, mode, group, asked, max_in_flight, start, bytes: _ } = asked;
        let subscribe = mesh_delivery::Subscribe {
            tenant: caller.tenant().clone(),
            client,
            topic,
            mode,
            group,
            asked,
            max_in_flight,
            start,
            principal: caller.principal().map(|principal| principal.as_str().to_owned()),
            over_others: false,
            most_of_tenant,
        };
        let topic = subscribe.topic.clone();
        let subscribed = match self.groups.subscribe(subscribe.clone()).await {
            Err(SubscribeError::NotYours) if self.may_use_others(&caller, &subscribe) => {
                let subscribe = mesh_delivery::Subscribe { over_others: true, ..subscribe };
                self.groups.subscribe(subscribe).await
            }
            result => result,
        };
        subscribed.map_err(|error| match error {
            SubscribeError::TenantFull(_) => MembershipError::Denied(self.tenant_full(&caller, &topic)),
            error => MembershipError::Delivery(error),
        })
    }

    fn may_use_others(&self, caller: &Caller, subscribe: &mesh_delivery::Subscribe) -> bool {
        let resource = Resource::Client(&subscribe.client, std::slice::from_ref(&subscribe.topic));
        match self.gate.not_owned(caller, Action::Subscribe, resource) {
            Ownership::Own | Ownership::OverOthers => true,
            Ownership::Hidden => false,
        }
    }

    /// The denial for one more subscription than the tenant may have, counted and kept.
    fn tenant_full(&self, caller: &Caller, topic: &TopicName) -> Denied {
        let exceeded = Exceeded { what: "subscriptions", retry_after: Duration::from_secs(1) };
        let resource = Resource::Topic(topic);
        self.counted(self.gate.quota_exceeded(caller, Action::Subscribe, resource, exceeded))
    }

    /// Ends memberships; `false` when there were none. Durable when it returns.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn unsubscribe(&self, admitted: Admitted<Unsubscribe>) -> Result<bool, MembershipError> {
        let (asked, caller) = admitted.into_parts();
        let removed = self.remove_memberships(asked, &caller).await;
        removed.map_err(|error| match error {
            SubscribeError::NotYours => MembershipError::Hidden(Hidden),
            error => MembershipError::Delivery(error),
        })
    }

    async fn remove_memberships(&self, asked: Unsubscribe, caller: &Caller) -> Result<bool, SubscribeError> {
        let Unsubscribe { client, topic, group, delete_group } = asked;
        let receiver = self.receiver(caller, &client);
        self.groups.adopt(&receiver, client.id()).await?;
        self.groups.unsubscribe(&receiver, client.id(), topic.as_ref(), group.as_ref(), delete_group).await
    }
}
