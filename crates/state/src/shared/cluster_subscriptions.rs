//! The subscriptions of all instances, in Meta with a local view of `/em/groups/` and `/em/subs/`.

use std::sync::Arc;

use mesh_base::{BackendError, Tasks};
use mesh_frame::{ClientId, TopicName};
use mesh_meta::{BoxFuture, MetaStore};

use super::{
    Changes, Created, GroupId, GroupRecord, Removed, Replaced, Stored, SubscriptionRecord, SubscriptionStore,
    Writer, keys,
    mirror::{Announcer, Mirror},
    records::Records,
    subscriptions::{StoredGroup, StoredMember},
};

/// The subscription store; cheap to clone.
#[derive(Clone)]
pub struct ClusterSubscriptionStore {
    groups: Arc<Mirror<GroupRecord>>,
    members: Arc<Mirror<SubscriptionRecord>>,
    announcer: Announcer,
}

impl ClusterSubscriptionStore {
    /// Reads everything there is. The view follows other instances once [`ClusterSubscriptionStore::follow`]
    /// was called; nothing that happens in between is missed.
    ///
    /// # Errors
    /// `Unavailable` when Meta cannot be read.
    pub async fn load(meta: &MetaStore, writer: &Writer) -> Result<Self, BackendError> {
        let announcer = Announcer::new();
        let groups = Records::new(meta.clone(), writer.clone());
        let members = Records::new(meta.clone(), writer.clone());
        Ok(Self {
            groups: Arc::new(Mirror::load(keys::GROUPS, groups, announcer.clone()).await?),
            members: Arc::new(Mirror::load(keys::SUBSCRIPTIONS, members, announcer.clone()).await?),
            announcer,
        })
    }

    /// Starts the tasks that follow the changes of other instances.
    pub fn follow(&self, tasks: &Tasks) {
        let (groups, members, stop) = (self.groups.clone(), self.members.clone(), tasks.stop());
        let stop_groups = stop.clone();
        tasks.spawn("follow-groups", async move { groups.follow(stop_groups).await });
        tasks.spawn("follow-subscriptions", async move { members.follow(stop).await });
    }
}

impl SubscriptionStore for ClusterSubscriptionStore {
    fn create_group<'a>(
        &'a self,
        group: &'a GroupId,
        record: GroupRecord,
    ) -> BoxFuture<'a, Result<Created<GroupRecord>, BackendError>> {
        Box::pin(self.groups.create(group, record))
    }

    fn update_group<'a>(
        &'a self,
        group: &'a GroupId,
        expected: &'a Stored<GroupRecord>,
        record: GroupRecord,
    ) -> BoxFuture<'a, Result<Replaced<GroupRecord>, BackendError>> {
        Box::pin(self.groups.replace(group, expected, record))
    }

    fn remove_group<'a>(
        &'a self,
        group: &'a GroupId,
        expected: &'a Stored<GroupRecord>,
    ) -> BoxFuture<'a, Result<Removed<GroupRecord>, BackendError>> {
        Box::pin(self.groups.remove(group, expected))
    }

    fn put_member<'a>(
        &'a self,
        group: &'a GroupId,
        record: SubscriptionRecord,
    ) -> BoxFuture<'a, Result<StoredMember, BackendError>> {
        Box::pin(async move {
            let id = (group.clone(), record.client.clone());
            self.members.put(&id, record).await
        })
    }

    fn remove_member<'a>(
        &'a self,
        group: &'a GroupId,
        expected: &'a Stored<SubscriptionRecord>,
    ) -> BoxFuture<'a, Result<Removed<SubscriptionRecord>, BackendError>> {
        Box::pin(async move {
            let id = (group.clone(), expected.record.client.clone());
            self.members.remove(&id, expected).await
        })
    }

    fn read_group<'a>(
        &'a self,
        group: &'a GroupId,
    ) -> BoxFuture<'a, Result<Option<StoredGroup>, BackendError>> {
        Box::pin(self.groups.read(group))
    }

    fn read_member<'a>(
        &'a self,
        group: &'a GroupId,
        client: &'a ClientId,
    ) -> BoxFuture<'a, Result<Option<StoredMember>, BackendError>> {
        Box::pin(async move { self.members.read(&(group.clone(), client.clone())).await })
    }

    fn group(&self, group: &GroupId) -> Option<StoredGroup> {
        self.groups.get(group)
    }

    fn groups(&self) -> Vec<(GroupId, StoredGroup)> {
        self.groups.all()
    }

    fn groups_of(&self, topic: &TopicName) -> Vec<(GroupId, StoredGroup)> {
        let mut groups = self.groups.all();
        groups.retain(|(id, _)| id.topic == *topic);
        groups
    }

    fn member(&self, group: &GroupId, client: &ClientId) -> Option<StoredMember> {
        self.members.get(&(group.clone(), client.clone()))
    }

    fn members(&self, group: &GroupId) -> Vec<StoredMember> {
        self.members.under(&keys::members(group)).into_iter().map(|(_, member)| member).collect()
    }

    fn all_members(&self) -> Vec<(GroupId, StoredMember)> {
        self.members.all().into_iter().map(|((group, _), member)| (group, member)).collect()
    }

    fn refresh(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        Box::pin(async move {
            self.groups.refresh().await?;
            self.members.refresh().await
        })
    }

    fn changes(&self) -> Changes {
        self.announcer.changes()
    }
}
