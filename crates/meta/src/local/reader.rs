//! How the local store lays out its records, and how they are read.
//!
//! `records`: key → `u64 revision, value`. `default`: `format` → one byte, `revision` → `u64`, the last change,
//! `probe` → nothing, written to find out whether writes are taken again.
//! Numbers are big-endian.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use mesh_base::{BackendError, BackendErrorKind};
use mesh_rocks::{Batch, Durability, Healed, LocalDb};

use crate::{Entry, Listing, Page, Revision, Versioned, WatchEvent, watch::Watchers};

/// What messages and metrics call the backend.
pub(super) const BACKEND: &str = "meta (local)";
/// The family of the records.
pub(super) const RECORDS: &str = "records";
pub(super) const REVISION: &[u8] = b"revision";
const PROBE: &[u8] = b"probe";
const FORMAT_KEY: &[u8] = b"format";
const FORMAT: u8 = 1;
/// A page ends early once its values pass this.
const PAGE_BYTES: usize = 4 << 20;

/// The open database, its last change and who watches it.
pub(super) struct Reader {
    pub(super) db: Arc<LocalDb>,
    /// The last change that is durable and visible.
    pub(super) revision: AtomicU64,
    pub(super) watchers: Watchers,
}

impl Reader {
    /// Checks the format and finds the last change.
    pub(super) fn open(db: Arc<LocalDb>) -> Result<Self, BackendError> {
        match db.get("default", FORMAT_KEY)?.as_deref() {
            Some([FORMAT]) => {}
            Some(other) => {
                return Err(BackendError::new(BackendErrorKind::Refused, BACKEND, "opening").with_source(
                    format!(
                        "failed to open RocksDB {} at {}: its format {other:?} is not format {FORMAT}",
                        db.name(),
                        db.path().display()
                    ),
                ));
            }
            None => {
                let mut batch = Batch::new();
                batch.put("default", FORMAT_KEY, [FORMAT]);
                db.write(&batch, Durability::Synced)?;
            }
        }
        let revision = AtomicU64::new(stored_revision(&db)?);
        Ok(Self { db, revision, watchers: Watchers::default() })
    }

    /// Makes a database that refused a write take writes again, if it can. One that had to be opened again may hold
    /// changes that were answered as failed, and that nobody was told of: every watcher is told to look again.
    pub(super) fn heal(&self) {
        let mut probe = Batch::new();
        probe.put("default", PROBE, []);
        match self.db.heal(&probe) {
            Ok(Healed::Resumed) => tracing::info!(store = self.db.name(), "it takes writes again"),
            Ok(Healed::Reopened) => {
                match stored_revision(&self.db) {
                    Ok(stored) => {
                        self.revision.fetch_max(stored, Ordering::AcqRel);
                    }
                    Err(error) => {
                        tracing::error!(store = self.db.name(), error = %error.chain(), "its revision is unreadable");
                    }
                }
                self.watchers.announce(&WatchEvent::Lost);
            }
            Err(error) => {
                tracing::debug!(store = self.db.name(), error = %error.chain(), "it takes no writes yet");
            }
        }
    }

    pub(super) fn get(&self, key: &str) -> Result<Option<Versioned>, BackendError> {
        self.db.get(RECORDS, key.as_bytes())?.map(|bytes| decode(key, Bytes::from(bytes))).transpose()
    }

    pub(super) fn list(&self, prefix: &str, page: &Page) -> Result<Listing, BackendError> {
        // Taken before the scan, which therefore shows at least this change.
        let revision = Revision(self.revision.load(Ordering::Acquire));
        let max = page.max.max(1);
        let mut from = prefix.as_bytes().to_vec();
        if let Some(after) = &page.after {
            let above = [after.as_bytes(), &[0]].concat();
            from = from.max(above);
        }
        let to = end_of(prefix);
        let mut listing = Listing { revision, entries: Vec::new(), more: false };
        if to.as_ref().is_some_and(|to| from >= *to) {
            return Ok(listing);
        }
        let (mut bytes, mut failure) = (0, None);
        self.db.scan(RECORDS, &from, to.as_deref(), |key, value| {
            if listing.entries.len() >= max || bytes >= PAGE_BYTES {
                listing.more = true;
                return false;
            }
            bytes += value.len();
            let entry = String::from_utf8(key.to_vec()).map_err(|_| corrupt("a key")).and_then(|key| {
                let current = decode(&key, Bytes::copy_from_slice(value))?;
                Ok(Entry { key, current })
            });
            match entry {
                Ok(entry) => listing.entries.push(entry),
                Err(error) => failure = Some(error),
            }
            failure.is_none()
        })?;
        failure.map_or(Ok(listing), Err)
    }
}

fn stored_revision(db: &LocalDb) -> Result<u64, BackendError> {
    match db.get("default", REVISION)? {
        None => Ok(0),
        Some(bytes) => Ok(u64::from_be_bytes(bytes.try_into().map_err(|_| corrupt("revision"))?)),
    }
}

/// The first key above all that start with `prefix`. The last byte of UTF-8 text can always be raised.
fn end_of(prefix: &str) -> Option<Vec<u8>> {
    let mut end = prefix.as_bytes().to_vec();
    *end.last_mut()? += 1;
    Some(end)
}

pub(super) fn encode(revision: Revision, value: &[u8]) -> Vec<u8> {
    [&revision.0.to_be_bytes(), value].concat()
}

fn decode(key: &str, mut bytes: Bytes) -> Result<Versioned, BackendError> {
    if bytes.len() < 8 {
        return Err(corrupt(key));
    }
    let value = bytes.split_off(8);
    let revision = Revision(u64::from_be_bytes((&*bytes).try_into().expect("eight bytes")));
    Ok(Versioned { value, revision })
}

fn corrupt(what: &str) -> BackendError {
    BackendError::new(BackendErrorKind::Corrupt, BACKEND, "reading").with_source(format!("{what} is damaged"))
}
