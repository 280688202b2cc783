//! What is under way: an operation runs in a task of the process, and repeats what decides it until it is certain.

use std::{future::Future, sync::Arc, time::Duration};

use mesh_base::{BackendError, BackendErrorKind, Backoff};
use mesh_frame::{ClientId, TenantId, TopicName};
use mesh_state::shared::GroupId;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use super::locks::Locks;
use crate::{group::Core, owned::Unable};

/// Operations that may be under way at once: while Meta does not answer they stay until it does.
const MOST_UNDER_WAY: usize = 4_096;

/// Who does what to which group, client and topic now.
pub(crate) struct Operations {
    pub(crate) topics: Locks<TopicName>,
    pub(crate) clients: Locks<(TenantId, ClientId)>,
    pub(crate) groups: Locks<GroupId>,
    under_way: Arc<Semaphore>,
    core: Arc<Core>,
}

impl Operations {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            topics: Locks::default(),
            clients: Locks::default(),
            groups: Locks::default(),
            under_way: Arc::new(Semaphore::new(MOST_UNDER_WAY)),
            core,
        }
    }

    /// Nothing is changed before every group is there: what is not seen would be taken for absent.
    ///
    /// # Errors
    /// [`Unable::Recovering`].
    pub(crate) fn ready(&self) -> Result<(), Unable> {
        self.core.owned.ready()
    }

    /// Runs an operation to its end in a task of the process. Dropping the wait for it changes nothing.
    ///
    /// # Errors
    /// The operation's own, or the first failure of Meta that it met.
    pub(crate) async fn own<T, E, F>(
        &self,
        name: &'static str,
        operation: impl FnOnce(Asker<T, E>) -> F,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Undone> + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        self.ready().map_err(Undone::from)?;
        let place = self.under_way.clone().try_acquire_owned();
        let place = place.map_err(|_full| Undone::from(Unable::Busy))?;
        let (told, answer) = oneshot::channel();
        let asker = Asker(Arc::new(Mutex::new(Some(told))));
        let work = operation(asker.clone());
        self.core.owned.tasks.spawn(name, async move {
            asker.tell(work.await);
            drop(place);
        });
        answer.await.unwrap_or_else(|_ended| Err(Undone::from(Unable::Stopping).into()))
    }

    /// Repeats a write that decides an operation until it is certain what came of it. A refusal is certain.
    ///
    /// # Errors
    /// What the backend refused with: nothing was changed. [`Unable::Stopping`]: the next start finds out.
    pub(crate) async fn decide<R, F>(&self, asker: &dyn Tell, write: impl Fn() -> F) -> Result<R, Undone>
    where
        F: Future<Output = Result<R, BackendError>> + Send,
    {
        self.repeat(asker, |kind| kind == BackendErrorKind::Unavailable, write).await
    }

    /// Repeats a write that an operation which is decided still has to make.
    ///
    /// # Errors
    /// What will not change however often it is repeated. [`Unable::Stopping`]: the next start makes it.
    pub(crate) async fn finish<R, F>(&self, asker: &dyn Tell, write: impl Fn() -> F) -> Result<R, Undone>
    where
        F: Future<Output = Result<R, BackendError>> + Send,
    {
        let passes = |kind| matches!(kind, BackendErrorKind::Unavailable | BackendErrorKind::Full);
        self.repeat(asker, passes, write).await
    }

    async fn repeat<R, F>(
        &self,
        asker: &dyn Tell,
        passes: impl Fn(BackendErrorKind) -> bool,
        write: impl Fn() -> F,
    ) -> Result<R, Undone>
    where
        F: Future<Output = Result<R, BackendError>> + Send,
    {
        let (stop, mut failures) = (self.core.owned.tasks.stop(), 0);
        let backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2), 0.2);
        loop {
            match write().await {
                Ok(written) => return Ok(written),
                Err(error) if passes(error.kind()) => {
                    failures += 1;
                    asker.failed(error);
                }
                Err(error) => return Err(Undone::Meta(error)),
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.random_delay(failures, &self.core.chance)) => {}
                () = stop.wait() => return Err(Unable::Stopping.into()),
            }
        }
    }
}

/// Why an operation was not begun, or ended early.
#[derive(Debug)]
pub(crate) enum Undone {
    /// Meta did not answer, or refused: in an answer to the request; it may be done all the same.
    Meta(BackendError),
    /// Nothing is begun now, or the process ends; the next start finds out.
    Unable(Unable),
}

impl From<Unable> for Undone {
    fn from(unable: Unable) -> Self {
        Self::Unable(unable)
    }
}

/// Who asked for an operation, until they are told.
pub(crate) struct Asker<T, E>(Arc<Mutex<Waiting<T, E>>>);

/// The way to the request, until it is used.
type Waiting<T, E> = Option<oneshot::Sender<Result<T, E>>>;

impl<T, E> Clone for Asker<T, E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T, E> Asker<T, E> {
    fn tell(&self, result: Result<T, E>) {
        let told = self.0.lock().take();
        if told.is_some_and(|told| told.send(result).is_err()) {
            tracing::debug!("whoever asked for a change has gone; it was finished");
        }
    }
}

/// Told of failures that an operation outlives.
pub(crate) trait Tell: Send + Sync {
    /// A write failed and is repeated.
    fn failed(&self, error: BackendError);
}

impl<T: Send, E: From<Undone> + Send> Tell for Asker<T, E> {
    fn failed(&self, error: BackendError) {
        let told = self.0.lock().take();
        let Some(told) = told else {
            tracing::debug!(error = %error.chain(), "a change cannot be finished now; it is tried again");
            return;
        };
        tracing::warn!(error = %error.chain(), "a change cannot be finished now; it goes on without its request");
        drop(told.send(Err(Undone::Meta(error).into())));
    }
}
