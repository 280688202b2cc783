//! Dead letters: the ledger of what could not be delivered, one row for each.
//!
//! The body is an event in the dead-letter topic; a row says where. Recording is idempotent: the row of a
//! delivery has one key, the first write wins and every repeat is told so. A row changes only when its event dies
//! once more.

use std::sync::Arc;

use mesh_base::BackendError;
use mesh_frame::{Incarnation, InstanceId, Offset, PartitionId, TenantId, TopicName};
use mesh_meta::BoxFuture;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::positions::EndReason;

use super::{
    GroupId, Removed, Replaced, ReplayIntent, ReplayedLetter, SharedRecord, Stored, Unknown, keys, record,
};

/// What a row is about: one event of a group's topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeadLetterId {
    /// The group that did not get it.
    pub group: GroupId,
    /// The instance, where instances have positions of their own.
    pub instance: Option<InstanceId>,
    /// The life of the topic.
    pub incarnation: Incarnation,
    /// The partition.
    pub partition: PartitionId,
    /// The event's offset.
    pub offset: Offset,
}

/// Where the body of a dead letter is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterBody {
    /// The dead-letter topic.
    pub topic: TopicName,
    /// The life of that topic.
    #[serde(with = "record::incarnation")]
    pub incarnation: Incarnation,
    /// The partition.
    #[serde(with = "record::partition")]
    pub partition: PartitionId,
    /// The offset.
    #[serde(with = "record::offset")]
    pub offset: Offset,
}

/// A row of the dead-letter ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// The group that did not get the event.
    pub group: GroupId,
    /// The life of the group's topic.
    #[serde(with = "record::incarnation")]
    pub incarnation: Incarnation,
    /// The partition of the event.
    #[serde(with = "record::partition")]
    pub partition: PartitionId,
    /// The offset of the event.
    #[serde(with = "record::offset")]
    pub offset: Offset,
    /// Why its delivery ended.
    #[serde(serialize_with = "write_reason", deserialize_with = "read_reason")]
    pub reason: EndReason,
    /// How often it was handed out.
    pub attempts: u32,
    /// Why the last attempt failed; empty when an older release recorded it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_error: String,
    /// The first hand-out, in milliseconds since 1970.
    pub first_ms: u64,
    /// The last hand-out, in milliseconds since 1970.
    pub last_ms: u64,
    /// When its delivery ended, in milliseconds since 1970.
    pub dead_at_ms: u64,
    /// The event's `id`.
    pub event_id: String,
    /// The event's `source`.
    pub source: String,
    /// Where the body is.
    pub body: DeadLetterBody,
    /// The instance that recorded it.
    pub instance: InstanceId,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub unknown: Unknown,
}

fn write_reason<S: Serializer>(reason: &EndReason, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(reason.as_str())
}

fn read_reason<'de, D: Deserializer<'de>>(from: D) -> Result<EndReason, D::Error> {
    let text = String::deserialize(from)?;
    [EndReason::AttemptsExhausted, EndReason::Rejected]
        .into_iter()
        .find(|reason| reason.as_str() == text)
        .ok_or_else(|| de::Error::custom(format!("unknown reason {text:?}")))
}

impl SharedRecord for DeadLetter {
    type Id = DeadLetterId;
    const NAME: &'static str = "dead letter";

    fn key(id: &DeadLetterId) -> String {
        keys::dead_letter(id)
    }

    fn read_key(key: &str) -> Option<DeadLetterId> {
        keys::read_dead_letter(key)
    }

    fn unknown_mut(&mut self) -> &mut Unknown {
        &mut self.unknown
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_a_release_that_kept_no_errors_is_read_and_written_as_it_was() {
        let old = r#"{"group":{"tenant":"default","topic":"t","kind":"lb","name":"g"},"incarnation":7,"partition":0,
            "offset":3,"reason":"rejected","attempts":2,"firstMs":1,"lastMs":2,"deadAtMs":3,"eventId":"e",
            "source":"/s","body":{"topic":"t_DLQ","incarnation":8,"partition":0,"offset":1},"instance":"one"}"#;
        let letter: DeadLetter = serde_json::from_str(old).expect("it is read");
        assert_eq!((letter.last_error.as_str(), letter.attempts), ("", 2));
        let written = serde_json::to_value(&letter).expect("it is JSON");
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(old).expect("it is JSON"));
        let told = DeadLetter { last_error: "no".to_owned(), ..letter };
        let written = serde_json::to_string(&told).expect("it is JSON");
        assert_eq!(serde_json::from_str::<DeadLetter>(&written).expect("it is read"), told);
    }
}
