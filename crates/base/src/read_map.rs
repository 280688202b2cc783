//! A map that is read for every event and changed seldom.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher, Hash},
    sync::Arc,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

/// Enough that a change copies little, also of a hundred thousand entries.
const SHARDS: usize = 64;

/// A map whose readers take no lock and never wait; a change copies a shard of it. Values are cheap to clone.
#[derive(Debug)]
pub struct ReadMap<K, V> {
    shards: Box<[ArcSwap<HashMap<K, V>>]>,
    hasher: RandomState,
    changing: Mutex<()>,
}

impl<K, V> Default for ReadMap<K, V> {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| ArcSwap::default()).collect(),
            hasher: RandomState::new(),
            changing: Mutex::default(),
        }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> ReadMap<K, V> {
    fn shard(&self, key: &K) -> &ArcSwap<HashMap<K, V>> {
        let place = self.hasher.hash_one(key) % SHARDS as u64;
        &self.shards[usize::try_from(place).expect("below the number of shards")]
    }

    /// What is under a key.
    pub fn get(&self, key: &K) -> Option<V> {
        self.shard(key).load().get(key).cloned()
    }

    /// Puts a value under a key. Gives what was there.
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        let _one_at_a_time = self.changing.lock();
        let shard = self.shard(&key);
        let mut entries = HashMap::clone(&shard.load());
        let before = entries.insert(key, value);
        shard.store(Arc::new(entries));
        before
    }

    /// Takes a key out. Gives what was there.
    pub fn remove(&self, key: &K) -> Option<V> {
        let _one_at_a_time = self.changing.lock();
        let shard = self.shard(key);
        let mut entries = HashMap::clone(&shard.load());
        let before = entries.remove(key)?;
        shard.store(Arc::new(entries));
        Some(before)
    }

    /// Every value, in no order. What changes meanwhile may be seen or not.
    pub fn values(&self) -> Vec<V> {
        self.shards.iter().flat_map(|shard| shard.load().values().cloned().collect::<Vec<_>>()).collect()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.load().len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Clone + Eq + Hash, V: Clone> FromIterator<(K, V)> for ReadMap<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> Self {
        let map = Self::default();
        let mut shards: Vec<HashMap<K, V>> = (0..SHARDS).map(|_| HashMap::new()).collect();
        for (key, value) in entries {
            let place = map.hasher.hash_one(&key) % SHARDS as u64;
            shards[usize::try_from(place).expect("below the number of shards")].insert(key, value);
        }
        for (shard, entries) in map.shards.iter().zip(shards) {
            shard.store(Arc::new(entries));
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map() {
        let map: ReadMap<u32, u32> = (0..1_000).map(|number| (number, number)).collect();
        assert_eq!((map.len(), map.is_empty()), (1_000, false));
        assert_eq!((map.get(&7), map.get(&1_000)), (Some(7), None));
        assert_eq!((map.insert(7, 8), map.insert(1_000, 1)), (Some(7), None));
        assert_eq!((map.get(&7), map.get(&1_000), map.len()), (Some(8), Some(1), 1_001));
        assert_eq!((map.remove(&7), map.remove(&7), map.get(&7)), (Some(8), None, None));
        let mut values = map.values();
        values.sort_unstable();
        assert_eq!(values.len(), 1_000);
        assert_eq!(values[..3], [0, 1, 1]);
        assert!(ReadMap::<u32, u32>::default().is_empty());
    }
}
