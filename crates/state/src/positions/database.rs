//! The position database as a whole: opened once at boot.
//!
//! It keeps the count of boots that it was last opened with, so that the count never falls back with Meta
//! ([`crate::shared::IdentityStore`]). The key of delivery ids and the group numbers are not here: releases with
//! format 1 of this database kept them, [`Positions::old_identity`] shows them and
//! [`Positions::forget_old_identity`] removes them once Meta has them.

use std::{path::PathBuf, sync::Arc, time::Duration};

use mesh_base::{BackendError, BackendErrorKind, Signals};
use mesh_frame::Epoch;
use mesh_rocks::{Batch, Durability, Family, FamilyKind, LocalDb, Machine, Spec, Syncer};
use parking_lot::Mutex;

use super::{
    PositionLog, RocksDbDeliveryStateStore, RocksDbOffsetStore,
    keys::{BOOTS, CURSORS, FORMAT, LEDGER, NAME, NEXT_GROUP, SECRET},
};

/// Format 1 kept the key of delivery ids and the last group number too.
const FORMAT_VERSION: u32 = 2;
const OLD_FORMAT_VERSION: u32 = 1;

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
pub struct Positions {
    db: Arc<LocalDb>,
    log: PositionLog,
    syncer: Mutex<Option<Syncer>>,
}

const FAMILIES: &[Family] =
    &[Family { name: CURSORS, kind: FamilyKind::Rows }, Family { name: LEDGER, kind: FamilyKind::Rows }];

impl Positions {
    /// Opens the database, making it when there is none. Blocks.
    ///
    /// # Errors
    /// `failed to open RocksDB offset store at <path>` and why; nothing is wiped.
    pub fn open(
        settings: &PositionsSettings,
        machine: &Machine,
        signals: &Signals,
    ) -> Result<Self, BackendError> {
        let spec =
            Spec { name: NAME, path: settings.path.clone(), families: FAMILIES, write_buffer_bytes: 8 << 20 };
        let db = Arc::new(LocalDb::open(&spec, machine)?);
        check_format(&db)?;
        let log = PositionLog::start(db.clone(), signals);
        let syncer = Syncer::spawn(db.clone(), Duration::from_secs(1), || ());
        Ok(Self { db, log, syncer: Mutex::new(Some(syncer)) })
    }

    /// Where changes are committed.
    pub fn log(&self) -> &PositionLog {
        &self.log
    }

    /// The store of cursors.
    pub fn offsets(&self) -> RocksDbOffsetStore {
        RocksDbOffsetStore(self.db.clone())
    }

    /// The store of rows.
    pub fn deliveries(&self) -> RocksDbDeliveryStateStore {
        RocksDbDeliveryStateStore(self.db.clone())
    }

    /// The count of boots that [`Positions::record_boot`] wrote last; 0: none yet.
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

    /// Removes what [`Positions::old_identity`] shows and raises the format of the database, as one effect that is on
    /// the disk when it returns. Releases with format 1 refuse the database from then on. Blocks.
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

    /// Commits what waits, syncs and ends its threads. Blocks.
    pub fn close(&self) {
        self.log.close();
        drop(self.syncer.lock().take());
        if let Err(error) = self.db.sync() {
            tracing::error!(error = %error.chain(), "positions could not be synced at close");
        }
    }
}

impl Drop for Positions {
    /// No thread of it outlives it.
    fn drop(&mut self) {
        self.close();
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
