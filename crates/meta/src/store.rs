//! The handle to a Meta backend: the one place that adds the time limit, the size limit, the metrics and
//! one log line a change of state.
//!
//! An operation that gets no answer in time, or for which the backend is unreachable, fails with
//! `Unavailable`; it may still have happened. It is not repeated here: the caller knows whether that is
//! harmless.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use mesh_base::{BackendError, BackendErrorKind, Clock, Signals, UnixMillis};
use parking_lot::Mutex;

use crate::{
    Delete, Listing, MetaDriver, Page, PutIfAbsent, Remove, Revision, Swap, Versioned, Watch,
    signals::MetaSignals,
};

/// How long an operation may take.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// How many entries a full listing asks for at a time.
const PAGE: usize = 1_000;

/// A Meta backend, as everyone but its driver sees it; cheap to clone.
#[derive(Clone)]
pub struct MetaStore {
    driver: Arc<dyn MetaDriver>,
    time_limit: Duration,
    clock: Clock,
    signals: MetaSignals,
    down_since: Arc<Mutex<Option<UnixMillis>>>,
}

impl MetaStore {
    /// A handle with a limit of 5 s on every operation.
    pub fn new(driver: Arc<dyn MetaDriver>, clock: Clock, signals: &Signals) -> Self {
        let signals = MetaSignals::register(signals);
        Self { driver, time_limit: TIME_LIMIT, clock, signals, down_since: Arc::default() }
    }

    /// The same handle with another limit, for tests of what happens when it is reached.
    #[cfg(any(test, feature = "conformance"))]
    #[must_use]
    pub fn with_time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// What messages and metrics call the backend.
    pub fn name(&self) -> &'static str {
        self.driver.name()
    }

    /// The largest value it takes, in bytes.
    pub fn value_limit(&self) -> usize {
        self.driver.value_limit()
    }

    /// Since when the backend has not answered; `None` while it does.
    pub fn down_since(&self) -> Option<UnixMillis> {
        *self.down_since.lock()
    }

    /// What `key` holds. A read that starts after a change was answered shows it, or a later one.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn get(&self, key: &str) -> Result<Option<Versioned>, BackendError> {
        self.bounded("get", self.driver.get(key)).await
    }

    /// One page of the entries whose key starts with `prefix`. End a prefix with the separator, or `a` finds
    /// `ab` too.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn get_with_prefix(&self, prefix: &str, page: &Page) -> Result<Listing, BackendError> {
        self.bounded("get_with_prefix", self.driver.get_with_prefix(prefix, page)).await
    }

    /// All pages as one listing, with the revision of the first.
    ///
    /// # Errors
    /// As [`MetaStore::get_with_prefix`].
    pub async fn list(&self, prefix: &str) -> Result<Listing, BackendError> {
        let mut whole = self.get_with_prefix(prefix, &Page::first(PAGE)).await?;
        while whole.more {
            let Some(last) = whole.entries.last() else { break };
            let next = self.get_with_prefix(prefix, &Page::after(last.key.clone(), PAGE)).await?;
            whole.entries.extend(next.entries);
            whole.more = next.more;
        }
        Ok(whole)
    }

    /// Writes unless the key holds something. Durable when it returns.
    ///
    /// # Errors
    /// `TooLarge` before anything was sent; `Unavailable`, `Full`: it may have happened.
    pub async fn put_if_absent(
        &self,
        key: &str,
        value: impl Into<Bytes>,
    ) -> Result<PutIfAbsent, BackendError> {
        let value = self.fitting("put_if_absent", value.into())?;
        self.bounded("put_if_absent", self.driver.put_if_absent(key, value)).await
    }

    /// Writes `new` if the key holds exactly `expected`. Durable when it returns.
    ///
    /// # Errors
    /// As [`MetaStore::put_if_absent`].
    pub async fn try_acquire(
        &self,
        key: &str,
        expected: &[u8],
        new: impl Into<Bytes>,
    ) -> Result<Swap, BackendError> {
        let new = self.fitting("try_acquire", new.into())?;
        self.bounded("try_acquire", self.driver.try_acquire(key, expected, new)).await
    }

    /// Removes the key if it holds exactly `expected`. Durable when it returns.
    ///
    /// # Errors
    /// As [`MetaStore::put_if_absent`].
    pub async fn try_remove(&self, key: &str, expected: &[u8]) -> Result<Remove, BackendError> {
        self.bounded("try_remove", self.driver.try_remove(key, expected)).await
    }

    /// Writes whatever the key holds. Durable when it returns.
    ///
    /// # Errors
    /// As [`MetaStore::put_if_absent`].
    pub async fn put(&self, key: &str, value: impl Into<Bytes>) -> Result<Revision, BackendError> {
        let value = self.fitting("put", value.into())?;
        self.bounded("put", self.driver.put(key, value)).await
    }

    /// Removes whatever the key holds. Durable when it returns.
    ///
    /// # Errors
    /// As [`MetaStore::put_if_absent`].
    pub async fn delete(&self, key: &str) -> Result<Delete, BackendError> {
        self.bounded("delete", self.driver.delete(key)).await
    }

    /// The changes of the keys that start with `prefix` from now on, in order. Watch first, list second.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn watch(&self, prefix: &str) -> Result<Watch, BackendError> {
        self.bounded("watch", self.driver.watch(prefix)).await
    }

    fn fitting(&self, operation: &'static str, value: Bytes) -> Result<Bytes, BackendError> {
        let limit = self.driver.value_limit();
        if value.len() <= limit {
            return Ok(value);
        }
        self.signals.failed(operation, BackendErrorKind::TooLarge);
        Err(BackendError::new(BackendErrorKind::TooLarge, self.driver.name(), operation)
            .with_source(format!("a value of {} bytes is over the limit of {limit}", value.len())))
    }

    async fn bounded<T>(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        let answer = tokio::time::timeout(self.time_limit, work).await.unwrap_or_else(|_| {
            Err(BackendError::new(BackendErrorKind::Unavailable, self.driver.name(), operation)
                .with_source(format!("no answer within {:?}", self.time_limit)))
        });
        match &answer {
            Ok(_) => self.note_up(),
            Err(error) => {
                self.signals.failed(operation, error.kind());
                if error.kind() == BackendErrorKind::Unavailable {
                    self.note_down(error);
                }
            }
        }
        answer
    }

    fn note_up(&self) {
        let was_down = self.down_since.lock().take();
        if let Some(since) = was_down {
            let down_ms = self.clock.now().since(since).as_millis();
            tracing::info!(meta = self.driver.name(), down_ms, "Meta answers again");
            self.signals.available(true);
        }
    }

    fn note_down(&self, error: &BackendError) {
        let mut down_since = self.down_since.lock();
        if down_since.is_none() {
            *down_since = Some(self.clock.now());
            drop(down_since);
            tracing::warn!(meta = self.driver.name(), error = %error.chain(), "Meta does not answer");
            self.signals.available(false);
        }
    }
}

impl std::fmt::Debug for MetaStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetaStore").field("backend", &self.driver.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
