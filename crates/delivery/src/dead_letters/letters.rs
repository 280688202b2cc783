//! The handle on dead letters, what is meant by a request, and how it can end.

use std::sync::Arc;

use mesh_base::BackendError;
use mesh_frame::{GroupName, InstanceId, TenantId, TopicName};
use mesh_state::{
    positions::EndReason,
    shared::{
        DeadLetter, DeadLetterPage, DeadLetterScope, DeadLetterStore, MetaBackedDeadLetterStore, Stored,
    },
};
use mesh_storage::{LogRecord, TopicError};

use super::{time_index::TimeIndex, turn::Turns};
use crate::{group::Core, settle::DeadLettered};

/// How many rows are read, and at most done, in one turn.
pub(super) const PAGE: usize = 100;

/// Which dead letters are meant. What is left out does not matter.
#[derive(Clone, Debug)]
pub struct LetterSelector {
    /// Of this topic.
    pub topic: TopicName,
    /// Of groups of this tenant.
    pub tenant: Option<TenantId>,
    /// Of groups of this name.
    pub group: Option<GroupName>,
    /// Of events with this id.
    pub event_id: Option<String>,
    /// That ended for this reason.
    pub reason: Option<EndReason>,
}

impl LetterSelector {
    /// Every dead letter of a topic.
    pub fn of(topic: TopicName) -> Self {
        Self { topic, tenant: None, group: None, event_id: None, reason: None }
    }

    /// The reason with this name; `None` when there is no such reason.
    pub fn read_reason(name: &str) -> Option<EndReason> {
        [EndReason::AttemptsExhausted, EndReason::Rejected].into_iter().find(|reason| reason.as_str() == name)
    }

    fn fits(&self, letter: &DeadLetter) -> bool {
        self.group.as_ref().is_none_or(|group| letter.group.name == *group)
            && self.event_id.as_ref().is_none_or(|id| letter.event_id == *id)
            && self.reason.is_none_or(|reason| letter.reason == reason)
    }

    fn scope(&self) -> DeadLetterScope {
        match &self.tenant {
            Some(tenant) => DeadLetterScope::TenantTopic(tenant.clone(), self.topic.clone()),
            None => DeadLetterScope::Topic(self.topic.clone()),
        }
    }
}

/// What a replay did, or would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Copies that are in the log and whose rows are gone.
    pub replayed: usize,
    /// Rows that were left because their group is gone.
    pub group_gone: usize,
    /// Rows that were left because the dead-letter topic no longer has their body.
    pub body_gone: usize,
    /// Rows that were left because the present filters of their group do not want them.
    pub filtered: usize,
}

/// A replay or a discard that did not get to its end. What was done stays done.
#[derive(Debug, thiserror::Error)]
#[error("{error}; {done} were done before that")]
pub struct Interrupted {
    /// How many rows were done.
    pub done: usize,
    /// Why it ended.
    pub error: LettersError,
}

/// Why dead letters could not be replayed or discarded.
#[derive(Debug, thiserror::Error)]
pub enum LettersError {
    /// Every dead letter that was meant belongs to a group that is gone.
    #[error("the group of these dead letters was removed; subscribe it again or discard them")]
    GroupGone,
    /// The disk watermark stops every append.
    #[error("there is too little free space to replay")]
    StorageLow,
    /// The log did not answer in time. Once it does, what it stored is finished, and what it did not stays.
    #[error("the log did not answer in time; what it stores is finished without another copy")]
    TimedOut,
    /// An earlier replay or discard waits for the log or for Meta.
    #[error("an earlier replay is still being finished")]
    Busy,
    /// The ledger of positions cannot write: what died is not written down as ended.
    #[error("the delivery ledger cannot write: {0}")]
    Ledger(String),
    /// The topic could not be used.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The log failed; the entries stay, or go without a second copy where it stored one all the same.
    #[error("{}", .0.chain())]
    Storage(BackendError),
    /// The ledger of dead letters failed; entries that were copied go as soon as it works again, without a second
    /// copy.
    #[error("{}", .0.chain())]
    Meta(BackendError),
    /// The process is stopping.
    #[error("the process is stopping")]
    Stopping,
    /// The groups are being brought back.
    #[error("the instance is starting")]
    Starting,
}

/// The handle on dead letters; cheap to clone.
#[derive(Clone)]
pub struct DeadLetters(pub(super) Arc<Letters>);

/// What the dead letters of this instance's groups stand on.
pub(super) struct Letters {
    pub(super) core: Arc<Core>,
    pub(super) store: MetaBackedDeadLetterStore,
    pub(super) instance: InstanceId,
    /// Replays and discards take turns.
    pub(super) turns: Turns,
    /// When they died.
    pub(super) times: TimeIndex,
    pub(super) dead_lettered: Arc<DeadLettered>,
}

pub(super) type LetterRow = Arc<Stored<DeadLetter>>;

impl DeadLetters {
    pub(crate) fn new(
        core: Arc<Core>,
        store: MetaBackedDeadLetterStore,
        instance: InstanceId,
        dead_lettered: Arc<DeadLettered>,
    ) -> Self {
        let (turns, times) = (Turns::default(), TimeIndex::default());
        Self(Arc::new(Letters { core, store, instance, turns, times, dead_lettered }))
    }

    /// The rows of a topic's dead letters, with the log's copy of their events where it still has them.
    ///
    /// # Errors
    /// When the ledger or the log cannot be read.
    pub(crate) async fn browse(
        &self,
        topic: &TopicName,
        max: usize,
    ) -> Result<Vec<(DeadLetter, Option<Arc<LogRecord>>)>, BackendError> {
        let scope = DeadLetterScope::Topic(topic.clone());
        let page = self.0.store.browse(&scope, None, max).await?;
        let mut found = Vec::with_capacity(page.rows.len());
        for row in page.rows {
            let body = self.0.body_of(&row.record).await?;
            found.push((row.record.clone(), body));
        }
        Ok(found)
    }

    /// One page of the rows that are meant, and where to go on.
    pub(super) async fn page(
        &self,
        which: &LetterSelector,
        after: Option<&str>,
    ) -> Result<DeadLetterPage, LettersError> {
        let mut page = self.0.store.browse(&which.scope(), after, PAGE).await.map_err(LettersError::Meta)?;
        page.rows.retain(|row| which.fits(&row.record));
        Ok(page)
    }

    /// How many dead letters a topic has.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub async fn count(&self, topic: &TopicName) -> Result<u64, BackendError> {
        self.0.store.count(topic).await
    }
}

impl std::fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeadLetters").finish_non_exhaustive()
    }
}

impl Letters {
    /// The event of a dead letter; `None`: the dead-letter topic no longer has it.
    pub(super) async fn body_of(&self, letter: &DeadLetter) -> Result<Option<Arc<LogRecord>>, BackendError> {
        let (place, storage) = (&letter.body, &self.core.storage);
        let topic = storage.topic(&place.topic).filter(|topic| topic.incarnation() == place.incarnation);
        match topic.and_then(|topic| topic.partition(place.partition)) {
            None => Ok(None),
            Some(partition) => storage.record(&partition, place.offset).await,
        }
    }
}
