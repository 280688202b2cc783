//! One local database: opened whole or not at all, written with a named durability, closed flushed.
//!
//! When the disk is full a write fails with `Full`; RocksDB resumes by itself some seconds after space
//! was freed, and the next write succeeds. When a file is damaged, opening fails with the store's name,
//! its path and the reason; nothing is wiped or repaired.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use mesh_base::{BackendError, BackendErrorKind};
use rocksdb::{
    BlockBasedOptions, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, DBRecoveryMode,
    Direction, IteratorMode, LogLevel, Options, ReadOptions, WriteBatch, WriteOptions,
};

use crate::{Machine, error::backend_error, marker::Marker};

/// What a column family holds, which decides how its files are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    /// Small rows that are overwritten and deleted often.
    Rows,
    /// Records that are written once in key order and dropped by range: values live in blob files, so
    /// that compaction moves keys and not bodies.
    Records,
}

/// A column family by name.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: FamilyKind,
}

/// Which database to open.
#[derive(Clone, Debug)]
pub struct Spec {
    /// What messages and metrics call it, as in `failed to open RocksDB <name> at <path>`.
    pub name: &'static str,
    /// Its folder.
    pub path: PathBuf,
    /// Its column families, apart from RocksDB's `default`.
    pub families: &'static [Family],
    /// The size of one memtable in bytes. RocksDB preallocates about 1.1 times this for a write-ahead
    /// log file, so it is also what a full disk can hide.
    pub write_buffer_bytes: usize,
}

/// What a write has reached when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The write-ahead log of the operating system: kept after the process is killed.
    Logged,
    /// The disk: kept after power is lost.
    Synced,
}

/// An open local database.
pub struct LocalDb {
    db: DB,
    name: &'static str,
    path: PathBuf,
    marker: Marker,
    marked: AtomicU64,
    /// A write or a sync failed, and no write has succeeded since.
    suspect: AtomicBool,
}

impl LocalDb {
    /// Opens the database, making it when its folder holds none.
    ///
    /// # Errors
    /// Always with the text `failed to open RocksDB <name> at <path>` and the reason: `Corrupt` when a
    /// file is damaged or missing or synced data was lost, `Full` or `Unavailable` when the folder
    /// cannot be written. Nothing is removed.
    pub fn open(spec: &Spec, machine: &Machine) -> Result<Self, BackendError> {
        let failed = |kind: BackendErrorKind, reason: String| {
            BackendError::new(kind, spec.name, "opening").with_source(format!(
                "failed to open RocksDB {} at {}: {reason}",
                spec.name,
                spec.path.display()
            ))
        };
        let io = |error: std::io::Error| {
            let kind = match error.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => BackendErrorKind::Full,
                std::io::ErrorKind::InvalidData => BackendErrorKind::Corrupt,
                _ => BackendErrorKind::Unavailable,
            };
            failed(kind, error.to_string())
        };
        fs::create_dir_all(&spec.path).map_err(io)?;
        let vouched = Marker::read(&spec.path).map_err(io)?;
        if let Some(missing) = pointer_is_missing(&spec.path).map_err(io)? {
            return Err(failed(
                BackendErrorKind::Corrupt,
                format!(
                    "it holds {missing} but no CURRENT file; restore it from a backup or wipe the folder"
                ),
            ));
        }
        if let Some(vouched) = &vouched {
            // Everything is judged before RocksDB may write: opening deletes logs and tables it takes for done.
            vouched.check_manifest(&spec.path).map_err(|error| {
                let reason = format!("{error}; restore it from a backup or wipe the folder");
                failed(BackendErrorKind::Corrupt, reason)
            })?;
            let looked_at = DB::open_cf_descriptors_read_only(
                &database_options(spec, machine),
                &spec.path,
                descriptors(spec, machine),
                false,
            )
            .map_err(|error| refused(&failed, error, spec))?;
            let recovered = looked_at.latest_sequence_number();
            if recovered < vouched.sequence {
                let reason = format!(
                    "{} writes were synced but only {recovered} could be recovered: its write-ahead log is damaged; \
                     restore it from a backup or wipe the folder",
                    vouched.sequence
                );
                return Err(failed(BackendErrorKind::Corrupt, reason));
            }
        }
        let db =
            DB::open_cf_descriptors(&database_options(spec, machine), &spec.path, descriptors(spec, machine))
                .map_err(|error| refused(&failed, error, spec))?;
        let marker = Marker::open(&spec.path).map_err(io)?;
        let open = Self {
            db,
            name: spec.name,
            path: spec.path.clone(),
            marker,
            marked: AtomicU64::new(u64::MAX),
            suspect: AtomicBool::new(false),
        };
        open.sync()?;
        Ok(open)
    }

    /// What messages call it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A column family named in the [`Spec`].
    ///
    /// # Panics
    /// When the spec did not name it.
    pub fn family(&self, name: &str) -> &ColumnFamily {
        self.db.cf_handle(name).expect("the spec names this column family")
    }

    /// Writes a batch as one atomic effect. Blocks; with [`Durability::Synced`] for a device sync.
    ///
    /// # Errors
    /// After an error the batch may or may not come back at the next open: whoever keeps a view of the
    /// database in memory reads it again.
    pub fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), BackendError> {
        let mut options = WriteOptions::default();
        options.set_sync(durability == Durability::Synced);
        let written = self.db.write_opt(batch, &options);
        self.suspect.store(written.is_err(), Ordering::Release);
        written.map_err(|error| backend_error(error, self.name, "writing"))
    }

    /// The value under `key`.
    ///
    /// # Errors
    /// `Corrupt` when a checksum does not hold; never an absent value in its place.
    pub fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, BackendError> {
        self.db.get_cf(self.family(family), key).map_err(|error| backend_error(error, self.name, "reading"))
    }

    /// Calls `each` with every key and value from `from` on, in order, until it answers `false` or the
    /// keys reach `to`.
    ///
    /// # Errors
    /// `Corrupt` when a checksum does not hold.
    pub fn scan(
        &self,
        family: &str,
        from: &[u8],
        to: Option<&[u8]>,
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), BackendError> {
        let mut options = ReadOptions::default();
        if let Some(to) = to {
            options.set_iterate_upper_bound(to);
        }
        let mode = IteratorMode::From(from, Direction::Forward);
        for item in self.db.iterator_cf_opt(self.family(family), options, mode) {
            let (key, value) = item.map_err(|error| backend_error(error, self.name, "scanning"))?;
            if !each(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    /// The last key below `below`, with its value.
    ///
    /// # Errors
    /// `Corrupt` when a checksum does not hold.
    #[expect(clippy::type_complexity, reason = "a key and its value")]
    pub fn last_below(
        &self,
        family: &str,
        below: &[u8],
    ) -> Result<Option<(Box<[u8]>, Box<[u8]>)>, BackendError> {
        let mut iterator = self.db.raw_iterator_cf(self.family(family));
        iterator.seek_for_prev(below);
        while iterator.valid() && iterator.key() == Some(below) {
            iterator.prev();
        }
        iterator.status().map_err(|error| backend_error(error, self.name, "scanning"))?;
        Ok(iterator.item().map(|(key, value)| (key.into(), value.into())))
    }

    /// Lets compaction drop what range deletions covered, now. Blocks for as long as that takes.
    pub fn compact(&self, family: &str, from: &[u8], to: &[u8]) {
        self.db.compact_range_cf(self.family(family), Some(from), Some(to));
    }

    /// Puts everything written so far on the disk and moves the marker. Blocks for two or three device syncs,
    /// or for none when nothing was written since. After a failed write it does nothing until a write has
    /// succeeded: syncing a log that is in error makes RocksDB give up recovering by itself.
    ///
    /// # Errors
    /// As [`LocalDb::write`].
    pub fn sync(&self) -> Result<(), BackendError> {
        if self.suspect.load(Ordering::Acquire) {
            return Ok(());
        }
        let sequence = self.db.latest_sequence_number();
        if self.marked.load(Ordering::Acquire) == sequence {
            return Ok(());
        }
        if let Err(error) = self.db.flush_wal(true) {
            self.suspect.store(true, Ordering::Release);
            return Err(backend_error(error, self.name, "syncing"));
        }
        self.marker.write(&self.path, sequence).map_err(|error| {
            BackendError::new(BackendErrorKind::Unavailable, self.name, "marking what is synced")
                .with_source(error)
        })?;
        self.marked.store(sequence, Ordering::Release);
        Ok(())
    }

    /// The number of the last write.
    pub fn sequence(&self) -> u64 {
        self.db.latest_sequence_number()
    }

    /// A numeric property of RocksDB summed over its column families, `None` when it has none of that name.
    pub fn property(&self, name: &str, families: &[&str]) -> Option<u64> {
        families
            .iter()
            .map(|family| self.db.property_int_value_cf(self.family(family), name).ok().flatten())
            .sum()
    }
}

impl Drop for LocalDb {
    fn drop(&mut self) {
        if let Err(error) = self.sync() {
            tracing::warn!(store = self.name, error = %error.chain(), "could not sync at close");
        }
    }
}

fn descriptors(spec: &Spec, machine: &Machine) -> Vec<ColumnFamilyDescriptor> {
    std::iter::once("default")
        .map(|name| Family { name, kind: FamilyKind::Rows })
        .chain(spec.families.iter().copied())
        .map(|family| ColumnFamilyDescriptor::new(family.name, family_options(family.kind, spec, machine)))
        .collect()
}

fn refused(
    failed: &dyn Fn(BackendErrorKind, String) -> BackendError,
    error: rocksdb::Error,
    spec: &Spec,
) -> BackendError {
    let mapped = backend_error(error, spec.name, "opening");
    failed(mapped.kind(), format!("{}; restore it from a backup or wipe the folder", source_text(&mapped)))
}

fn source_text(error: &BackendError) -> String {
    std::error::Error::source(error).map(ToString::to_string).unwrap_or_default()
}

/// RocksDB makes a new, empty database when only its pointer file is gone. Says what else is there.
fn pointer_is_missing(path: &Path) -> std::io::Result<Option<String>> {
    if path.join("CURRENT").exists() {
        return Ok(None);
    }
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let of_rocksdb = [".sst", ".log", ".blob"].iter().any(|ending| name.ends_with(ending));
        if of_rocksdb || name.starts_with("MANIFEST") || name == "SYNCED" {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn database_options(spec: &Spec, machine: &Machine) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_paranoid_checks(true);
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    options.set_write_buffer_manager(&machine.write_buffers);
    options.set_max_background_jobs(2);
    options.set_max_open_files(256);
    options.set_max_total_wal_size(4 * spec.write_buffer_bytes as u64);
    options.set_max_manifest_file_size(4 << 20);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(1 << 20);
    options.set_log_level(LogLevel::Warn);
    options.set_avoid_unnecessary_blocking_io(true);
    options
}

fn family_options(kind: FamilyKind, spec: &Spec, machine: &Machine) -> Options {
    let mut options = Options::default();
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&machine.block_cache);
    table.set_cache_index_and_filter_blocks(true);
    table.set_format_version(5);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_size(spec.write_buffer_bytes);
    options.set_max_write_buffer_number(3);
    match kind {
        FamilyKind::Rows => options.set_compression_type(DBCompressionType::Lz4),
        FamilyKind::Records => {
            options.set_compression_type(DBCompressionType::Lz4);
            options.set_enable_blob_files(true);
            options.set_min_blob_size(0);
            options.set_blob_file_size(64 << 20);
            options.set_blob_compression_type(DBCompressionType::Lz4);
            options.set_enable_blob_gc(true);
            // Old records go by range, whole files at a time: only the very oldest files are worth copying from.
            options.set_blob_gc_age_cutoff(0.1);
            options.set_blob_gc_force_threshold(0.5);
            // Flushed files hold keys that hardly overlap: merging them often would only cost.
            options.set_level_zero_file_num_compaction_trigger(16);
            options.set_level_zero_slowdown_writes_trigger(48);
            options.set_level_zero_stop_writes_trigger(64);
        }
    }
    options
}

#[cfg(test)]
mod tests;
