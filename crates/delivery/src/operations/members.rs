//! Who is a member of which group, as operators see it.

use mesh_frame::{ClientId, GroupName, SubscriptionId, TenantId, TopicName};
use mesh_state::shared::{GroupId, SubscriptionStore};

use super::groups::Groups;

/// A member as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// The id of the membership.
    pub subscription: SubscriptionId,
    /// The client.
    pub client: ClientId,
    /// Its tenant.
    pub tenant: TenantId,
    /// The topic.
    pub topic: TopicName,
    /// How the group shares.
    pub mode: String,
    /// The group.
    pub group: GroupName,
    /// The instance it subscribed at.
    pub instance: String,
}

impl Groups {
    /// The members of every group, of all instances; of one topic when one is named.
    pub fn members(&self, topic: Option<&TopicName>) -> Vec<MemberView> {
        let modes: std::collections::HashMap<GroupId, String> = self
            .meta
            .subscriptions
            .groups()
            .into_iter()
            .map(|(id, stored)| (id, stored.record.mode.clone()))
            .collect();
        self.meta
            .subscriptions
            .all_members()
            .into_iter()
            .filter(|(id, _)| topic.is_none_or(|topic| id.topic == *topic))
            // One without a group is being made or being ended: it is not a member.
            .filter_map(|(id, stored)| Some((modes.get(&id)?.clone(), id, stored)))
            .map(|(mode, id, stored)| MemberView {
                subscription: stored.record.subscription_id.clone(),
                client: stored.record.client.clone(),
                tenant: id.tenant.clone(),
                topic: id.topic.clone(),
                mode,
                group: id.name.clone(),
                instance: stored.record.instance.as_str().to_owned(),
            })
            .collect()
    }
}
