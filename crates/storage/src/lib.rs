//! The log: partitioned topics of records, kept by a plugin and read through one handle.
//!
//! A driver ([`StoragePlugin`]) is narrow: it appends, reads, trims and knows its bounds. Everyone else
//! holds the [`Storage`] handle, which adds what every driver needs once: the topic directory, the tail
//! cache, the cache of cold chunks, wake-ups, limits and metrics. Reading from the caches never blocks;
//! everything that touches a disk is off the async workers.

mod cached;
mod chunks;
mod cold;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod dedup;
mod embedded;
#[cfg(any(test, feature = "conformance"))]
pub mod faulty;
mod handle;
mod info;
mod memory;
mod plugin;
mod record;
mod ring;
mod rules;
mod signals;
mod tail;
mod topic;
mod watermark;

pub use cached::Cached;
pub use dedup::{Claim, Claimed, Deduplicator, EventKey};
pub use embedded::{Embedded, EmbeddedSettings, SyncPolicy};
pub use handle::{Announcements, Listener, Storage, StorageLimits, TopicError};
pub use info::{PartitionInfo, TopicInfo};
pub use memory::Memory;
pub use plugin::{
    Append, AppendItem, Appended, Capabilities, CreateTopic, Items, Offsets, PartitionCount, ReadLimit,
    Retain, Retained, StoragePlugin,
};
pub use record::LogRecord;
pub use rules::{Change, SettingsChange, TopicRules, TopicSettings};
pub use tail::Tail;
pub use topic::{Partition, Topic};
pub use watermark::Watermark;
