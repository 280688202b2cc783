//! Subscribe and unsubscribe: memberships of clients in groups.

use mesh_delivery::{Subscribe, SubscribeError, Subscribed};
use mesh_frame::{ClientId, GroupName, TopicName};
use mesh_gate::Admitted;

use super::Intake;

/// Ends memberships of a client.
#[derive(Clone, Debug)]
pub struct Unsubscribe {
    /// The client.
    pub client: ClientId,
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
        let (subscribe, caller) = admitted.into_parts();
        let principal = caller.principal().map(|principal| principal.as_str().to_owned());
        let subscribe = Subscribe { tenant: caller.tenant().clone(), principal, ..subscribe };
        self.groups.subscribe(subscribe).await
    }

    /// Ends memberships; `false` when there were none. Durable when it returns.
    ///
    /// # Errors
    /// See [`SubscribeError`].
    pub async fn unsubscribe(&self, admitted: Admitted<Unsubscribe>) -> Result<bool, SubscribeError> {
        let (asked, caller) = admitted.into_parts();
        let Unsubscribe { client, topic, group, delete_group } = asked;
        self.groups.unsubscribe(caller.tenant(), &client, topic.as_ref(), group.as_ref(), delete_group).await
    }
}
