//! A local view of the records below one prefix: what a watch, listings and own operations have shown so far.
//!
//! There is a record for each group and each member, and most are not looked at for days: the view keeps them as
//! they were written, which takes a fraction of the memory, and reads them when they are asked for.
//!
//! They arrive in any order; the revision of a change decides. The view knows a `floor`: the watch or a
//! listing has shown every change up to it. A removal is remembered as long as something older may still
//! arrive: an event above the floor, or the answer of an operation that began before the removal was shown.
//! That is how a remote removal wins over an older own write whose answer comes late.

use std::{collections::BTreeMap, marker::PhantomData, ops::Bound, sync::Arc};

use bytes::Bytes;
use mesh_meta::{Listing, Revision, Versioned, WatchEvent};

use super::record::{SharedRecord, Stored, decode_or_skip};

/// A record as it was written.
#[derive(Debug)]
struct Kept {
    value: Box<[u8]>,
    revision: Revision,
}

impl Kept {
    fn current(&self) -> Versioned {
        Versioned { value: Bytes::copy_from_slice(&self.value), revision: self.revision }
    }
}

/// The view. Every change says whether the view differs after it.
#[derive(Debug)]
pub(crate) struct View<T: SharedRecord> {
    /// Only such as could be read when they came.
    entries: BTreeMap<Box<str>, Kept>,
    removed: BTreeMap<String, Revision>,
    floor: Revision,
    /// How far the newest listing reached: what was written up to there and is not shown is gone.
    listed: Revision,
    /// The floors at which operations began that are not over, and how many at each.
    under_way: BTreeMap<Revision, usize>,
    records: PhantomData<fn() -> T>,
}

impl<T: SharedRecord> Default for View<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            removed: BTreeMap::new(),
            floor: Revision::default(),
            listed: Revision::default(),
            under_way: BTreeMap::new(),
            records: PhantomData,
        }
    }
}

impl<T: SharedRecord> View<T> {
    pub(crate) fn get(&self, key: &str) -> Option<Arc<Stored<T>>> {
        self.entries.get(key).and_then(|kept| decode_or_skip(key, kept.current())).map(|(_, stored)| stored)
    }

    /// What is below a prefix, by key and as it was written.
    pub(crate) fn under(&self, prefix: &str) -> impl Iterator<Item = (&str, Versioned)> {
        self.entries
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
            .map(|(key, kept)| (&**key, kept.current()))
    }

    /// An operation on Meta begins, whose answer will be taken in.
    pub(crate) fn begin(&mut self) -> Revision {
        *self.under_way.entry(self.floor).or_default() += 1;
        self.floor
    }

    /// The operation that began at `start` is over: its answer was taken in, or there was none.
    pub(crate) fn end(&mut self, start: Revision) {
        if let Some(count) = self.under_way.get_mut(&start) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(&start);
            }
        }
        self.forget();
    }

    /// An own operation showed that the key holds this, or did when it was made.
    pub(crate) fn wrote(&mut self, id: &T::Id, stored: &Arc<Stored<T>>) -> bool {
        let key = T::key(id);
        if stored.revision <= self.listed || self.shows(&key, stored.revision) {
            return false;
        }
        self.insert(&key, &stored.raw, stored.revision);
        true
    }

    /// An own operation showed that the change that removed the key was this one or a later one.
    pub(crate) fn took_away(&mut self, id: &T::Id, revision: Revision) -> bool {
        let key = T::key(id);
        if self.entries.get(&*key).is_some_and(|current| current.revision > revision) {
            return false;
        }
        self.remove(key, revision)
    }

    /// The watch showed a change. `Lost` is not for the view.
    pub(crate) fn watched(&mut self, event: WatchEvent) -> bool {
        let (key, revision, value) = match event {
            WatchEvent::Put { key, value, revision } => (key, revision, Some(value)),
            WatchEvent::Delete { key, revision } => (key, revision, None),
            WatchEvent::Lost => return false,
        };
        let changed = if revision <= self.floor || self.shows(&key, revision) {
            false
        } else {
            match value
                .map(|value| Versioned { value, revision })
                .filter(|current| can_be_read::<T>(&key, current))
            {
                Some(current) => {
                    self.insert(&key, &current.value, revision);
                    true
                }
                None => self.remove(key, revision),
            }
        };
        self.raise_floor(revision);
        changed
    }

    /// Takes in a whole listing of the prefix: repairs whatever the watch missed.
    pub(crate) fn listed(&mut self, listing: Listing) -> bool {
        let mut changed = false;
        let mut missing: BTreeMap<String, Revision> =
            self.entries.iter().map(|(key, current)| (key.to_string(), current.revision)).collect();
        for entry in listing.entries {
            missing.remove(&entry.key);
            if self.shows(&entry.key, entry.current.revision) {
                continue;
            }
            let revision = entry.current.revision;
            if can_be_read::<T>(&entry.key, &entry.current) {
                self.insert(&entry.key, &entry.current.value, revision);
                changed = true;
            } else {
                changed |= self.remove(entry.key, revision);
            }
        }
        for (key, revision) in missing {
            if revision <= listing.revision {
                changed |= self.remove(key, listing.revision);
            }
        }
        self.listed = self.listed.max(listing.revision);
        self.raise_floor(listing.revision);
        changed
    }

    /// Whether the view shows this change of the key, or a later one.
    fn shows(&self, key: &str, revision: Revision) -> bool {
        self.entries.get(key).is_some_and(|current| current.revision >= revision)
            || self.removed.get(key).is_some_and(|removed| *removed >= revision)
    }

    fn insert(&mut self, key: &str, value: &[u8], revision: Revision) {
        self.removed.remove(key);
        self.entries.insert(key.into(), Kept { value: value.into(), revision });
    }

    fn remove(&mut self, key: String, revision: Revision) -> bool {
        let changed = self.entries.remove(&*key).is_some();
        let removed = self.removed.entry(key).or_default();
        *removed = revision.max(*removed);
        changed
    }

    fn raise_floor(&mut self, revision: Revision) {
        self.floor = self.floor.max(revision);
        self.forget();
    }

    /// Drops the removals that nothing older can contradict any more.
    fn forget(&mut self) {
        if self.removed.is_empty() {
            return;
        }
        let shown_to_all = self.under_way.keys().next().copied().unwrap_or(self.floor);
        self.removed.retain(|_, removed| *removed > shown_to_all);
    }
}

/// What cannot be read is logged once, when it comes.
fn can_be_read<T: SharedRecord>(key: &str, current: &Versioned) -> bool {
    decode_or_skip::<T>(key, current.clone()).is_some()
}

#[cfg(test)]
mod tests;
