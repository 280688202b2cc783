//! Positions on RocksDB: one database with two column families, opened once at boot.
//!
//! A commit is one write batch. A thread syncs the database every second. After a failed write the database is opened
//! again where that is what it takes; nothing is ever wiped.
//!
//! It keeps the count of boots that it was last opened with, so that the count never falls back with Meta
//! ([`crate::shared::IdentityStore`]). The key of delivery ids and the group numbers are not here: releases with
//! format 1 of this database kept them, [`RocksDbPositions::old_identity`] shows them and
//! [`RocksDbPositions::forget_old_identity`] removes them once Meta has them.

mod stores;

use std::{path::PathBuf, sync::Arc, time::Duration};

use mesh_base::{BackendError, BackendErrorKind};
use mesh_frame::{Epoch, Offset};
use mesh_rocks::{Batch, Durability, Family, FamilyKind, Healed, LocalDb, Machine, Spec, Syncer};

pub use stores::{RocksDbDeliveryStateStore, RocksDbOffsetStore};

use super::{
    DeliveryStateStore, OffsetStore, PositionBatch, PositionChange, PositionStore,
    keys::{BOOTS, CURSORS, FORMAT, LEDGER, NAME, NEXT_GROUP, PROBE, SECRET},
};

/// Format 1 kept the key of delivery ids and the last group number too.
const FORMAT_VERSION: u32 = 2;
const OLD_FORMAT_VERSION: u32 = 1;
/// What power loss can undo at most.
const SYNC_EVERY: Duration = Duration::from_secs(1);

const FAMILIES: &[Family] =
    &[Family { name: CURSORS, kind: FamilyKind::Rows }, Family { name: LEDGER, kind: FamilyKind::Rows }];

/// Where the position database is kept.
#[derive(Clone, Debug)]
pub struct PositionsSettings {
    /// Its folder (`eventmesh.offset.path`).
    pub path: PathBuf,
}

/// What a position database of format 1 kept beside positions.
#[derive(Clone, PartialEq, Eq)]
pub struct OldIdentity {
    /// The key of the delivery ids' MAC.
    pub delivery_id_key: [u8; 32],
}

impl std::fmt::Debug for OldIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OldIdentity(…)")
    }
}

/// The open position database.
pub struct RocksDbPositions {
    /// Ends before the database is closed.
    _syncer: Syncer,
    db: Arc<LocalDb>,
    offsets: RocksDbOffsetStore,
    deliveries: RocksDbDeliveryStateStore,
}

impl RocksDbPositions {
    /// Opens the database, making it when there is none, and starts the thread that syncs it. Blocks.
    ///
    /// # Errors
    /// `failed to open RocksDB offset store at <path>` and why; nothing is wiped.
    pub fn open(settings: &PositionsSettings, machine: &Machine) -> Result<Self, BackendError> {
        let spec =
            Spec { name: NAME, path: settings.path.clone(), families: FAMILIES, write_buffer_bytes: 8 << 20 };
        let db = Arc::new(LocalDb::open(&spec, machine)?);
        check_format(&db)?;
        Ok(Self {
            _syncer: Syncer::spawn(db.clone(), SYNC_EVERY, || ()),
            offsets: RocksDbOffsetStore(db.clone()),
            deliveries: RocksDbDeliveryStateStore(db.clone()),
            db,
        })
    }

    /// The count of boots that [`RocksDbPositions::record_boot`] wrote last; 0: none yet.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn last_boot(&self) -> Result<Epoch, BackendError> {
        number(&self.db, BOOTS).map(Epoch)
    }

    /// Keeps the count of this boot; on the disk when it returns. Blocks.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn record_boot(&self, boot: Epoch) -> Result<(), BackendError> {
        let mut batch = Batch::new();
        batch.put("default", BOOTS, boot.0.to_be_bytes());
        self.db.write(&batch, Durability::Synced)
    }

    /// What a release with format 1 kept here; `None` in a newer database, and once it was forgotten.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn old_identity(&self) -> Result<Option<OldIdentity>, BackendError> {
        let Some(key) = self.db.get("default", SECRET)? else { return Ok(None) };
        let delivery_id_key = key.try_into().map_err(|_| damaged(SECRET))?;
        Ok(Some(OldIdentity { delivery_id_key }))
    }

    /// Removes what [`RocksDbPositions::old_identity`] shows and raises the format of the database, as one effect that
    /// is on the disk when it returns. Releases with format 1 refuse the database from then on. Blocks.
    ///
    /// # Errors
    /// When it cannot be written; nothing is removed then.
    pub fn forget_old_identity(&self) -> Result<(), BackendError> {
        let mut batch = Batch::new();
        batch.put("default", FORMAT, FORMAT_VERSION.to_be_bytes());
        batch.delete("default", SECRET);
        batch.delete("default", NEXT_GROUP);
        self.db.write(&batch, Durability::Synced)
    }
}

/// About what a change takes: the key of a row and the row.
const CHANGE_BYTES: usize = 128;

impl PositionStore for RocksDbPositions {
    fn commit(&self, batches: &[PositionBatch], durability: Durability) -> Result<(), BackendError> {
        let changes = batches.iter().map(|batch| batch.changes().len()).sum();
        let mut batch = Batch::with_room(changes, CHANGE_BYTES);
        for change in batches.iter().flat_map(PositionBatch::changes) {
            match change {
                PositionChange::Cursor(lane, cursor) => batch.put(CURSORS, lane.bytes(), cursor.encode()),
                PositionChange::Put(lane, offset, row) => batch.put(LEDGER, lane.row(*offset), row.encode()),
                PositionChange::Delete(lane, offset) => batch.delete(LEDGER, lane.row(*offset)),
                PositionChange::Forget(lane) => {
                    batch.delete(CURSORS, lane.bytes());
                    batch.delete_range(LEDGER, lane.row(Offset(0)), lane.row(Offset(u64::MAX)));
                }
            }
        }
        if batch.is_empty() { Ok(()) } else { self.db.write(&batch, durability) }
    }

    fn sync(&self) -> Result<(), BackendError> {
        self.db.sync()
    }

    fn heal(&self) -> Result<(), BackendError> {
        let mut probe = Batch::new();
        probe.put("default", PROBE, []);
        match self.db.heal(&probe)? {
            // Views that were read before are of an older epoch either way.
            Healed::Resumed | Healed::Reopened => Ok(()),
        }
    }

    fn offsets(&self) -> &dyn OffsetStore {
        &self.offsets
    }

    fn deliveries(&self) -> &dyn DeliveryStateStore {
        &self.deliveries
    }
}

fn check_format(db: &LocalDb) -> Result<(), BackendError> {
    match db.get("default", FORMAT)? {
        None => {
            let mut batch = Batch::new();
            batch.put("default", FORMAT, FORMAT_VERSION.to_be_bytes());
            db.write(&batch, Durability::Synced)
        }
        Some(bytes)
            if [FORMAT_VERSION, OLD_FORMAT_VERSION].iter().any(|known| bytes == known.to_be_bytes()) =>
        {
            Ok(())
        }
        Some(bytes) => {
            Err(BackendError::new(BackendErrorKind::Refused, NAME, "opening").with_source(format!(
                "the offset store at {} has format {bytes:?}, this release reads {OLD_FORMAT_VERSION} and {FORMAT_VERSION}",
                db.path().display()
            )))
        }
    }
}

fn number(db: &LocalDb, key: &[u8]) -> Result<u64, BackendError> {
    let Some(bytes) = db.get("default", key)? else { return Ok(0) };
    let bytes = bytes.try_into().map_err(|_| damaged(key))?;
    Ok(u64::from_be_bytes(bytes))
}

fn damaged(key: &[u8]) -> BackendError {
    BackendError::new(BackendErrorKind::Corrupt, NAME, "opening")
        .with_source(format!("the value of {} is damaged", String::from_utf8_lossy(key)))
}
