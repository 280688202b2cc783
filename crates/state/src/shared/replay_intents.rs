//! What a replay is about to copy, written down before it does: so that after the death of the process it can be
//! told which copies were made, and none is made twice.
//!
//! One record for each instance. It stands from before the copies are appended until the rows of the dead letters
//! are gone, and for longer only where the log did not say whether it stored them.

use mesh_frame::{Incarnation, InstanceId, Offset, PartitionId, TopicName};
use serde::{Deserialize, Serialize};

use super::{DeadLetter, GroupId, SharedRecord, Unknown, keys, record};

/// The attempts of one instance whose end is not written down yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplayIntent {
    /// The attempts, the oldest first.
    pub attempts: Vec<ReplayAttempt>,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Copies that were to be appended to one topic with one append.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayAttempt {
    /// The topic.
    pub topic: TopicName,
    /// The life of the topic.
    #[serde(with = "record::incarnation")]
    pub incarnation: Incarnation,
    /// By partition: where its log ended before. A copy is there or behind.
    pub ends: Vec<u64>,
    /// Whose letters they are.
    pub groups: Vec<ReplayedGroup>,
}

/// The letters of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayedGroup {
    /// The group.
    pub group: GroupId,
    /// Which group of that id: one that was removed and made again has another number.
    pub number: u64,
    /// The letters.
    pub letters: Vec<ReplayedLetter>,
}

/// One dead letter: the position of its event, and the place of its body, which no two rows share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "[u64; 5]", try_from = "[u64; 5]")]
pub struct ReplayedLetter {
    /// The life of the topic that the event was in.
    pub incarnation: Incarnation,
    /// The partition of the event.
    pub partition: PartitionId,
    /// The offset of the event.
    pub offset: Offset,
    /// The life of the dead-letter topic.
    pub body_incarnation: Incarnation,
    /// The offset of the body.
    pub body_offset: Offset,
}

impl From<&DeadLetter> for ReplayedLetter {
    fn from(row: &DeadLetter) -> Self {
        Self {
            incarnation: row.incarnation,
            partition: row.partition,
            offset: row.offset,
            body_incarnation: row.body.incarnation,
            body_offset: row.body.offset,
        }
    }
}

impl From<ReplayedLetter> for [u64; 5] {
    fn from(letter: ReplayedLetter) -> Self {
        let partition = u64::from(letter.partition.0);
        [letter.incarnation.0, partition, letter.offset.0, letter.body_incarnation.0, letter.body_offset.0]
    }
}

impl TryFrom<[u64; 5]> for ReplayedLetter {
    type Error = std::num::TryFromIntError;

    fn try_from(numbers: [u64; 5]) -> Result<Self, Self::Error> {
        let [incarnation, partition, offset, body_incarnation, body_offset] = numbers;
        Ok(Self {
            incarnation: Incarnation(incarnation),
            partition: PartitionId(u32::try_from(partition)?),
            offset: Offset(offset),
            body_incarnation: Incarnation(body_incarnation),
            body_offset: Offset(body_offset),
        })
    }
}

impl SharedRecord for ReplayIntent {
    type Id = InstanceId;
    const NAME: &'static str = "replay intent";

    fn key(id: &InstanceId) -> String {
        keys::single(keys::REPLAYS, id.as_str())
    }

    fn read_key(key: &str) -> Option<InstanceId> {
        InstanceId::new(&keys::read_single(keys::REPLAYS, key)?).ok()
    }

    fn unknown_mut(&mut self) -> &mut Unknown {
        &mut self.unknown
    }
}

#[cfg(test)]
mod tests {
    use mesh_frame::{GroupName, TenantId};

    use super::*;
    use crate::shared::GroupKind;

    #[test]
    fn an_intent_is_read_as_it_was_written() {
        let group = GroupId {
            tenant: TenantId::new("a/b").expect("legal"),
            topic: TopicName::new("t").expect("legal"),
            kind: GroupKind::LoadBalance,
            name: GroupName::new("g").expect("legal"),
        };
        let letter = ReplayedLetter {
            incarnation: Incarnation(u64::MAX),
            partition: PartitionId(3),
            offset: Offset(9),
            body_incarnation: Incarnation(7),
            body_offset: Offset(u64::MAX),
        };
        let attempt = ReplayAttempt {
            topic: group.topic.clone(),
            incarnation: Incarnation(u64::MAX),
            ends: vec![4, 5],
            groups: vec![ReplayedGroup { group, number: 12, letters: vec![letter] }],
        };
        let intent = ReplayIntent { attempts: vec![attempt], ..ReplayIntent::default() };
        let text = serde_json::to_string(&intent).expect("it is JSON");
        assert!(text.contains("\"letters\":[[18446744073709551615,3,9,7,18446744073709551615]]"), "{text}");
        assert_eq!(serde_json::from_str::<ReplayIntent>(&text).expect("it is read"), intent);
        let name = InstanceId::new("one.two").expect("legal");
        assert_eq!(ReplayIntent::read_key(&ReplayIntent::key(&name)), Some(name));
        let too_large = text.replace("15,3,9", "15,4294967296,9");
        assert!(serde_json::from_str::<ReplayIntent>(&too_large).is_err());
    }
}
