//! How a shared record is written: JSON with a version and a stamp, open for fields of newer writers.
//!
//! `{"v":1,"writer":"…","counter":…, …}`. Fields this build does not know are kept when it writes the record
//! again. A record of a higher version is not touched: the caller gets `Refused`, a listing leaves it out,
//! and a log line says which it was. A record that is not JSON of its shape is `Corrupt`, likewise.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use mesh_base::{BackendError, BackendErrorKind, Chance};
use mesh_frame::InstanceId;
use mesh_meta::{Revision, Versioned};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use thiserror::Error;

/// The version of every record this build writes, and the highest that it reads.
const VERSION: u64 = 1;
/// What the envelope adds to a record's own fields.
const ENVELOPE: [&str; 3] = ["v", "writer", "counter"];

/// A record that lives in Meta.
pub trait SharedRecord:
    Clone + std::fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// What a key names.
    type Id: Clone + std::fmt::Debug + Send + Sync;

    /// What log lines call such a record.
    const NAME: &'static str;

    /// Its key.
    fn key(id: &Self::Id) -> String;

    /// What a key names; `None` when it is not the key of such a record.
    fn read_key(key: &str) -> Option<Self::Id>;

    /// The fields of newer writers.
    fn unknown_mut(&mut self) -> &mut Unknown;
}

/// Fields this build does not know, kept as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Unknown(Map<String, Value>);

/// Who wrote a value, and its how-manieth write that was: no two writes have the same stamp, so that a
/// writer recognises its own value after an answer was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The instance and a random number of its run.
    pub writer: String,
    /// Rises with every write of that run.
    pub counter: u64,
}

/// Makes stamps for one run of one instance; clones count together.
#[derive(Clone, Debug)]
pub struct Writer {
    name: Arc<str>,
    counter: Arc<AtomicU64>,
    chance: Chance,
}

impl Writer {
    /// The writer of this run. What tells its run from others is left to chance, and so is the jitter of retries.
    pub fn new(instance: &InstanceId, chance: &Chance) -> Self {
        let run = chance.number();
        Self {
            name: format!("{instance}:{run:016x}").into(),
            counter: Arc::default(),
            chance: chance.clone(),
        }
    }

    pub(crate) fn chance(&self) -> &Chance {
        &self.chance
    }

    pub(crate) fn stamp(&self) -> Stamp {
        Stamp { writer: self.name.to_string(), counter: self.counter.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

/// A record as Meta holds it: what a compare-and-set expects.
#[derive(Clone, Debug)]
pub struct Stored<T> {
    /// The record.
    pub record: T,
    /// Who wrote it.
    pub stamp: Stamp,
    /// The change that wrote it.
    pub revision: Revision,
    pub(crate) raw: Bytes,
}

/// Why a value is not read as a record.
#[derive(Debug, Error)]
pub(crate) enum Unreadable {
    #[error("the record has version {0}, this build reads version {VERSION}: upgrade this instance")]
    NewerVersion(u64),
    #[error("the record is damaged")]
    Damaged(#[from] serde_json::Error),
}

impl Unreadable {
    /// As the failure of an operation on exactly this record.
    pub(crate) fn into_error(self, operation: &'static str) -> BackendError {
        let kind = match self {
            Self::NewerVersion(_) => BackendErrorKind::Refused,
            Self::Damaged(_) => BackendErrorKind::Corrupt,
        };
        BackendError::new(kind, "shared state", operation).with_source(self)
    }
}

#[derive(Serialize)]
struct Outgoing<'a, T> {
    v: u64,
    #[serde(flatten)]
    stamp: &'a Stamp,
    #[serde(flatten)]
    record: &'a T,
}

#[derive(Deserialize)]
struct Envelope {
    v: u64,
}

/// A record as bytes, with a stamp.
pub(crate) fn encode<T: SharedRecord>(record: &T, stamp: &Stamp) -> Bytes {
    let outgoing = Outgoing { v: VERSION, stamp, record };
    serde_json::to_vec(&outgoing).expect("a record has text keys and finite numbers").into()
}

/// A value as a record.
pub(crate) fn decode<T: SharedRecord>(current: Versioned) -> Result<Arc<Stored<T>>, Unreadable> {
    let Versioned { value: raw, revision } = current;
    let envelope: Envelope = serde_json::from_slice(&raw)?;
    if envelope.v > VERSION {
        return Err(Unreadable::NewerVersion(envelope.v));
    }
    let stamp = serde_json::from_slice(&raw)?;
    let mut record: T = serde_json::from_slice(&raw)?;
    for field in ENVELOPE {
        record.unknown_mut().0.remove(field);
    }
    Ok(Arc::new(Stored { record, stamp, revision, raw }))
}

/// The same for listings and watches: what cannot be read is logged and left out.
pub(crate) fn decode_or_skip<T: SharedRecord>(
    key: &str,
    current: Versioned,
) -> Option<(T::Id, Arc<Stored<T>>)> {
    let Some(id) = T::read_key(key) else {
        tracing::warn!(record = T::NAME, key, "left out: not a key of such a record");
        return None;
    };
    decode(current)
        .inspect_err(|error| {
            let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            tracing::warn!(record = T::NAME, key, %error, cause, "left out");
        })
        .ok()
        .map(|stored| (id, stored))
}

/// Numbers that are types, as plain JSON numbers.
macro_rules! as_number {
    ($($module:ident: $noun:ident($number:ty);)*) => {
        $(
            pub(crate) mod $module {
                use mesh_frame::$noun;
                use serde::{Deserialize, Deserializer, Serializer};

                pub(crate) fn serialize<S: Serializer>(noun: &$noun, to: S) -> Result<S::Ok, S::Error> {
                    to.serialize_u64(u64::from(noun.0))
                }

                pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<$noun, D::Error> {
                    <$number>::deserialize(from).map($noun)
                }
            }
        )*
    };
}

as_number! {
    epoch: Epoch(u64);
    incarnation: Incarnation(u64);
    partition: PartitionId(u32);
    offset: Offset(u64);
}

#[cfg(test)]
mod tests;
