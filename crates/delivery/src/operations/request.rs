//! What a subscribe asks, and what it is answered.

use std::collections::BTreeMap;

use mesh_frame::{ClientId, GroupName, Offset, PartitionId, SubscriptionId, TenantId, TopicName};

use crate::group::{
    settings::{AskedSettings, Mode},
    start_at::StartAt,
};

/// A request to subscribe.
#[derive(Clone, Debug)]
pub struct Subscribe {
    /// Whose it is.
    pub tenant: TenantId,
    /// Who.
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
    /// Who authenticated, if anybody.
    pub principal: Option<String>,
    /// Whether it may use a client that is another principal's.
    pub over_others: bool,
    /// How many subscriptions the tenant may have; `None`: any number.
    pub most_of_tenant: Option<u64>,
}

/// The answer to a subscribe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribed {
    /// The id of this membership.
    pub subscription: SubscriptionId,
    /// The group's name.
    pub group: GroupName,
    /// How it shares.
    pub mode: Mode,
    /// Where every partition starts; for a group that was there, how far it is.
    pub start: BTreeMap<PartitionId, Offset>,
    /// Whether the group was made now.
    pub created: bool,
}
