//! Subscriptions: the groups of every topic and their members.
//!
//! Groups are made once and changed by compare-and-set; a membership is written whole, the last write wins,
//! and removed only while it is the one that was expected. Reads are from a local view that shows own writes
//! at once and those of other instances soon; [`SubscriptionStore::refresh`] makes it equal to Meta.

use std::sync::Arc;

use mesh_base::BackendError;
use mesh_frame::{ClientId, Incarnation, InstanceId, SubscriptionId, TopicName};
use mesh_meta::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Changes, Created, GroupId, Removed, Replaced, SharedRecord, Stored, Unknown, keys, record};

/// When a delivery counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AckMode {
    /// When the client acks it.
    #[default]
    Explicit,
    /// Before it is written out.
    Auto,
}

/// What the members of a group have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupSettings {
    /// Which events the group wants, as the subscribe request wrote it.
    #[serde(default)]
    pub filters: Vec<Value>,
    /// Where it started, as the subscribe request wrote it.
    #[serde(default)]
    pub from: Value,
    /// When a delivery counts as done.
    #[serde(default)]
    pub ack: AckMode,
    /// How long a client has for an ack, in milliseconds.
    pub ack_timeout_ms: u64,
    /// After how many attempts an event becomes a dead letter; 0: never.
    pub max_attempts: u32,
    /// The wait before the second attempt, in milliseconds.
    pub backoff_ms: u64,
    /// The longest wait between attempts, in milliseconds.
    pub max_backoff_ms: u64,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupRecord {
    /// Its number in the position database of its home.
    pub id: u64,
    /// Raised when its positions start anew.
    pub generation: u32,
    /// The life of the topic that its positions belong to.
    #[serde(with = "record::incarnation")]
    pub incarnation: Incarnation,
    /// The mode, as the subscribe request wrote it.
    pub mode: String,
    /// What its members have in common.
    pub settings: GroupSettings,
    /// The instance that serves it.
    pub home: InstanceId,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A client's membership in a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionRecord {
    /// What answers call it.
    pub subscription_id: SubscriptionId,
    /// The member.
    pub client: ClientId,
    /// How many deliveries it may hold at a time.
    pub max_in_flight: u32,
    /// The instance it subscribed at.
    pub instance: InstanceId,
    /// Whose it is; none while nobody was authenticated.
    #[serde(default)]
    pub principal: Option<String>,
    /// When it subscribed, in milliseconds since 1970.
    pub created_at_ms: u64,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl SharedRecord for GroupRecord {
    type Id = GroupId;
    const NAME: &'static str = "group";

    fn key(id: &GroupId) -> String {
        keys::group(id)
    }

    fn read_key(key: &str) -> Option<GroupId> {
        keys::read_group(key)
    }

    fn unknown_mut(&mut self) -> &mut Unknown {
        &mut self.unknown
    }
}

impl SharedRecord for SubscriptionRecord {
    type Id = (GroupId, ClientId);
    const NAME: &'static str = "subscription";

    fn key((group, client): &(GroupId, ClientId)) -> String {
        keys::subscription(group, client)
    }

    fn read_key(key: &str) -> Option<(GroupId, ClientId)> {
        keys::read_subscription(key)
    }

    fn unknown_mut(&mut self) -> &mut Unknown {
        &mut self.unknown
    }
}

/// A group as the store holds it.
pub type StoredGroup = Arc<Stored<GroupRecord>>;
/// A membership as the store holds it.
pub type StoredMember = Arc<Stored<SubscriptionRecord>>;

/// Groups and their members, as all instances see them.
///
/// # Errors
/// A write fails with `Unavailable` while Meta is unreachable, within its time limit; it may have happened,
/// and repeating it is harmless. `Refused`: the record that is there was written by a newer version.
pub trait SubscriptionStore: Send + Sync {
    /// Makes a group unless there is one.
    fn create_group<'a>(
        &'a self,
        group: &'a GroupId,
        record: GroupRecord,
    ) -> BoxFuture<'a, Result<Created<GroupRecord>, BackendError>>;

    /// Changes a group if it is still the expected one.
    fn update_group<'a>(
        &'a self,
        group: &'a GroupId,
        expected: &'a Stored<GroupRecord>,
        record: GroupRecord,
    ) -> BoxFuture<'a, Result<Replaced<GroupRecord>, BackendError>>;

    /// Removes a group if it is still the expected one. Its members are not touched.
    fn remove_group<'a>(
        &'a self,
        group: &'a GroupId,
        expected: &'a Stored<GroupRecord>,
    ) -> BoxFuture<'a, Result<Removed<GroupRecord>, BackendError>>;

    /// Writes the membership of `record.client`, whatever was there.
    fn put_member<'a>(
        &'a self,
        group: &'a GroupId,
        record: SubscriptionRecord,
    ) -> BoxFuture<'a, Result<StoredMember, BackendError>>;

    /// Removes a membership if it is still the expected one, so that an instance that is late does not end
    /// one that the client made elsewhere.
    fn remove_member<'a>(
        &'a self,
        group: &'a GroupId,
        expected: &'a Stored<SubscriptionRecord>,
    ) -> BoxFuture<'a, Result<Removed<SubscriptionRecord>, BackendError>>;

    /// A group as Meta holds it now, past the view.
    fn read_group<'a>(
        &'a self,
        group: &'a GroupId,
    ) -> BoxFuture<'a, Result<Option<StoredGroup>, BackendError>>;

    /// A membership as Meta holds it now, past the view.
    fn read_member<'a>(
        &'a self,
        group: &'a GroupId,
        client: &'a ClientId,
    ) -> BoxFuture<'a, Result<Option<StoredMember>, BackendError>>;

    /// A group, from the view.
    fn group(&self, group: &GroupId) -> Option<StoredGroup>;

    /// All groups, from the view.
    fn groups(&self) -> Vec<(GroupId, StoredGroup)>;

    /// The groups of a topic, of every tenant, from the view.
    fn groups_of(&self, topic: &TopicName) -> Vec<(GroupId, StoredGroup)>;

    /// A membership, from the view.
    fn member(&self, group: &GroupId, client: &ClientId) -> Option<StoredMember>;

    /// The members of a group in the order of their keys, from the view.
    fn members(&self, group: &GroupId) -> Vec<StoredMember>;

    /// All memberships, from the view.
    fn all_members(&self) -> Vec<(GroupId, StoredMember)>;

    /// Makes the view equal to Meta.
    fn refresh(&self) -> BoxFuture<'_, Result<(), BackendError>>;

    /// Tells when the view changed.
    fn changes(&self) -> Changes;
}
