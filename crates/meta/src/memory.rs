//! A driver in memory, for tests alone: the same rules without a disk. Nothing outlives it.

use std::{collections::BTreeMap, ops::Bound};

use bytes::Bytes;
use mesh_base::BackendError;
use parking_lot::Mutex;

use crate::{
    BoxFuture, Delete, Entry, Listing, MetaDriver, Page, PutIfAbsent, Remove, Revision, Swap, Versioned,
    Watch,
    change::{self, Effect},
    watch::Watchers,
};

/// A Meta store in memory.
#[derive(Debug, Default)]
pub struct MemoryMeta {
    records: Mutex<Records>,
    watchers: Watchers,
}

#[derive(Debug, Default)]
struct Records {
    last: u64,
    map: BTreeMap<String, Versioned>,
}

impl MemoryMeta {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn change<T>(&self, key: &str, rule: impl FnOnce(Option<&Versioned>, Revision) -> (Effect, T)) -> T {
        let mut records = self.records.lock();
        let revision = Revision(records.last + 1);
        let (effect, outcome) = rule(records.map.get(key), revision);
        match &effect {
            Effect::Nothing => return outcome,
            Effect::Put(value) => {
                records.map.insert(key.to_owned(), Versioned { value: value.clone(), revision });
            }
            Effect::Delete => {
                records.map.remove(key);
            }
        }
        records.last = revision.0;
        // Under the lock, so that events are in the order of the changes.
        if let Some(event) = effect.event(key.to_owned(), revision) {
            self.watchers.announce(&event);
        }
        outcome
    }

    fn list(&self, prefix: &str, page: &Page) -> Listing {
        let records = self.records.lock();
        let from = match page.after.as_deref() {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut matching = records
            .map
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, current)| Entry { key: key.clone(), current: current.clone() });
        let entries = matching.by_ref().take(page.max.max(1)).collect();
        Listing { revision: Revision(records.last), entries, more: matching.next().is_some() }
    }
}

fn ready<'a, T: Send + 'a>(outcome: T) -> BoxFuture<'a, Result<T, BackendError>> {
    Box::pin(std::future::ready(Ok(outcome)))
}

impl MetaDriver for MemoryMeta {
    fn name(&self) -> &'static str {
        "meta (memory, for tests)"
    }

    fn value_limit(&self) -> usize {
        1 << 20
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Versioned>, BackendError>> {
        ready(self.records.lock().map.get(key).cloned())
    }

    fn get_with_prefix<'a>(
        &'a self,
        prefix: &'a str,
        page: &'a Page,
    ) -> BoxFuture<'a, Result<Listing, BackendError>> {
        ready(self.list(prefix, page))
    }

    fn put_if_absent<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
    ) -> BoxFuture<'a, Result<PutIfAbsent, BackendError>> {
        Box::pin(async move { Ok(self.change(key, change::put_if_absent(value))) })
    }

    fn try_acquire<'a>(
        &'a self,
        key: &'a str,
        expected: &'a [u8],
        new: Bytes,
    ) -> BoxFuture<'a, Result<Swap, BackendError>> {
        Box::pin(
            async move { Ok(self.change(key, change::try_acquire(Bytes::copy_from_slice(expected), new))) },
        )
    }

    fn try_remove<'a>(
        &'a self,
        key: &'a str,
        expected: &'a [u8],
    ) -> BoxFuture<'a, Result<Remove, BackendError>> {
        Box::pin(async move { Ok(self.change(key, change::try_remove(Bytes::copy_from_slice(expected)))) })
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<Revision, BackendError>> {
        Box::pin(async move { Ok(self.change(key, change::put(value))) })
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Delete, BackendError>> {
        Box::pin(async move { Ok(self.change(key, change::delete())) })
    }

    fn watch<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Watch, BackendError>> {
        ready(self.watchers.watch(prefix))
    }
}
