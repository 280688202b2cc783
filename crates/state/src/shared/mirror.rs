//! The records of one kind with a local view of all of them, kept near to Meta.
//!
//! Reads are from the view: own writes show at once, those of others when their event arrives. The view is
//! repaired by a full listing when the watch says that something was lost, when it ends, every ten minutes,
//! and on demand. While Meta is unreachable the view stays as it was and the repair is tried again.

use std::{sync::Arc, time::Duration};

use mesh_base::{BackendError, Backoff, Stop};
use mesh_meta::{Revision, Watch, WatchEvent};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use super::{
    Created, Removed, Replaced,
    record::{SharedRecord, Stored, decode_or_skip},
    records::Records,
    view::View,
};

/// How often the view is compared with a full listing although nothing seems wrong.
const REPAIR_EVERY: Duration = Duration::from_secs(600);

/// Tells that a view changed; what changed is read from the view.
#[derive(Clone, Debug)]
pub struct Changes(watch::Receiver<u64>);

impl Changes {
    /// Waits until something changed since the last call. `false`: the store is gone.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

/// Counts the changes of one or several views.
#[derive(Clone, Debug)]
pub(crate) struct Announcer(Arc<watch::Sender<u64>>);

impl Announcer {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    pub(crate) fn changes(&self) -> Changes {
        Changes(self.0.subscribe())
    }

    fn announce(&self, changed: bool) {
        if changed {
            self.0.send_modify(|count| *count = count.wrapping_add(1));
        }
    }
}

/// The records of one kind and the local view of them.
pub(crate) struct Mirror<T: SharedRecord> {
    prefix: &'static str,
    records: Records<T>,
    view: RwLock<View<T>>,
    watch: Mutex<Option<Watch>>,
    announcer: Announcer,
}

impl<T: SharedRecord> Mirror<T> {
    /// Watches the prefix, then lists it.
    pub(crate) async fn load(
        prefix: &'static str,
        records: Records<T>,
        announcer: Announcer,
    ) -> Result<Self, BackendError> {
        let watch = Mutex::new(Some(records.meta().watch(prefix).await?));
        let mirror = Self { prefix, records, view: RwLock::default(), watch, announcer };
        mirror.refresh().await?;
        Ok(mirror)
    }

    pub(crate) fn get(&self, id: &T::Id) -> Option<Arc<Stored<T>>> {
        self.view.read().get(&T::key(id))
    }

    /// What the view has below a prefix, in the order of the keys.
    pub(crate) fn under(&self, prefix: &str) -> Vec<(T::Id, Arc<Stored<T>>)> {
        let own = |(key, current): (&str, _)| (key.to_owned(), current);
        let known: Vec<_> = self.view.read().under(prefix).map(own).collect();
        // Reading thousands of them takes a while: not under the lock.
        known.into_iter().filter_map(|(key, current)| decode_or_skip(&key, current)).collect()
    }

    pub(crate) fn all(&self) -> Vec<(T::Id, Arc<Stored<T>>)> {
        self.under(self.prefix)
    }

    /// What Meta has now, past the view; the view learns it.
    pub(crate) async fn read(&self, id: &T::Id) -> Result<Option<Arc<Stored<T>>>, BackendError> {
        let under_way = UnderWay::begin(self);
        let there = self.records.get(id).await?;
        if let Some(there) = &there {
            under_way.take_in(|view| view.wrote(id, there));
        }
        Ok(there)
    }

    pub(crate) async fn create(&self, id: &T::Id, record: T) -> Result<Created<T>, BackendError> {
        let under_way = UnderWay::begin(self);
        let created = self.records.create(id, record).await?;
        let (Created::Written(there) | Created::AlreadyThere(there)) = &created;
        under_way.take_in(|view| view.wrote(id, there));
        Ok(created)
    }

    pub(crate) async fn replace(
        &self,
        id: &T::Id,
        expected: &Stored<T>,
        record: T,
    ) -> Result<Replaced<T>, BackendError> {
        let under_way = UnderWay::begin(self);
        let replaced = self.records.replace(id, expected, record).await?;
        under_way.take_in(|view| match &replaced {
            Replaced::Replaced(there) | Replaced::Stale(Some(there)) => view.wrote(id, there),
            Replaced::Stale(None) => view.took_away(id, expected.revision),
        });
        Ok(replaced)
    }

    pub(crate) async fn put(&self, id: &T::Id, record: T) -> Result<Arc<Stored<T>>, BackendError> {
        let under_way = UnderWay::begin(self);
        let there = self.records.put(id, record).await?;
        under_way.take_in(|view| view.wrote(id, &there));
        Ok(there)
    }

    pub(crate) async fn remove(&self, id: &T::Id, expected: &Stored<T>) -> Result<Removed<T>, BackendError> {
        let under_way = UnderWay::begin(self);
        let removed = self.records.remove(id, expected).await?;
        under_way.take_in(|view| match &removed {
            Removed::Removed(revision) => view.took_away(id, *revision),
            Removed::Stale(Some(there)) => view.wrote(id, there),
            Removed::Stale(None) => view.took_away(id, expected.revision),
        });
        Ok(removed)
    }

    /// Lists everything and repairs the view.
    pub(crate) async fn refresh(&self) -> Result<(), BackendError> {
        let under_way = UnderWay::begin(self);
        let listing = self.records.meta().list(self.prefix).await?;
        under_way.take_in(|view| view.listed(listing));
        Ok(())
    }

    /// Follows the watch until `stop`.
    pub(crate) async fn follow(&self, stop: Stop) {
        let mut watch = self.watch.lock().take();
        let mut repair = tokio::time::interval(REPAIR_EVERY);
        repair.reset();
        loop {
            let event = match &mut watch {
                None => Some(WatchEvent::Lost),
                Some(open) => tokio::select! {
                    () = stop.wait() => return,
                    event = open.next() => event,
                    _ = repair.tick() => Some(WatchEvent::Lost),
                },
            };
            match event {
                None => watch = None,
                Some(WatchEvent::Lost) => {
                    tokio::select! {
                        () = stop.wait() => return,
                        () = self.recover(&mut watch) => {}
                    }
                }
                Some(event) => {
                    let changed = self.view.write().watched(event);
                    self.announcer.announce(changed);
                }
            }
        }
    }

    /// Opens the watch if there is none, then repairs the view; tries until both worked.
    async fn recover(&self, watch: &mut Option<Watch>) {
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5), 0.2);
        let mut attempt = 0;
        if watch.is_none() {
            // A server that ends every watch at once must not keep a core busy.
            tokio::time::sleep(backoff.random_delay(1, self.records.chance())).await;
        }
        while let Err(error) = self.try_recover(watch).await {
            attempt += 1;
            tracing::debug!(record = T::NAME, error = %error.chain(), attempt, "the view is not repaired yet");
            tokio::time::sleep(backoff.random_delay(attempt, self.records.chance())).await;
        }
    }

    async fn try_recover(&self, watch: &mut Option<Watch>) -> Result<(), BackendError> {
        if watch.is_none() {
            *watch = Some(self.records.meta().watch(self.prefix).await?);
        }
        self.refresh().await
    }
}

/// An operation whose answer the view will be told, from before it is sent.
struct UnderWay<'a, T: SharedRecord> {
    mirror: &'a Mirror<T>,
    start: Revision,
}

impl<'a, T: SharedRecord> UnderWay<'a, T> {
    fn begin(mirror: &'a Mirror<T>) -> Self {
        let start = mirror.view.write().begin();
        Self { mirror, start }
    }

    fn take_in(self, answer: impl FnOnce(&mut View<T>) -> bool) {
        let changed = answer(&mut self.mirror.view.write());
        self.mirror.announcer.announce(changed);
    }
}

impl<T: SharedRecord> Drop for UnderWay<'_, T> {
    fn drop(&mut self) {
        self.mirror.view.write().end(self.start);
    }
}
