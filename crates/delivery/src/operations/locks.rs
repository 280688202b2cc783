//! Locks by name, with a bound on the wait: one for each group, client and topic that something is being done to.
//!
//! Order, so that nobody waits in a circle: topic, client, group. A name that nobody uses takes no memory.

use std::{collections::HashMap, hash::Hash, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::owned::Unable;

/// An operation waits no longer than this for another one.
const PATIENCE: Duration = Duration::from_secs(5);

type Named<K> = Arc<Mutex<HashMap<K, Arc<RwLock<()>>>>>;

/// Locks of one kind; clones share them.
#[derive(Debug)]
pub(crate) struct Locks<K>(Named<K>);

impl<K> Default for Locks<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// Keeps a name's lock in the table while it is held or waited for.
#[derive(Debug)]
struct Entry<K: Hash + Eq + Clone> {
    named: Named<K>,
    name: K,
    lock: Arc<RwLock<()>>,
}

impl<K: Hash + Eq + Clone> Drop for Entry<K> {
    fn drop(&mut self) {
        let mut named = self.named.lock();
        // The table has one and this entry has one: nobody else is left. New ones are made under the table's lock.
        if Arc::strong_count(&self.lock) == 2 {
            named.remove(&self.name);
        }
    }
}

/// What keeps others out until it is dropped.
#[derive(Debug)]
enum Guard {
    Alone(#[expect(dead_code, reason = "held for its drop")] OwnedRwLockWriteGuard<()>),
    Shared(#[expect(dead_code, reason = "held for its drop")] OwnedRwLockReadGuard<()>),
}

/// A lock that is held. The guard goes before the entry: fields are dropped in their order.
#[derive(Debug)]
pub(crate) struct Locked<K: Hash + Eq + Clone> {
    _guard: Guard,
    _entry: Entry<K>,
}

impl<K: Hash + Eq + Clone> Locks<K> {
    fn entry(&self, name: &K) -> Entry<K> {
        let lock = self.0.lock().entry(name.clone()).or_default().clone();
        Entry { named: self.0.clone(), name: name.clone(), lock }
    }

    /// Waits until the name's lock is free.
    ///
    /// # Errors
    /// [`Unable::Busy`] after five seconds.
    pub(crate) async fn alone(&self, name: &K) -> Result<Locked<K>, Unable> {
        let entry = self.entry(name);
        let guard = tokio::time::timeout(PATIENCE, entry.lock.clone().write_owned()).await;
        guard
            .map(|guard| Locked { _guard: Guard::Alone(guard), _entry: entry })
            .map_err(|_elapsed| Unable::Busy)
    }

    /// The same without a bound: for an operation that is half done and that nobody waits for.
    pub(crate) async fn alone_at_last(&self, name: &K) -> Locked<K> {
        loop {
            if let Ok(locked) = self.alone(name).await {
                return locked;
            }
        }
    }

    /// Waits until the name's lock is not held exclusively.
    ///
    /// # Errors
    /// [`Unable::Busy`] after five seconds.
    pub(crate) async fn shared(&self, name: &K) -> Result<Locked<K>, Unable> {
        let entry = self.entry(name);
        let guard = tokio::time::timeout(PATIENCE, entry.lock.clone().read_owned()).await;
        guard
            .map(|guard| Locked { _guard: Guard::Shared(guard), _entry: entry })
            .map_err(|_elapsed| Unable::Busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_has_a_name_at_a_time_others_wait_a_bounded_while_and_nothing_is_kept() {
        let locks: Locks<&str> = Locks::default();
        let first = locks.alone(&"a").await.expect("free");
        assert!(locks.alone(&"b").await.is_ok(), "another name is another lock");
        assert_eq!(locks.alone(&"a").await.map(drop), Err(Unable::Busy));
        assert_eq!(locks.shared(&"a").await.map(drop), Err(Unable::Busy));
        let (dropped_while_waiting, _) =
            (tokio::time::timeout(Duration::from_secs(1), locks.alone(&"a")).await, ());
        assert!(dropped_while_waiting.is_err());
        drop(first);
        let (one, two) = (locks.shared(&"a").await.expect("free"), locks.shared(&"a").await.expect("shared"));
        drop((one, two));
        assert!(locks.0.lock().is_empty());
    }
}
