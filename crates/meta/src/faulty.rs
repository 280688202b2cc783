//! A wrapper that fails as a test tells it to: before the effect, after it, or never answering.
//!
//! Orders are taken in the order: partition, hang, fail, lose the answer. While the wrapper is partitioned
//! watchers hear nothing; when it heals each gets one [`WatchEvent::Lost`].

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use bytes::Bytes;
use mesh_base::{BackendError, BackendErrorKind, Tasks};
use parking_lot::Mutex;

use crate::{
    BoxFuture, Delete, Listing, MetaDriver, Page, PutIfAbsent, Remove, Revision, Swap, Versioned, Watch,
    WatchEvent, WatchSender,
};

/// A driver with scripted faults around another one.
pub struct FaultyMeta {
    inner: Arc<dyn MetaDriver>,
    partitioned: AtomicBool,
    fail: Mutex<Failing>,
    lose_answers: AtomicUsize,
    hang: AtomicUsize,
    always_yes: AtomicBool,
    cut: Mutex<Option<Cut>>,
    at_cut: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    watches: Arc<Watches>,
    tasks: Tasks,
}

/// Which of the next writes fail.
struct Failing {
    spared: usize,
    count: usize,
    kind: BackendErrorKind,
}

/// After which write nothing is reached any more, and whether that write happens.
struct Cut {
    spared: usize,
    happens: bool,
}

#[derive(Default)]
struct Watches {
    muted: AtomicBool,
    senders: Mutex<Vec<Arc<WatchSender>>>,
}

impl FaultyMeta {
    /// A wrapper that does nothing wrong yet.
    pub fn new(inner: Arc<dyn MetaDriver>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            partitioned: AtomicBool::new(false),
            fail: Mutex::new(Failing { spared: 0, count: 0, kind: BackendErrorKind::Unavailable }),
            lose_answers: AtomicUsize::new(0),
            hang: AtomicUsize::new(0),
            always_yes: AtomicBool::new(false),
            cut: Mutex::new(None),
            at_cut: Mutex::new(None),
            watches: Arc::default(),
            tasks: Tasks::new(),
        })
    }

    /// The driver behind the faults: what others reach while this one does not.
    pub fn inner(&self) -> &Arc<dyn MetaDriver> {
        &self.inner
    }

    /// The next `count` writes fail with `kind` and have no effect.
    pub fn fail_writes(&self, count: usize, kind: BackendErrorKind) {
        self.fail_writes_after(0, count, kind);
    }

    /// The next `spared` writes work, and `count` after them fail with `kind` and have no effect.
    pub fn fail_writes_after(&self, spared: usize, count: usize, kind: BackendErrorKind) {
        *self.fail.lock() = Failing { spared, count, kind };
    }

    /// The next `count` writes happen and are answered with `Unavailable`.
    pub fn lose_answers(&self, count: usize) {
        self.lose_answers.store(count, Ordering::SeqCst);
    }

    /// The next `spared` writes work. The one after them fails with `Unavailable`, and so does everything from then
    /// on, until [`FaultyMeta::partition`] is switched off; whether that write `happens` nobody is told.
    pub fn cut_after(&self, spared: usize, happens: bool) {
        *self.cut.lock() = Some(Cut { spared, happens });
    }

    /// What is called, once, when an order of [`FaultyMeta::cut_after`] is met, before its write happens or not.
    pub fn at_cut(&self, call: impl FnOnce() + Send + 'static) {
        *self.at_cut.lock() = Some(Box::new(call));
    }

    /// Whether an order of [`FaultyMeta::cut_after`] has not been met yet.
    pub fn awaits_cut(&self) -> bool {
        self.cut.lock().is_some()
    }

    /// Whether this write is the last that is reached, and whether it happens.
    fn is_cut(&self) -> Option<bool> {
        let mut cut = self.cut.lock();
        match cut.as_mut() {
            Some(there) if there.spared > 0 => {
                there.spared -= 1;
                None
            }
            Some(_) => cut.take().map(|cut| cut.happens),
            None => None,
        }
    }

    /// The next `count` writes have no effect and are never answered.
    pub fn hang(&self, count: usize) {
        self.hang.store(count, Ordering::SeqCst);
    }

    /// While on, a compare-and-set makes its change whatever the key holds, as broken servers do.
    pub fn always_yes(&self, on: bool) {
        self.always_yes.store(on, Ordering::SeqCst);
    }

    /// While on, every operation fails with `Unavailable` and watchers hear nothing.
    pub fn partition(&self, on: bool) {
        self.partitioned.store(on, Ordering::SeqCst);
        self.mute_watches(on);
        if !on {
            self.watches.senders.lock().retain(|sender| sender.send(WatchEvent::Lost));
        }
    }

    /// While on, watchers hear nothing and are not told so: a view built from them diverges.
    pub fn mute_watches(&self, on: bool) {
        self.watches.muted.store(on, Ordering::SeqCst);
    }

    fn unavailable(&self, operation: &'static str) -> BackendError {
        BackendError::new(BackendErrorKind::Unavailable, self.inner.name(), operation)
            .with_source("as scripted")
    }

    fn reachable(&self, operation: &'static str) -> Result<(), BackendError> {
        if self.partitioned.load(Ordering::SeqCst) { Err(self.unavailable(operation)) } else { Ok(()) }
    }

    fn failure(&self) -> Option<BackendErrorKind> {
        let mut fail = self.fail.lock();
        if fail.spared > 0 {
            fail.spared -= 1;
            return None;
        }
        fail.count = fail.count.checked_sub(1)?;
        Some(fail.kind)
    }

    async fn write<T>(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        self.reachable(operation)?;
        if took(&self.hang) {
            std::future::pending::<()>().await;
        }
        if let Some(kind) = self.failure() {
            return Err(BackendError::new(kind, self.inner.name(), operation).with_source("as scripted"));
        }
        if let Some(happens) = self.is_cut() {
            self.partition(true);
            let call = self.at_cut.lock().take();
            if let Some(call) = call {
                call();
            }
            if happens {
                work.await?;
            }
            return Err(self.unavailable(operation));
        }
        let lost = took(&self.lose_answers);
        let outcome = work.await?;
        if lost { Err(self.unavailable(operation)) } else { Ok(outcome) }
    }

    async fn read<T>(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        self.reachable(operation)?;
        work.await
    }
}

/// Takes one of the orders that are left.
fn took(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

/// Passes on what the wrapped driver tells.
async fn forward(mut from: Watch, to: Arc<WatchSender>, watches: Arc<Watches>) {
    while let Some(event) = from.next().await {
        if !watches.muted.load(Ordering::SeqCst) && !to.send(event) {
            break;
        }
    }
    watches.senders.lock().retain(|sender| !Arc::ptr_eq(sender, &to));
}

impl MetaDriver for FaultyMeta {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn value_limit(&self) -> usize {
        self.inner.value_limit()
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Versioned>, BackendError>> {
        Box::pin(self.read("get", self.inner.get(key)))
    }

    fn get_with_prefix<'a>(
        &'a self,
        prefix: &'a str,
        page: &'a Page,
    ) -> BoxFuture<'a, Result<Listing, BackendError>> {
        Box::pin(self.read("get_with_prefix", self.inner.get_with_prefix(prefix, page)))
    }

    fn put_if_absent<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
    ) -> BoxFuture<'a, Result<PutIfAbsent, BackendError>> {
        Box::pin(self.write("put_if_absent", self.inner.put_if_absent(key, value)))
    }

    fn try_acquire<'a>(
        &'a self,
        key: &'a str,
        expected: &'a [u8],
        new: Bytes,
    ) -> BoxFuture<'a, Result<Swap, BackendError>> {
        Box::pin(self.write("try_acquire", async move {
            if self.always_yes.load(Ordering::SeqCst) {
                return self.inner.put(key, new).await.map(Swap::Swapped);
            }
            self.inner.try_acquire(key, expected, new).await
        }))
    }

    fn try_remove<'a>(
        &'a self,
        key: &'a str,
        expected: &'a [u8],
    ) -> BoxFuture<'a, Result<Remove, BackendError>> {
        Box::pin(self.write("try_remove", self.inner.try_remove(key, expected)))
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<Revision, BackendError>> {
        Box::pin(self.write("put", self.inner.put(key, value)))
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Delete, BackendError>> {
        Box::pin(self.write("delete", self.inner.delete(key)))
    }

    fn watch<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Watch, BackendError>> {
        Box::pin(async move {
            self.reachable("watch")?;
            let from = self.inner.watch(prefix).await?;
            let (sender, watch) = Watch::channel();
            let sender = Arc::new(sender);
            self.watches.senders.lock().push(sender.clone());
            self.tasks.spawn("faulty-watch", forward(from, sender, self.watches.clone()));
            Ok(watch)
        })
    }
}
