//! What a log driver must do, and how its outcomes are told.
//!
//! The contract, held by the conformance suite for every driver: offsets of a partition rise and are
//! never used twice, also after a failed append, a restart or a trim; an append is one atomic effect
//! over all its items; a read never returns a record that was not acknowledged as appended, and never
//! skips one silently; a topic made again under an old name has another incarnation.

use std::sync::Arc;

use mesh_base::{BackendError, UnixMillis};
use mesh_frame::{Event, Offset, TopicName};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::{LogRecord, Partition, TopicInfo, TopicSettings};

/// Whether a driver can tell how many partitions a topic has. Three different values on purpose: an
/// unknown count is neither none nor all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionCount {
    /// Every topic has a count the driver knows.
    Known,
    /// The backend does not say.
    Unknown,
}

/// What a driver can do, as plain data that boot compares with what the configuration needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The driver's name, as `eventmesh.storage.type` spells it.
    pub name: &'static str,
    /// Whether an acknowledged append is kept when the process is killed.
    pub survives_kill: bool,
    /// Whether an acknowledged append is kept when power is lost.
    pub survives_power_loss: bool,
    /// Whether partition counts are known.
    pub partition_count: PartitionCount,
    /// Whether several instances can share the log.
    pub shared: bool,
    /// Whether what was stored lately can be read back at a start, so that duplicates are told across a restart.
    pub deduplication: bool,
    /// Whether retention is told what groups have not done with, and keeps it.
    pub retention_by_groups: bool,
}

/// How making a topic ended.
#[derive(Clone, Debug)]
#[must_use = "a topic that was there stays as it is"]
pub enum CreateTopic {
    /// It is new, and durable.
    Created(TopicInfo),
    /// It was there, as described.
    AlreadyThere(TopicInfo),
}

/// One event for one partition.
#[derive(Debug)]
pub struct AppendItem {
    /// Where it goes.
    pub partition: Arc<Partition>,
    /// The event.
    pub event: Event,
}

/// What an append appends; most append one.
pub type Items = SmallVec<[AppendItem; 1]>;

/// The offsets of an append's items, in the order of the items.
pub type Offsets = SmallVec<[Offset; 1]>;

/// What became of an append.
pub type Appended = Result<Offsets, BackendError>;

/// An append under way. When it is answered with `Ok` the events are as durable as the driver's
/// [`Capabilities`] say; when with `Err`, none of them will be read by this process.
#[derive(Debug)]
pub enum Append {
    /// Already decided.
    Now(Appended),
    /// Decided later; a dropped sender means the driver ended.
    Later(oneshot::Receiver<Appended>),
}

/// How much a read may return: at most `records`, and no further record once `bytes` are reached, but at
/// least one record when there is one.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimit {
    /// Records at most.
    pub records: usize,
    /// Bytes of stored records after which it stops.
    pub bytes: usize,
}

/// What retention may drop from one partition.
#[derive(Clone, Copy, Debug)]
pub struct Retain {
    /// Every group is done with what lies below; `None` when no group reads the partition.
    pub done_below: Option<Offset>,
    /// Records accepted before this may go once done with.
    pub done_before: Option<UnixMillis>,
    /// What is done with may go while the partition is larger than this.
    pub done_bytes: Option<u64>,
    /// Records accepted before this go, done with or not.
    pub backlog_before: Option<UnixMillis>,
    /// While the partition is larger than this the oldest go, done with or not.
    pub backlog_bytes: Option<u64>,
}

/// What a trim did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// The new start; nothing below it is left.
    pub start: Offset,
    /// How many offsets were dropped that some group was not done with.
    pub dropped_backlog: u64,
}

/// A log driver. Every method except [`StoragePlugin::append`] may block.
pub trait StoragePlugin: Send + Sync + 'static {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Every topic it holds.
    ///
    /// # Errors
    /// When the catalogue cannot be read.
    fn topics(&self) -> Result<Vec<TopicInfo>, BackendError>;

    /// Makes a topic with that many partitions and these settings, as one effect; durable before it returns.
    /// One that is there stays as it is.
    ///
    /// # Errors
    /// When the catalogue cannot be written.
    fn create_topic(
        &self,
        name: &TopicName,
        partitions: u32,
        settings: &TopicSettings,
    ) -> Result<CreateTopic, BackendError>;

    /// Puts these settings in the place of a topic's; durable before it returns. `false`: there is no topic
    /// of that name.
    ///
    /// # Errors
    /// When the catalogue cannot be written; the topic then has the settings it had.
    fn set_topic(&self, name: &TopicName, settings: &TopicSettings) -> Result<bool, BackendError>;

    /// Gives a topic that many partitions in all; those it has stay as they are, the new ones are empty and
    /// durable before it returns. A topic that has as many or more is left alone. `None`: there is no topic
    /// of that name.
    ///
    /// # Errors
    /// When the catalogue cannot be written; the topic then has the partitions it had.
    fn add_partitions(&self, name: &TopicName, partitions: u32) -> Result<Option<TopicInfo>, BackendError>;

    /// Removes a topic and its records; `false` when there was none.
    ///
    /// # Errors
    /// When the catalogue cannot be written; the topic is then still there or wholly gone.
    fn delete_topic(&self, name: &TopicName) -> Result<bool, BackendError>;

    /// Appends all items as one atomic effect. Never blocks. Records reach [`crate::Tail`] in the order of
    /// their offsets before the append is answered.
    fn append(&self, items: Items) -> Append;

    /// Records at or after `from`, in order, none at or after `end`.
    ///
    /// # Errors
    /// `Corrupt`, naming the offset, when the first record to return is damaged: records before it are
    /// returned first.
    fn read(
        &self,
        partition: &Partition,
        from: Offset,
        limit: ReadLimit,
    ) -> Result<Vec<Arc<LogRecord>>, BackendError>;

    /// The lowest offset whose record was accepted at or after `at`; the end when there is none.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn offset_at(&self, partition: &Partition, at: UnixMillis) -> Result<Offset, BackendError>;

    /// Drops what may go.
    ///
    /// # Errors
    /// When the log cannot be read or written; nothing or all of it was dropped.
    fn retain(&self, partition: &Partition, retain: &Retain) -> Result<Retained, BackendError>;

    /// The next append gets at least this offset. Called at boot, before the first append.
    ///
    /// # Errors
    /// When it cannot be recorded.
    fn raise_end(&self, partition: &Partition, at_least: Offset) -> Result<(), BackendError>;

    /// How many bytes the partition's records take, about.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn bytes(&self, partition: &Partition) -> Result<u64, BackendError>;

    /// Ends its threads after everything accepted was written. Later appends are refused.
    fn close(&self);
}
