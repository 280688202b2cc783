//! Dead letters: the ledger of what could not be delivered, one row for each.
//!
//! The body is an event in the dead-letter topic; a row says where. Recording is idempotent: the row of a
//! delivery has one key, the first write wins and every repeat is told so. A row changes only when its event dies
//! once more.

use std::sync::Arc;

use mesh_base::BackendError;
use mesh_frame::{InstanceId, TenantId, TopicName};
use mesh_meta::BoxFuture;

use super::{DeadLetter, GroupId, Removed, Replaced, ReplayIntent, ReplayedLetter, Stored};

/// How recording a dead letter ended. Both are a success.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// The row is there now.
    Written(Arc<Stored<DeadLetter>>),
    /// The row was there before; nothing was changed.
    AlreadyThere(Arc<Stored<DeadLetter>>),
}

/// Whose rows are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeadLetterScope {
    /// Those of a topic, of every tenant.
    Topic(TopicName),
    /// Those of a topic, of one tenant.
    TenantTopic(TenantId, TopicName),
    /// Those of a group.
    Group(GroupId),
}

/// One page of rows, in the order of their keys: by tenant, kind, group and position.
#[derive(Clone, Debug)]
pub struct DeadLetterPage {
    /// The rows.
    pub rows: Vec<Arc<Stored<DeadLetter>>>,
    /// What to go on after; none when this was the end.
    pub next: Option<String>,
}

/// What an instance wrote down about its replays.
pub type StoredIntent = (InstanceId, Arc<Stored<ReplayIntent>>);

/// The dead-letter ledger, as all instances see it.
///
/// # Errors
/// Every operation fails with `Unavailable` while Meta is unreachable; recording may be repeated until it
/// succeeds.
pub trait DeadLetterStore: Send + Sync {
    /// Writes the row of a dead letter unless it is there. Durable when it returns.
    fn record(&self, letter: DeadLetter) -> BoxFuture<'_, Result<Recorded, BackendError>>;

    /// The row that a delivery has now, if it has one.
    fn current<'a>(
        &'a self,
        of: &'a DeadLetter,
    ) -> BoxFuture<'a, Result<Option<Arc<Stored<DeadLetter>>>, BackendError>>;

    /// Puts the row of a later death of the same event in the place of this one, if it is still the expected one.
    fn renew<'a>(
        &'a self,
        expected: &'a Stored<DeadLetter>,
        letter: DeadLetter,
    ) -> BoxFuture<'a, Result<Replaced<DeadLetter>, BackendError>>;

    /// At most `max` rows, after a position that [`DeadLetterPage::next`] gave. Rows this build cannot read are
    /// logged and left out, so a page may be shorter and still not be the end.
    fn browse<'a>(
        &'a self,
        scope: &'a DeadLetterScope,
        after: Option<&'a str>,
        max: usize,
    ) -> BoxFuture<'a, Result<DeadLetterPage, BackendError>>;

    /// Removes a row if it is still the expected one: of several that replay it, one succeeds.
    fn remove<'a>(
        &'a self,
        expected: &'a Stored<DeadLetter>,
    ) -> BoxFuture<'a, Result<Removed<DeadLetter>, BackendError>>;

    /// The row of a letter that an instance was about to replay, if that very row is still there.
    fn find<'a>(
        &'a self,
        instance: &'a InstanceId,
        group: &'a GroupId,
        letter: ReplayedLetter,
    ) -> BoxFuture<'a, Result<Option<Arc<Stored<DeadLetter>>>, BackendError>>;

    /// Writes down what replays of an instance are about to copy, in the place of what it wrote before. Durable
    /// when it returns; an error says that it may be there.
    fn intend<'a>(
        &'a self,
        instance: &'a InstanceId,
        intent: ReplayIntent,
    ) -> BoxFuture<'a, Result<Arc<Stored<ReplayIntent>>, BackendError>>;

    /// Every intent that stands, with its instance.
    fn intents(&self) -> BoxFuture<'_, Result<Vec<StoredIntent>, BackendError>>;

    /// Removes an intent whose end is written down, unless another is there.
    fn end_intent<'a>(
        &'a self,
        instance: &'a InstanceId,
        expected: &'a Stored<ReplayIntent>,
    ) -> BoxFuture<'a, Result<Removed<ReplayIntent>, BackendError>>;

    /// How many rows a topic has, of every tenant. Reads all of them.
    fn count<'a>(&'a self, topic: &'a TopicName) -> BoxFuture<'a, Result<u64, BackendError>>;
}
