//! A map that takes little memory while it has few entries: one allocation, and none when it is empty.

/// Entries in the order of their keys. Looking up takes the logarithm of their number, inserting and removing up to
/// their number: for maps of which there are many, most of them small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortedMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    fn place(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.cmp(key))
    }

    fn make_room(&mut self) {
        if self.0.is_empty() {
            // Most never have a second entry.
            self.0.reserve_exact(1);
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.place(key).ok().map(|at| &self.0[at].1)
    }

    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.place(key).ok().map(|at| &mut self.0[at].1)
    }

    /// Whether there is a value of the key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.place(key).is_ok()
    }

    /// Puts a value in the place of the one that the key had, which is given back.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.place(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.make_room();
                self.0.insert(at, (key, value));
                None
            }
        }
    }

    /// The value of a key, which is made when there is none.
    pub fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        let at = match self.place(&key) {
            Ok(at) => at,
            Err(at) => {
                self.make_room();
                self.0.insert(at, (key, V::default()));
                at
            }
        };
        &mut self.0[at].1
    }

    /// Takes out the value of a key.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (_, value) = self.place(key).ok().map(|at| self.0.remove(at))?;
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
        Some(value)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every entry, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Every key, in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    /// Every value, in the order of the keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_is_a_map_whatever_the_order_of_changes() {
        let (mut ours, mut model) = (SortedMap::default(), BTreeMap::new());
        let mut state = 7_u64;
        for _ in 0..2_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (key, what) = ((state >> 33) % 50, (state >> 60) % 4);
            match what {
                0 => assert_eq!(ours.remove(&key), model.remove(&key)),
                1 => {
                    *ours.or_default(key) += 1;
                    *model.entry(key).or_default() += 1;
                }
                2 => assert_eq!(ours.insert(key, state), model.insert(key, state)),
                _ => assert_eq!(ours.get_mut(&key), model.get_mut(&key)),
            }
            assert_eq!(ours.get(&key), model.get(&key));
            assert_eq!((ours.len(), ours.contains_key(&key)), (model.len(), model.contains_key(&key)));
        }
        assert!(
            ours.iter().eq(model.iter()) && ours.keys().eq(model.keys()) && ours.values().eq(model.values())
        );
        assert!(!ours.is_empty());
    }
}
