//! The nonces that were used, each until no request that carries it could pass any more.
//!
//! None is forgotten before its time, so memory is bounded by refusing: every key has an equal share of the room, and
//! when it is full there is nothing to be accepted under that key until its oldest nonce has had its time.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet},
    time::Duration,
};

use mesh_base::UnixMillis;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

/// What became of a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Nobody had used it under this key.
    Fresh,
    /// It was used before.
    Repeated,
    /// There is no room to remember it, for so long.
    Full(Duration),
}

/// A digest of a nonce, which is as long as its sender likes.
type Mark = [u8; 16];

/// The nonces of all keys.
#[derive(Debug)]
pub(super) struct Nonces {
    most: usize,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    by_key: HashMap<String, OfKey>,
    total: usize,
}

#[derive(Debug, Default)]
struct OfKey {
    marks: HashSet<Mark>,
    ends: BinaryHeap<Reverse<(UnixMillis, Mark)>>,
}

impl OfKey {
    /// When the first of them has had its time.
    fn first_end(&self) -> Option<UnixMillis> {
        self.ends.peek().map(|first| first.0.0)
    }

    /// Forgets those whose time is over, and says how many.
    fn forget_ended(&mut self, now: UnixMillis) -> usize {
        let before = self.marks.len();
        while let Some(&Reverse((end, mark))) = self.ends.peek()
            && end < now
        {
            self.ends.pop();
            self.marks.remove(&mark);
        }
        before - self.marks.len()
    }
}

impl Nonces {
    /// Room for `most` of them.
    pub(super) fn new(most: usize) -> Self {
        Self { most, used: Mutex::default() }
    }

    /// Takes a nonce of a key, one of `keys`, to be remembered up to and including `until`.
    pub(super) fn take(
        &self,
        key: &str,
        keys: usize,
        nonce: &str,
        until: UnixMillis,
        now: UnixMillis,
    ) -> Taken {
        let mark = digest(&SHA256, nonce.as_bytes()).as_ref()[..16].try_into().expect("16 bytes of 32");
        let used = &mut *self.used.lock();
        let of_key = used.by_key.entry(key.to_owned()).or_default();
        used.total -= of_key.forget_ended(now);
        if of_key.marks.contains(&mark) {
            return Taken::Repeated;
        }
        let mut is_full = of_key.marks.len() >= (self.most / keys.max(1)).max(1);
        let mut first_end = of_key.first_end();
        if !is_full && used.total >= self.most {
            // Keys that nobody uses any more, or that are gone from the file, still remember.
            used.total -= used.by_key.values_mut().map(|of_key| of_key.forget_ended(now)).sum::<usize>();
            used.by_key.retain(|other, of_key| other == key || !of_key.marks.is_empty());
            is_full = used.total >= self.most;
            first_end = used.by_key.values().filter_map(OfKey::first_end).min();
        }
        if is_full {
            let wait = first_end.unwrap_or(now).since(now) + Duration::from_millis(1);
            return Taken::Full(wait.max(Duration::from_secs(1)));
        }
        let of_key = used.by_key.get_mut(key).expect("its entry was made above");
        of_key.marks.insert(mark);
        of_key.ends.push(Reverse((until, mark)));
        used.total += 1;
        Taken::Fresh
    }

    /// How many are remembered.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        let used = self.used.lock();
        let held = used.by_key.values().map(|of_key| of_key.marks.len().max(of_key.ends.len())).sum();
        assert_eq!(used.total, held);
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_fresh_once_per_key_until_its_time_is_over() {
        let nonces = Nonces::new(10);
        let take = |key, now| nonces.take(key, 2, "n", UnixMillis(100), UnixMillis(now));
        assert_eq!(take("a", 1), Taken::Fresh);
        assert_eq!(take("a", 1), Taken::Repeated);
        assert_eq!(take("b", 1), Taken::Fresh);
        assert_eq!(take("a", 100), Taken::Repeated);
        assert_eq!(take("a", 101), Taken::Fresh);
    }

    // covers: U107
    #[test]
    fn one_key_cannot_use_up_the_room_of_another_and_nothing_is_forgotten() {
        let nonces = Nonces::new(100);
        let take = |key: &str, number: usize, now| {
            nonces.take(key, 2, &number.to_string(), UnixMillis(60_000), UnixMillis(now))
        };
        for number in 0..50 {
            assert_eq!(take("greedy", number, 1_000), Taken::Fresh);
        }
        for number in 50..100_000 {
            assert_eq!(take("greedy", number, 1_000), Taken::Full(Duration::from_millis(59_001)));
        }
        assert_eq!(take("greedy", 0, 1_000), Taken::Repeated);
        assert_eq!(take("quiet", 0, 1_000), Taken::Fresh);
        assert_eq!(nonces.count(), 51);
        assert_eq!(take("greedy", 100_000, 60_001), Taken::Fresh);
        assert_eq!(nonces.count(), 2);
    }

    #[test]
    fn what_keys_of_the_past_left_behind_counts_until_its_time_is_over() {
        let nonces = Nonces::new(4);
        let take = |key: &str, nonce: &str, until, now| {
            nonces.take(key, 1, nonce, UnixMillis(until), UnixMillis(now))
        };
        for nonce in ["1", "2", "3", "4"] {
            assert_eq!(take("old", nonce, 9_000, 0), Taken::Fresh);
        }
        assert_eq!(take("new", "1", 60_000, 1_000), Taken::Full(Duration::from_millis(8_001)));
        assert_eq!(take("new", "1", 60_000, 9_001), Taken::Fresh);
        assert_eq!(nonces.count(), 1);
    }
}
