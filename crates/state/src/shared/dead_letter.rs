//! The row of a dead letter: what could not be delivered to whom, why, and where its body is.

use mesh_frame::{Incarnation, InstanceId, Offset, PartitionId, TopicName};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{DeadLetterId, GroupId, SharedRecord, Unknown, keys, record};
use crate::positions::EndReason;

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
