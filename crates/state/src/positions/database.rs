//! The position database as a whole: opened once at boot, with what must be unique for ever.

use std::{path::PathBuf, sync::Arc, time::Duration};

use mesh_base::{BackendError, BackendErrorKind, Signals};
use mesh_frame::Epoch;
use mesh_rocks::{Batch, Durability, Family, FamilyKind, LocalDb, Machine, Spec, Syncer};
use parking_lot::Mutex;

use super::{
    PositionLog, RocksDbDeliveryStateStore, RocksDbOffsetStore,
    keys::{BOOTS, CURSORS, FORMAT, LEDGER, NEXT_GROUP, SECRET},
};

/// What messages call it; `decisions` of the failure matrix quote it.
pub(super) const NAME: &str = "offset store";
const FORMAT_VERSION: u32 = 1;

/// Where the position database is kept.
#[derive(Clone, Debug)]
pub struct PositionsSettings {
    /// Its folder (`eventmesh.offset.path`).
    pub path: PathBuf,
}

/// The open position database.
pub struct Positions {
    db: Arc<LocalDb>,
    log: PositionLog,
    boots: Epoch,
    secret: [u8; 32],
    groups: Mutex<()>,
    syncer: Mutex<Option<Syncer>>,
}

const FAMILIES: &[Family] =
    &[Family { name: CURSORS, kind: FamilyKind::Rows }, Family { name: LEDGER, kind: FamilyKind::Rows }];

impl Positions {
    /// Opens the database, making it when there is none, and counts this boot. Blocks.
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
        let boots = Epoch(number(&db, BOOTS)? + 1);
        let secret = secret(&db)?;
        let mut batch = Batch::new();
        batch.put("default", BOOTS, boots.0.to_be_bytes());
        batch.put("default", SECRET, secret);
        db.write(&batch, Durability::Synced)?;
        let log = PositionLog::start(db.clone(), signals);
        let syncer = Syncer::spawn(db.clone(), Duration::from_secs(1), || ());
        Ok(Self { db, log, boots, secret, groups: Mutex::new(()), syncer: Mutex::new(Some(syncer)) })
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

    /// How often this database was opened, this time included: the epoch of an instance that stands alone.
    pub fn boots(&self) -> Epoch {
        self.boots
    }

    /// The key of the delivery ids' MAC: random, made with the database, never shown.
    pub fn secret(&self) -> [u8; 32] {
        self.secret
    }

    /// A group number that was never given before; durable when it returns. Blocks for a device sync.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub fn new_group(&self) -> Result<u64, BackendError> {
        let _one_at_a_time = self.groups.lock();
        let next = number(&self.db, NEXT_GROUP)? + 1;
        let mut batch = Batch::new();
        batch.put("default", NEXT_GROUP, next.to_be_bytes());
        self.db.write(&batch, Durability::Synced)?;
        Ok(next)
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
        Some(bytes) if bytes == FORMAT_VERSION.to_be_bytes() => Ok(()),
        Some(bytes) => {
            Err(BackendError::new(BackendErrorKind::Refused, NAME, "opening").with_source(format!(
                "the offset store at {} has format {bytes:?}, this release reads {FORMAT_VERSION}",
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

fn secret(db: &LocalDb) -> Result<[u8; 32], BackendError> {
    if let Some(bytes) = db.get("default", SECRET)? {
        return bytes.try_into().map_err(|_| damaged(SECRET));
    }
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| {
        BackendError::new(BackendErrorKind::Unavailable, NAME, "drawing a key").with_source(error.to_string())
    })?;
    Ok(secret)
}

fn damaged(key: &[u8]) -> BackendError {
    BackendError::new(BackendErrorKind::Corrupt, NAME, "opening")
        .with_source(format!("the value of {} is damaged", String::from_utf8_lossy(key)))
}
