//! The topics of the embedded log and the bounds of their partitions.

use mesh_base::{BackendError, BackendErrorKind};
use mesh_frame::{Incarnation, Offset, TopicName};
use mesh_rocks::{Batch, Durability, LocalDb};
use serde::{Deserialize, Serialize};

use super::keys::{self, NAME, corrupt};
use crate::{CreateTopic, Partition, PartitionInfo, TopicInfo, TopicSettings};

/// A topic as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    /// The version of this value; a higher one is refused.
    v: u32,
    incarnation: u64,
    partitions: Vec<u32>,
    #[serde(default, skip_serializing_if = "TopicSettings::is_empty")]
    settings: TopicSettings,
}

impl Stored {
    fn of(info: &TopicInfo) -> Vec<u8> {
        let stored = Self {
            v: 1,
            incarnation: info.incarnation.0,
            partitions: info.partitions.iter().map(|partition| partition.key).collect(),
            settings: info.settings,
        };
        serde_json::to_vec(&stored).expect("numbers have JSON")
    }
}

/// Refuses a database that a newer release wrote; stamps a new one.
pub(super) fn check_format(db: &LocalDb) -> Result<(), BackendError> {
    match db.get("default", keys::FORMAT)? {
        None => {
            let mut batch = Batch::new();
            batch.put("default", keys::FORMAT, keys::FORMAT_VERSION.to_be_bytes());
            db.write(&batch, Durability::Synced)
        }
        Some(bytes) if bytes == keys::FORMAT_VERSION.to_be_bytes() => Ok(()),
        Some(bytes) => {
            Err(BackendError::new(BackendErrorKind::Refused, NAME, "opening").with_source(format!(
                "the log at {} has format {bytes:?}, this release reads {}",
                db.path().display(),
                keys::FORMAT_VERSION
            )))
        }
    }
}

pub(super) fn topics(db: &LocalDb) -> Result<Vec<TopicInfo>, BackendError> {
    let mut rows = Vec::new();
    db.scan(keys::TOPICS, b"", None, |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        true
    })?;
    rows.into_iter().map(|(key, value)| read(db, &key, &value)).collect()
}

fn read(db: &LocalDb, key: &[u8], value: &[u8]) -> Result<TopicInfo, BackendError> {
    let name = std::str::from_utf8(key)
        .ok()
        .and_then(|name| TopicName::new(name).ok())
        .ok_or_else(|| corrupt(format!("a topic has the unreadable name {key:?}")))?;
    let stored: Stored = serde_json::from_slice(value)
        .map_err(|error| corrupt(format!("the record of topic {name} is unreadable: {error}")))?;
    if stored.v != 1 {
        return Err(corrupt(format!("the record of topic {name} has version {}", stored.v)));
    }
    let partitions = stored
        .partitions
        .into_iter()
        .map(|key| partition(db, key))
        .collect::<Result<Vec<_>, BackendError>>()?;
    Ok(TopicInfo {
        name,
        incarnation: Incarnation(stored.incarnation),
        partitions,
        settings: stored.settings,
    })
}

/// Whether the topic that a partition is of was not deleted since.
pub(super) fn has(db: &LocalDb, partition: &Partition) -> Result<bool, BackendError> {
    let name = partition.topic().as_str().as_bytes();
    let Some(value) = db.get(keys::TOPICS, name)? else { return Ok(false) };
    Ok(read(db, name, &value)?.partitions.iter().any(|there| there.key == partition.key()))
}

/// The bounds of a partition: what its last record and its bounds row say together.
fn partition(db: &LocalDb, key: u32) -> Result<PartitionInfo, BackendError> {
    let (start, least_end) = match db.get(keys::BOUNDS, &key.to_be_bytes())? {
        None => (0, 0),
        Some(value) => keys::read_bounds(&value)
            .ok_or_else(|| corrupt(format!("the bounds of partition {key} are unreadable")))?,
    };
    let last = db.last_below(keys::RECORDS, &keys::record(key, u64::MAX))?;
    let last = last.and_then(|(found, _)| keys::offset_of(&found, key));
    let end = last.map_or(0, |offset| offset.0 + 1).max(least_end).max(start);
    Ok(PartitionInfo { key, start: Offset(start), end: Offset(end) })
}

pub(super) fn create(
    db: &LocalDb,
    name: &TopicName,
    partitions: u32,
    settings: &TopicSettings,
    incarnation: Incarnation,
) -> Result<CreateTopic, BackendError> {
    if let Some(value) = db.get(keys::TOPICS, name.as_str().as_bytes())? {
        return read(db, name.as_str().as_bytes(), &value).map(CreateTopic::AlreadyThere);
    }
    let first = next_partition(db)?;
    let info = TopicInfo {
        name: name.clone(),
        incarnation,
        partitions: (first..first + partitions)
            .map(|key| PartitionInfo { key, start: Offset(0), end: Offset(0) })
            .collect(),
        settings: *settings,
    };
    let mut batch = Batch::new();
    batch.put(keys::TOPICS, name.as_str(), Stored::of(&info));
    batch.put("default", keys::NEXT_PARTITION, (first + partitions).to_be_bytes());
    db.write(&batch, Durability::Synced)?;
    Ok(CreateTopic::Created(info))
}

/// Puts settings in the place of a topic's; `false`: there is no such topic.
pub(super) fn set(db: &LocalDb, name: &TopicName, settings: &TopicSettings) -> Result<bool, BackendError> {
    let Some(value) = db.get(keys::TOPICS, name.as_str().as_bytes())? else { return Ok(false) };
    let mut info = read(db, name.as_str().as_bytes(), &value)?;
    info.settings = *settings;
    let mut batch = Batch::new();
    batch.put(keys::TOPICS, name.as_str(), Stored::of(&info));
    db.write(&batch, Durability::Synced)?;
    Ok(true)
}

/// The key that the next partition gets.
fn next_partition(db: &LocalDb) -> Result<u32, BackendError> {
    match db.get("default", keys::NEXT_PARTITION)? {
        None => Ok(0),
        Some(bytes) => bytes
            .try_into()
            .map(u32::from_be_bytes)
            .map_err(|_| corrupt("the next partition key is unreadable")),
    }
}

/// Gives a topic `partitions` in all; the topic as it is then, and what was added.
pub(super) fn add_partitions(
    db: &LocalDb,
    name: &TopicName,
    partitions: u32,
) -> Result<Option<(TopicInfo, Vec<PartitionInfo>)>, BackendError> {
    let Some(value) = db.get(keys::TOPICS, name.as_str().as_bytes())? else { return Ok(None) };
    let mut info = read(db, name.as_str().as_bytes(), &value)?;
    let has = u32::try_from(info.partitions.len()).expect("partition counts fit u32");
    let Some(more) = partitions.checked_sub(has).filter(|more| *more > 0) else {
        return Ok(Some((info, Vec::new())));
    };
    let first = next_partition(db)?;
    let added: Vec<PartitionInfo> =
        (first..first + more).map(|key| PartitionInfo { key, start: Offset(0), end: Offset(0) }).collect();
    info.partitions.extend(&added);
    let mut batch = Batch::new();
    batch.put(keys::TOPICS, name.as_str(), Stored::of(&info));
    batch.put("default", keys::NEXT_PARTITION, (first + more).to_be_bytes());
    db.write(&batch, Durability::Synced)?;
    Ok(Some((info, added)))
}

pub(super) fn delete(db: &LocalDb, name: &TopicName) -> Result<Option<TopicInfo>, BackendError> {
    let Some(value) = db.get(keys::TOPICS, name.as_str().as_bytes())? else { return Ok(None) };
    let info = read(db, name.as_str().as_bytes(), &value)?;
    let mut batch = Batch::new();
    batch.delete(keys::TOPICS, name.as_str());
    for partition in &info.partitions {
        batch.delete(keys::BOUNDS, partition.key.to_be_bytes());
        batch.delete_range(
            keys::RECORDS,
            keys::record(partition.key, 0),
            keys::record(partition.key, u64::MAX),
        );
    }
    db.write(&batch, Durability::Synced)?;
    Ok(Some(info))
}

pub(super) fn write_bounds(db: &LocalDb, key: u32, start: u64, end: u64) -> Result<(), BackendError> {
    let mut batch = Batch::new();
    batch.put(keys::BOUNDS, key.to_be_bytes(), keys::bounds(start, end));
    db.write(&batch, Durability::Synced)
}
