//! Where to find a group: by its number, its id, its topic, and by the clients that are its members.

use std::{collections::HashMap, sync::Arc};

use mesh_frame::{ClientId, TenantId, TopicName};
use mesh_state::shared::GroupId;
use parking_lot::RwLock;

use super::{Group, backlog::Backlog, client::Clients, topic_groups::GroupsByTopic};

/// Every group of the process, and the clients that are members of them.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    table: RwLock<Table>,
    pub(crate) by_topic: GroupsByTopic,
    pub(crate) clients: Clients,
}

#[derive(Debug, Default)]
struct Table {
    by_number: HashMap<u64, Arc<Group>>,
    by_id: HashMap<GroupId, Arc<Group>>,
    /// What every tenant with groups has in flight, with how many groups it has.
    backlogs: HashMap<TenantId, (usize, Arc<Backlog>)>,
}

impl Directory {
    pub(crate) fn add(&self, group: &Arc<Group>) {
        let mut table = self.table.write();
        self.by_topic.add(group);
        table.enter(group);
    }

    /// Puts a group in the place of the one that it follows, which is closed.
    pub(crate) fn replace(&self, old: &Arc<Group>, next: &Arc<Group>) {
        let mut table = self.table.write();
        self.by_topic.replace(old, next);
        table.leave(old);
        table.enter(next);
    }

    /// Takes out a group that is closed.
    pub(crate) fn remove(&self, group: &Arc<Group>) {
        let mut table = self.table.write();
        self.by_topic.remove(group);
        table.leave(group);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Group>> {
        self.table.read().by_number.values().cloned().collect()
    }

    pub(crate) fn group(&self, number: u64) -> Option<Arc<Group>> {
        self.table.read().by_number.get(&number).cloned()
    }

    pub(crate) fn find(&self, id: &GroupId) -> Option<Arc<Group>> {
        self.table.read().by_id.get(id).cloned()
    }

    /// The groups a client is a member of; `None`: there is no such client.
    pub(crate) fn of_client(&self, tenant: &TenantId, client: &ClientId) -> Option<Vec<Arc<Group>>> {
        self.clients.groups(tenant, client)
    }

    /// Every group of a topic.
    pub(crate) fn of_topic(&self, topic: &TopicName) -> Vec<Arc<Group>> {
        self.by_topic.of(topic)
    }

    /// How many deliveries of a tenant are handed out and not finished.
    pub(crate) fn in_flight(&self, tenant: &TenantId) -> u64 {
        self.table.read().backlogs.get(tenant).map_or(0, |(_, backlog)| backlog.count())
    }

    /// Deliveries handed out and not finished, over all groups.
    pub(crate) fn pending(&self) -> usize {
        self.all().iter().map(|group| group.state.lock().pending()).sum()
    }

    /// Counts the outstanding rows of every tenant anew, and gives their sum. Hand-outs in between only make the
    /// count too high.
    pub(crate) fn count_rows(&self) -> usize {
        let mut by_tenant: HashMap<TenantId, usize> = HashMap::new();
        for group in self.all() {
            *by_tenant.entry(group.id.tenant.clone()).or_default() += group.state.lock().outstanding();
        }
        for (tenant, (_, backlog)) in &self.table.read().backlogs {
            backlog.counted_rows(by_tenant.get(tenant).copied().unwrap_or(0));
        }
        by_tenant.values().sum()
    }
}

impl Table {
    fn enter(&mut self, group: &Arc<Group>) {
        self.by_number.insert(group.number, group.clone());
        self.by_id.insert(group.id.clone(), group.clone());
        let (groups, backlog) = self.backlogs.entry(group.id.tenant.clone()).or_default();
        *groups += 1;
        group.backlog.get_or_init(|| backlog.clone());
        group.tell_backlog(&group.state.lock());
    }

    fn leave(&mut self, group: &Arc<Group>) {
        self.by_number.remove(&group.number);
        self.by_id.remove(&group.id);
        group.tell_backlog(&group.state.lock());
        if let Some((groups, _)) = self.backlogs.get_mut(&group.id.tenant) {
            *groups -= 1;
            if *groups == 0 {
                self.backlogs.remove(&group.id.tenant);
            }
        }
    }
}
