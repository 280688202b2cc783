//! Clients: which groups a client is a member of, whose it is, and who was evicted lately.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use mesh_base::UnixMillis;
use mesh_frame::{ClientId, TenantId};
use parking_lot::RwLock;

use super::{Group, receiver::Receiver};

/// An eviction is remembered this long, and no more of them than that.
const REMEMBERED_FOR: Duration = Duration::from_secs(24 * 3_600);
const REMEMBERED: usize = 10_000;

type Key = (TenantId, ClientId);

/// The clients of this instance.
#[derive(Debug, Default)]
pub(crate) struct Clients(RwLock<Table>);

#[derive(Debug, Default)]
struct Table {
    groups: HashMap<Key, Vec<Arc<Group>>>,
    /// The principals that clients belong to; a client of nobody has no entry.
    owners: HashMap<Key, Arc<str>>,
    /// How many subscriptions a tenant has.
    subscriptions: HashMap<TenantId, usize>,
    /// When, and whose they were.
    evicted: HashMap<Key, (UnixMillis, Option<Arc<str>>)>,
    evictions: VecDeque<(UnixMillis, Key)>,
}

impl Clients {
    /// The groups of a client; `None`: there is no such client.
    pub(crate) fn groups(&self, tenant: &TenantId, client: &ClientId) -> Option<Vec<Arc<Group>>> {
        self.0.read().groups.get(&(tenant.clone(), client.clone())).cloned()
    }

    /// The principal a client belongs to; `None`: there is no such client, or it belongs to none.
    pub(crate) fn owner(&self, tenant: &TenantId, client: &ClientId) -> Option<Arc<str>> {
        self.0.read().owners.get(&(tenant.clone(), client.clone())).cloned()
    }

    /// Every client.
    pub(crate) fn all(&self) -> Vec<(TenantId, ClientId)> {
        self.0.read().groups.keys().cloned().collect()
    }

    /// How many subscriptions a tenant has.
    pub(crate) fn subscriptions(&self, tenant: &TenantId) -> usize {
        self.0.read().subscriptions.get(tenant).copied().unwrap_or(0)
    }

    /// A client is a member of a group. It belongs to `owner` from then on, unless it has an owner.
    pub(crate) fn joined(
        &self,
        tenant: &TenantId,
        client: &ClientId,
        group: &Arc<Group>,
        owner: Option<&Arc<str>>,
    ) {
        let key = (tenant.clone(), client.clone());
        let mut table = self.0.write();
        table.evicted.remove(&key);
        if let Some(owner) = owner {
            table.owners.entry(key.clone()).or_insert_with(|| owner.clone());
        }
        let groups = table.groups.entry(key).or_default();
        if !groups.iter().any(|other| Arc::ptr_eq(other, group)) {
            groups.push(group.clone());
            *table.subscriptions.entry(tenant.clone()).or_default() += 1;
        }
    }

    /// A client without an owner gets one.
    pub(crate) fn adopted(&self, tenant: &TenantId, client: &ClientId, owner: &Arc<str>) {
        let key = (tenant.clone(), client.clone());
        let mut table = self.0.write();
        if table.groups.contains_key(&key) {
            table.owners.entry(key).or_insert_with(|| owner.clone());
        }
    }

    /// A group took the place of another for these clients.
    pub(crate) fn follow(
        &self,
        tenant: &TenantId,
        clients: &[ClientId],
        old: &Arc<Group>,
        next: &Arc<Group>,
    ) {
        let mut table = self.0.write();
        for client in clients {
            for group in table.groups.get_mut(&(tenant.clone(), client.clone())).into_iter().flatten() {
                if Arc::ptr_eq(group, old) {
                    *group = next.clone();
                }
            }
        }
    }

    pub(crate) fn left(&self, tenant: &TenantId, client: &ClientId, group: &Arc<Group>) {
        let key = (tenant.clone(), client.clone());
        let mut table = self.0.write();
        let Some(groups) = table.groups.get_mut(&key) else { return };
        let before = groups.len();
        groups.retain(|other| !Arc::ptr_eq(other, group));
        let ended = before - groups.len();
        if groups.is_empty() {
            table.groups.remove(&key);
            table.owners.remove(&key);
        }
        if let Some(count) = table.subscriptions.get_mut(tenant) {
            *count = count.saturating_sub(ended);
            if *count == 0 {
                table.subscriptions.remove(tenant);
            }
        }
    }

    /// Remembers that a client was removed without having asked for it.
    pub(crate) fn evicted(&self, tenant: &TenantId, client: &ClientId, now: UnixMillis) {
        let key = (tenant.clone(), client.clone());
        let mut table = self.0.write();
        let owner = table.owners.get(&key).cloned();
        table.evicted.insert(key.clone(), (now, owner));
        table.evictions.push_back((now, key));
        while let Some((at, _)) = table.evictions.front()
            && (table.evictions.len() > REMEMBERED || now.since(*at) > REMEMBERED_FOR)
        {
            let Some((at, key)) = table.evictions.pop_front() else { return };
            if table.evicted.get(&key).is_some_and(|(evicted, _)| *evicted == at) {
                table.evicted.remove(&key);
            }
        }
    }

    /// Whether a client that the receiver may use was evicted lately and has not come back.
    pub(crate) fn was_evicted(&self, receiver: &Receiver, client: &ClientId, now: UnixMillis) -> bool {
        let table = self.0.read();
        let evicted = table.evicted.get(&(receiver.tenant().clone(), client.clone()));
        evicted
            .is_some_and(|(at, owner)| now.since(*at) <= REMEMBERED_FOR && receiver.may_use(owner.as_deref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant() -> TenantId {
        TenantId::new("t").expect("legal")
    }

    fn client(number: usize) -> ClientId {
        ClientId::new(&format!("c{number}")).expect("legal")
    }

    #[test]
    fn evictions_are_remembered_for_a_day() {
        let (clients, receiver) = (Clients::default(), Receiver::anybody(tenant()));
        let day = 24 * 3_600_000;
        clients.evicted(&tenant(), &client(1), UnixMillis(1_000));
        for (now, expected) in [(1_000, true), (1_000 + day, true), (1_001 + day, false)] {
            assert_eq!(clients.was_evicted(&receiver, &client(1), UnixMillis(now)), expected, "{now}");
        }
        // What is over takes no room from the next one on.
        clients.evicted(&tenant(), &client(2), UnixMillis(2_000 + day));
        assert_eq!(clients.0.read().evicted.len(), 1);
    }

    #[test]
    fn ten_thousand_evictions_are_remembered_and_the_oldest_forgotten_first() {
        let (clients, receiver) = (Clients::default(), Receiver::anybody(tenant()));
        for number in 0..10_100 {
            clients.evicted(&tenant(), &client(number), UnixMillis(number as u64));
        }
        let was_evicted = |number| clients.was_evicted(&receiver, &client(number), UnixMillis(20_000));
        assert_eq!((was_evicted(99), was_evicted(100), was_evicted(10_099)), (false, true, true));
        let table = clients.0.read();
        assert_eq!((table.evicted.len(), table.evictions.len()), (10_000, 10_000));
    }
}
