//! Changes of groups and topics: subscribe, unsubscribe, remove, seek, adopt, evict, and what boot brings back.
//!
//! Each is an operation that the process owns once it has begun: it runs to its end in a task of its own whatever
//! becomes of the request, the connection or an answer of Meta. One write of Meta decides it. What is written
//! before that is invisible without it (positions of a number or a generation that nobody knows, a membership of
//! no group); what follows it can be told from Meta alone, so that the next start finishes it too. A write of
//! which it is not certain whether it happened is settled before the operation ends: memory never serves what Meta
//! does not hold. Whoever asked is told of the first failure and does not wait for the rest.

mod adopt;
mod locks;
mod places;
mod recovery;
mod seek;
mod subscribe;
mod topics;
mod unsubscribe;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use mesh_base::{BackendError, BackendErrorKind, Backoff, Chance, Tasks};
use mesh_frame::{ClientId, TenantId, TopicName};
use mesh_state::shared::GroupId;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use locks::{Locks, StillBusy};
pub use recovery::{Recovered, RecoveryError};
pub use seek::{GroupError, GroupSelector, Sought};
pub use subscribe::{Groups, MemberView, StartAt, Subscribe, SubscribeError, Subscribed};
pub use topics::{PartitionView, TopicDeleted, TopicMade, TopicView, Topics, TopicsError};

/// Operations that may be under way at once: while Meta does not answer they stay until it does.
const MOST_UNDER_WAY: usize = 4_096;

/// Who does what to which group, client and topic now.
#[derive(Debug)]
pub(crate) struct Operations {
    pub(crate) topics: Locks<TopicName>,
    pub(crate) clients: Locks<(TenantId, ClientId)>,
    pub(crate) groups: Locks<GroupId>,
    under_way: Arc<Semaphore>,
    chance: Chance,
    recovered: AtomicBool,
    /// What was begun for a request and is finished without it.
    pub(crate) tasks: Tasks,
}

impl Operations {
    pub(crate) fn new(chance: Chance) -> Self {
        Self {
            topics: Locks::default(),
            clients: Locks::default(),
            groups: Locks::default(),
            under_way: Arc::new(Semaphore::new(MOST_UNDER_WAY)),
            chance,
            recovered: AtomicBool::new(false),
            tasks: Tasks::new(),
        }
    }

    /// Every group that Meta knows is there from now on.
    pub(crate) fn recovered(&self) {
        self.recovered.store(true, Ordering::Release);
    }

    /// Nothing is changed before every group is there: what is not seen would be taken for absent.
    ///
    /// # Errors
    /// [`Unable::Recovering`].
    pub(crate) fn ready(&self) -> Result<(), Unable> {
        if self.recovered.load(Ordering::Acquire) { Ok(()) } else { Err(Unable::Recovering) }
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
        E: From<SubscribeError> + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        self.ready().map_err(SubscribeError::from)?;
        let place = self.under_way.clone().try_acquire_owned();
        let place = place.map_err(|_full| SubscribeError::from(Unable::Busy))?;
        let (told, answer) = oneshot::channel();
        let asker = Asker(Arc::new(Mutex::new(Some(told))));
        let work = operation(asker.clone());
        self.tasks.spawn(name, async move {
            asker.tell(work.await);
            drop(place);
        });
        answer.await.unwrap_or_else(|_ended| Err(SubscribeError::from(Unable::Stopping).into()))
    }

    /// Repeats a write that decides an operation until it is certain what came of it. A refusal is certain.
    ///
    /// # Errors
    /// What the backend refused with: nothing was changed. [`Unable::Stopping`]: the next start finds out.
    pub(crate) async fn decide<R, F>(&self, asker: &dyn Tell, write: impl Fn() -> F) -> Result<R, Undecided>
    where
        F: Future<Output = Result<R, BackendError>> + Send,
    {
        self.repeat(asker, |kind| kind == BackendErrorKind::Unavailable, write).await
    }

    /// Repeats a write that an operation which is decided still has to make.
    ///
    /// # Errors
    /// What will not change however often it is repeated. [`Unable::Stopping`]: the next start makes it.
    pub(crate) async fn finish<R, F>(&self, asker: &dyn Tell, write: impl Fn() -> F) -> Result<R, Undecided>
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
    ) -> Result<R, Undecided>
    where
        F: Future<Output = Result<R, BackendError>> + Send,
    {
        let (stop, mut failures) = (self.tasks.stop(), 0);
        let backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2), 0.2);
        loop {
            match write().await {
                Ok(written) => return Ok(written),
                Err(error) if passes(error.kind()) => {
                    failures += 1;
                    asker.failed(error);
                }
                Err(error) => return Err(Undecided::Refused(error)),
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.random_delay(failures, &self.chance)) => {}
                () = stop.wait() => return Err(Undecided::Stopping),
            }
        }
    }
}

/// Why a write was given up.
#[derive(Debug)]
pub(crate) enum Undecided {
    /// The backend will not make it.
    Refused(BackendError),
    /// The process is stopping.
    Stopping,
}

impl From<Undecided> for SubscribeError {
    fn from(undecided: Undecided) -> Self {
        match undecided {
            Undecided::Refused(error) => Self::Meta(error),
            Undecided::Stopping => Unable::Stopping.into(),
        }
    }
}

/// Why nothing was begun, or not seen to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unable {
    /// The groups are being brought back.
    #[error("the instance is starting")]
    Recovering,
    /// Another operation on the same topic, client or group has not ended, or too many are under way.
    #[error("another change is still being finished; try again")]
    Busy,
    /// The process is stopping.
    #[error("the process is stopping")]
    Stopping,
}

impl From<StillBusy> for Unable {
    fn from(_: StillBusy) -> Self {
        Self::Busy
    }
}

/// Who asked for an operation, until they are told.
pub(crate) struct Asker<T, E>(Arc<Mutex<Waiting<T, E>>>);

/// The way to whoever asked, until it is used.
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

impl<T: Send, E: From<SubscribeError> + Send> Tell for Asker<T, E> {
    fn failed(&self, error: BackendError) {
        let told = self.0.lock().take();
        let Some(told) = told else {
            tracing::debug!(error = %error.chain(), "a change cannot be finished now; it is tried again");
            return;
        };
        tracing::warn!(error = %error.chain(), "a change cannot be finished now; it goes on without its request");
        drop(told.send(Err(SubscribeError::Meta(error).into())));
    }
}
