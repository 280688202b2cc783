//! A driver that fails on order: for tests of what stands on the log.

use std::{collections::VecDeque, sync::Arc};

use mesh_base::{BackendError, BackendErrorKind, UnixMillis};
use mesh_frame::{Offset, TopicName};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{
    Append, Capabilities, CreateTopic, Items, LogRecord, Partition, ReadLimit, Retain, Retained,
    StoragePlugin, TopicInfo, TopicSettings,
};

/// What happens to the next operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not carried out and fails with this kind.
    Fail(BackendErrorKind),
    /// It is carried out, and its answer is lost: the caller sees `Unavailable`.
    LoseAnswer,
    /// It never answers.
    Hang,
    /// The thread that asks for it panics.
    Panic,
}

/// A driver with a script of faults for appends and one for reads.
pub struct Faulty {
    inner: Arc<dyn StoragePlugin>,
    appends: Mutex<VecDeque<Fault>>,
    reads: Mutex<VecDeque<Fault>>,
    hanging: Mutex<Vec<oneshot::Sender<crate::Appended>>>,
}

impl Faulty {
    /// Wraps a driver; without a script it changes nothing.
    pub fn new(inner: Arc<dyn StoragePlugin>) -> Self {
        Self { inner, appends: Mutex::default(), reads: Mutex::default(), hanging: Mutex::default() }
    }

    /// The next appends meet these faults, in order.
    pub fn fail_appends(&self, faults: impl IntoIterator<Item = Fault>) {
        self.appends.lock().extend(faults);
    }

    /// The next reads meet these faults, in order.
    pub fn fail_reads(&self, faults: impl IntoIterator<Item = Fault>) {
        self.reads.lock().extend(faults);
    }

    fn error(kind: BackendErrorKind, operation: &'static str) -> BackendError {
        BackendError::new(kind, "faulty", operation).with_source("by order of the test")
    }
}

impl StoragePlugin for Faulty {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn topics(&self) -> Result<Vec<TopicInfo>, BackendError> {
        self.inner.topics()
    }

    fn create_topic(
        &self,
        name: &TopicName,
        partitions: u32,
        settings: &TopicSettings,
    ) -> Result<CreateTopic, BackendError> {
        self.inner.create_topic(name, partitions, settings)
    }

    fn set_topic(&self, name: &TopicName, settings: &TopicSettings) -> Result<bool, BackendError> {
        self.inner.set_topic(name, settings)
    }

    fn add_partitions(&self, name: &TopicName, partitions: u32) -> Result<Option<TopicInfo>, BackendError> {
        self.inner.add_partitions(name, partitions)
    }

    fn delete_topic(&self, name: &TopicName) -> Result<bool, BackendError> {
        self.inner.delete_topic(name)
    }

    fn append(&self, items: Items) -> Append {
        match self.appends.lock().pop_front() {
            None => self.inner.append(items),
            Some(Fault::Fail(kind)) => Append::Now(Err(Self::error(kind, "appending"))),
            Some(Fault::LoseAnswer) => {
                drop(self.inner.append(items));
                Append::Now(Err(Self::error(BackendErrorKind::Unavailable, "appending")))
            }
            Some(Fault::Panic) => panic!("by order of the test"),
            Some(Fault::Hang) => {
                let (never, answer) = oneshot::channel();
                self.hanging.lock().push(never);
                Append::Later(answer)
            }
        }
    }

    fn read(
        &self,
        partition: &Partition,
        from: Offset,
        limit: ReadLimit,
    ) -> Result<Vec<Arc<LogRecord>>, BackendError> {
        match self.reads.lock().pop_front() {
            None => self.inner.read(partition, from, limit),
            Some(Fault::Fail(kind)) => Err(Self::error(kind, "reading")),
            Some(Fault::Panic) => panic!("by order of the test"),
            Some(Fault::LoseAnswer | Fault::Hang) => {
                Err(Self::error(BackendErrorKind::Unavailable, "reading"))
            }
        }
    }

    fn offset_at(&self, partition: &Partition, at: UnixMillis) -> Result<Offset, BackendError> {
        self.inner.offset_at(partition, at)
    }

    fn retain(&self, partition: &Partition, retain: &Retain) -> Result<Retained, BackendError> {
        self.inner.retain(partition, retain)
    }

    fn raise_end(&self, partition: &Partition, at_least: Offset) -> Result<(), BackendError> {
        self.inner.raise_end(partition, at_least)
    }

    fn bytes(&self, partition: &Partition) -> Result<u64, BackendError> {
        self.inner.bytes(partition)
    }

    fn close(&self) {
        self.inner.close();
    }
}
