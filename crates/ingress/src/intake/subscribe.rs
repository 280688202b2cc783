//! Subscribe and unsubscribe: memberships of clients in groups.

use mesh_delivery::{Subscribe, SubscribeError, Subscribed};
use mesh_frame::{GroupName, TopicName};
use mesh_gate::{Action, Admitted, Ownership, Resource};

use super::{Intake, UsableClient};

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

impl Intake {
    /// Makes a client a member of a group; the same again changes nothing. Durable when it returns.
    ///
    /// Tenant and principal are the caller's, whatever the request says.
    ///
    /// # Errors
    /// See [`SubscribeError`].
    pub async fn subscribe(&self, admitted: Admitted<Subscribe>) -> Result<Subscribed, SubscribeError> {
        let most_of_tenant = admitted.limits().subscriptions;
        let (subscribe, caller) = admitted.into_parts();
        let principal = caller.principal().map(|principal| principal.as_str().to_owned());
        let tenant = caller.tenant().clone();
        let subscribe = Subscribe { tenant, principal, most_of_tenant, ..subscribe };
        match self.groups.subscribe(subscribe.clone()).await {
            Err(SubscribeError::NotYours) => {
                let resource = Resource::Client(&subscribe.client, std::slice::from_ref(&subscribe.topic));
                match self.gate.not_owned(&caller, Action::Subscribe, resource) {
                    Ownership::Own | Ownership::OverOthers => {
                        self.groups.subscribe(Subscribe { over_others: true, ..subscribe }).await
                    }
                    Ownership::Hidden => Err(SubscribeError::NotYours),
                }
            }
            result => result,
        }
    }

    /// Ends memberships; `false` when there were none. Durable when it returns.
    ///
    /// # Errors
    /// See [`SubscribeError`].
    pub async fn unsubscribe(&self, admitted: Admitted<Unsubscribe>) -> Result<bool, SubscribeError> {
        let (asked, caller) = admitted.into_parts();
        let Unsubscribe { client, topic, group, delete_group } = asked;
        let receiver = self.receiver(&caller, &client);
        self.groups.adopt(&receiver, client.id()).await?;
        self.groups.unsubscribe(&receiver, client.id(), topic.as_ref(), group.as_ref(), delete_group).await
    }
}
