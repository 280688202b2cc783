//! Tokens that were verified, so that the next request with one costs a look-up. What was refused is not kept.

use std::{collections::HashMap, sync::Arc};

use mesh_base::UnixMillis;
use parking_lot::RwLock;

use crate::{Identity, token::fingerprint::Fingerprint};

/// A token that was verified.
#[derive(Clone, Debug)]
pub(crate) struct Verified {
    /// Whose.
    pub(crate) identity: Arc<Identity>,
    /// Until when it holds.
    pub(crate) until: UnixMillis,
    /// The revision of the keys it was verified with.
    pub(crate) revision: u64,
    /// Whether the key was one of those that go stale.
    pub(crate) by_fetched_key: bool,
}

/// Holds up to `2 * half` tokens in two generations: when the young one is full the old one is dropped, and the
/// young one is the old one. What is used moves on to the young one.
#[derive(Debug)]
pub(crate) struct Cache {
    half: usize,
    generations: RwLock<Generations>,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Fingerprint, Verified>,
    old: HashMap<Fingerprint, Verified>,
}

impl Cache {
    /// One of up to `most` tokens.
    pub(crate) fn new(most: usize) -> Self {
        Self { half: (most / 2).max(1), generations: RwLock::default() }
    }

    /// The token of that fingerprint, if it was verified with the keys of `revision` and holds at `now`.
    pub(crate) fn get(&self, fingerprint: &Fingerprint, revision: u64, now: UnixMillis) -> Option<Verified> {
        let holds = |token: &&Verified| token.revision == revision && now < token.until;
        let from_old = {
            let generations = self.generations.read();
            if let Some(token) = generations.young.get(fingerprint) {
                return Some(token).filter(holds).cloned();
            }
            generations.old.get(fingerprint).filter(holds).cloned()?
        };
        self.put(*fingerprint, from_old.clone());
        Some(from_old)
    }

    /// Keeps a token that was verified.
    pub(crate) fn put(&self, fingerprint: Fingerprint, token: Verified) {
        let mut generations = self.generations.write();
        if generations.young.len() >= self.half && !generations.young.contains_key(&fingerprint) {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(fingerprint, token);
    }

    /// How many it holds.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let generations = self.generations.read();
        generations.young.len() + generations.old.len()
    }
}

#[cfg(test)]
mod tests {
    use mesh_frame::TenantId;

    use super::*;

    fn token(until: u64, revision: u64) -> Verified {
        let identity = Arc::new(Identity::anonymous(TenantId::new("t").expect("legal")));
        Verified { identity, until: UnixMillis(until), revision, by_fetched_key: false }
    }

    fn fingerprint(number: u64) -> Fingerprint {
        let mut fingerprint = [0; 32];
        fingerprint[..8].copy_from_slice(&number.to_le_bytes());
        fingerprint
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let cache = Cache::new(100);
        let used = fingerprint(u64::MAX);
        cache.put(used, token(10, 1));
        for number in 0..100_000 {
            cache.put(fingerprint(number), token(10, 1));
            assert!(cache.get(&used, 1, UnixMillis(9)).is_some(), "lost after {number}");
            assert!(cache.len() <= 100, "{} are held", cache.len());
        }
        assert!(cache.get(&fingerprint(0), 1, UnixMillis(9)).is_none());
    }

    #[test]
    fn a_token_holds_until_its_end_or_until_the_keys_change() {
        let cache = Cache::new(100);
        cache.put(fingerprint(1), token(10, 1));
        assert!(cache.get(&fingerprint(1), 1, UnixMillis(9)).is_some());
        assert!(cache.get(&fingerprint(1), 1, UnixMillis(10)).is_none());
        assert!(cache.get(&fingerprint(1), 2, UnixMillis(9)).is_none());
        assert!(cache.get(&fingerprint(2), 1, UnixMillis(9)).is_none());
    }
}
