//! The embedded log: durable partitioned topics in one RocksDB.
//!
//! One writer thread gathers concurrent appends into one synced batch (group commit), so that a hundred
//! publishers share one device sync. A failed write fails every append of its batch; their offsets are
//! skipped, never used again. What was acknowledged is in the write-ahead log and, with
//! [`SyncPolicy::Always`], on the disk.

mod catalog;
mod incarnation;
mod keys;
mod read;
mod writer;

use std::{path::PathBuf, sync::Arc, time::Duration};

use mesh_base::{BackendError, Chance, Clock, UnixMillis};
use mesh_frame::{Offset, TopicName};
use mesh_rocks::{Durability, Family, FamilyKind, LocalDb, Machine, Spec, Syncer};
use parking_lot::Mutex;

pub(crate) use incarnation::new_incarnation;

use self::keys::NAME;
use crate::{
    Append, Capabilities, CreateTopic, Items, LogRecord, Partition, PartitionCount, ReadLimit, Retain,
    Retained, StoragePlugin, Tail, TopicInfo, TopicSettings, Watermark,
};

/// When an acknowledged append is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Before it is acknowledged.
    Always,
    /// Within a second; power loss can take that second. A killed process loses nothing.
    Interval,
    /// When the operating system gets to it. A killed process loses nothing.
    Never,
}

/// Where and how the embedded log is kept.
#[derive(Clone, Debug)]
pub struct EmbeddedSettings {
    /// Its folder.
    pub path: PathBuf,
    /// When appends are synced.
    pub sync: SyncPolicy,
    /// Memtable size in bytes.
    pub write_buffer_bytes: usize,
}

/// The embedded log driver.
pub struct Embedded {
    chance: Chance,
    db: Arc<LocalDb>,
    writer: writer::Writer,
    catalog: Mutex<()>,
    syncer: Mutex<Option<Syncer>>,
    sync: SyncPolicy,
}

const FAMILIES: &[Family] = &[
    Family { name: keys::RECORDS, kind: FamilyKind::Records },
    Family { name: keys::BOUNDS, kind: FamilyKind::Rows },
    Family { name: keys::TOPICS, kind: FamilyKind::Rows },
];

impl Embedded {
    /// Opens the log, making it when the folder holds none. Starts its writer thread.
    ///
    /// # Errors
    /// When the database cannot be opened, is damaged, or was written by a newer release.
    pub fn open(
        settings: &EmbeddedSettings,
        machine: &Machine,
        clock: Clock,
        chance: Chance,
        tail: Arc<Tail>,
        watermark: Arc<Watermark>,
    ) -> Result<Self, BackendError> {
        let spec = Spec {
            name: NAME,
            path: settings.path.clone(),
            families: FAMILIES,
            write_buffer_bytes: settings.write_buffer_bytes,
        };
        let db = Arc::new(LocalDb::open(&spec, machine)?);
        catalog::check_format(&db)?;
        let durability = match settings.sync {
            SyncPolicy::Always => Durability::Synced,
            SyncPolicy::Interval | SyncPolicy::Never => Durability::Logged,
        };
        let writer = writer::Writer::start(db.clone(), durability, clock, tail)?;
        // With `never` the marker may only speak of what a planned close synced.
        let period = match settings.sync {
            SyncPolicy::Always | SyncPolicy::Interval => Duration::from_secs(1),
            SyncPolicy::Never => Duration::from_secs(365 * 86_400),
        };
        let syncer = Syncer::spawn(db.clone(), period, move || watermark.look());
        Ok(Self {
            db,
            chance,
            writer,
            catalog: Mutex::new(()),
            syncer: Mutex::new(Some(syncer)),
            sync: settings.sync,
        })
    }
}

impl StoragePlugin for Embedded {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "embedded",
            survives_kill: true,
            survives_power_loss: self.sync == SyncPolicy::Always,
            partition_count: PartitionCount::Known,
            shared: false,
            deduplication: true,
            retention_by_groups: true,
        }
    }

    fn topics(&self) -> Result<Vec<TopicInfo>, BackendError> {
        catalog::topics(&self.db)
    }

    fn create_topic(
        &self,
        name: &TopicName,
        partitions: u32,
        settings: &TopicSettings,
    ) -> Result<CreateTopic, BackendError> {
        let _one_at_a_time = self.catalog.lock();
        let created = catalog::create(&self.db, name, partitions, settings, new_incarnation(&self.chance))?;
        if let CreateTopic::Created(info) = &created {
            self.writer.know(&info.partitions)?;
        }
        Ok(created)
    }

    fn set_topic(&self, name: &TopicName, settings: &TopicSettings) -> Result<bool, BackendError> {
        let _one_at_a_time = self.catalog.lock();
        catalog::set(&self.db, name, settings)
    }

    fn add_partitions(&self, name: &TopicName, partitions: u32) -> Result<Option<TopicInfo>, BackendError> {
        let _one_at_a_time = self.catalog.lock();
        let Some((info, added)) = catalog::add_partitions(&self.db, name, partitions)? else {
            return Ok(None);
        };
        self.writer.know(&added)?;
        Ok(Some(info))
    }

    fn delete_topic(&self, name: &TopicName) -> Result<bool, BackendError> {
        let _one_at_a_time = self.catalog.lock();
        let Some(gone) = catalog::delete(&self.db, name)? else { return Ok(false) };
        self.writer.forget(&gone.partitions)?;
        for partition in &gone.partitions {
            self.db.compact(
                keys::RECORDS,
                &keys::record(partition.key, 0),
                &keys::record(partition.key, u64::MAX),
            );
        }
        Ok(true)
    }

    fn append(&self, items: Items) -> Append {
        self.writer.append(items)
    }

    fn read(
        &self,
        partition: &Partition,
        from: Offset,
        limit: ReadLimit,
    ) -> Result<Vec<Arc<LogRecord>>, BackendError> {
        read::records(&self.db, partition, from, limit)
    }

    fn offset_at(&self, partition: &Partition, at: UnixMillis) -> Result<Offset, BackendError> {
        read::offset_where(&self.db, partition, |stored| Ok(stored.record()?.accepted_at_ms >= at.0))
    }

    fn retain(&self, partition: &Partition, retain: &Retain) -> Result<Retained, BackendError> {
        read::retain(&self.db, &self.catalog, partition, retain)
    }

    fn raise_end(&self, partition: &Partition, at_least: Offset) -> Result<(), BackendError> {
        if at_least <= partition.end() {
            return Ok(());
        }
        catalog::write_bounds(&self.db, partition.key(), partition.start().0, at_least.0)?;
        self.writer.raise_end(partition.key(), at_least)
    }

    fn bytes(&self, partition: &Partition) -> Result<u64, BackendError> {
        read::bytes(&self.db, partition)
    }

    fn close(&self) {
        self.writer.close();
        drop(self.syncer.lock().take());
        if let Err(error) = self.db.sync() {
            tracing::warn!(error = %error.chain(), "the log could not be synced at close");
        }
    }
}
