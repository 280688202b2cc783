//! One local database: opened whole or not at all, written with a named durability, closed flushed.
//!
//! After a write that failed RocksDB refuses every further one. When the disk was full it resumes by itself some
//! seconds after space was freed; after any other failure, and when it does not, the database has to be closed and
//! opened again: [`LocalDb::heal`] does that behind this handle, once a file can be written in its folder. Readers
//! wait meanwhile. When a file is damaged, opening fails with the store's name, its path and the reason; nothing is
//! wiped or repaired.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use mesh_base::{BackendError, BackendErrorKind};
use parking_lot::RwLock;
use rocksdb::{
    BlockBasedOptions, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, DBRecoveryMode,
    Direction, IteratorMode, LogLevel, Options, ReadOptions, WriteBatch, WriteOptions,
};

use crate::{
    Batch, Machine,
    batch::Kind,
    error::{backend_error, is_no_space},
    marker::Marker,
};

/// How often a probe of a database that ran out of space is refused, although there is space, before it is taken for
/// one that does not resume by itself. Probes come about twice a second.
const RESUMES_WITHIN: u32 = 40;
/// How long closing waits for those that read. Readers that come then wait as long.
const READERS_LEAVE_WITHIN: Duration = Duration::from_millis(250);
/// What a probe of the folder writes.
const PROBE_BYTES: usize = 4_096;

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

/// How a database came to take writes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what a reopened database holds may differ from what was in memory"]
pub enum Healed {
    /// It took the probe as it was.
    Resumed,
    /// It was closed and opened again: writes that had failed may be in it now.
    Reopened,
}

/// An open local database.
pub struct LocalDb {
    spec: Spec,
    machine: Machine,
    state: RwLock<State>,
    marked: AtomicU64,
    /// A write or a sync failed, and no write has succeeded since.
    suspect: AtomicBool,
    /// How many probes were refused since it ran out of space.
    refused: AtomicU32,
}

enum State {
    Open(Open),
    /// It was closed after a failed write and could not be opened again yet.
    Closed(BackendError),
}

/// RocksDB's handle and the marker beside it.
struct Open {
    db: DB,
    marker: Marker,
}

impl LocalDb {
    /// Opens the database, making it when its folder holds none.
    ///
    /// # Errors
    /// Always with the text `failed to open RocksDB <name> at <path>` and the reason: `Corrupt` when a
    /// file is damaged or missing or synced data was lost, `Full` or `Unavailable` when the folder
    /// cannot be written. Nothing is removed.
    pub fn open(spec: &Spec, machine: &Machine) -> Result<Self, BackendError> {
        let open = Open::new(spec, machine)?;
        let database = Self {
            spec: spec.clone(),
            machine: machine.clone(),
            state: RwLock::new(State::Open(open)),
            marked: AtomicU64::new(u64::MAX),
            suspect: AtomicBool::new(false),
            refused: AtomicU32::new(0),
        };
        database.sync()?;
        Ok(database)
    }

    /// What messages call it.
    pub fn name(&self) -> &'static str {
        self.spec.name
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.spec.path
    }

    /// Whether a write or a sync has failed and no write has succeeded since.
    pub fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Acquire)
    }

    /// Writes a batch as one atomic effect. Blocks; with [`Durability::Synced`] for a device sync.
    ///
    /// # Errors
    /// After an error the batch may or may not come back at the next open: a caller that keeps a view of the
    /// database in memory reads it again. Further writes fail until [`LocalDb::heal`] has succeeded, or RocksDB
    /// has resumed by itself after a full disk.
    ///
    /// # Panics
    /// When the spec does not name a family of the batch.
    pub fn write(&self, batch: &Batch, durability: Durability) -> Result<(), BackendError> {
        let written = self.with(|open| open.write(self.spec.name, batch, durability));
        self.suspect.store(written.is_err(), Ordering::Release);
        written
    }

    /// Tries to make the database take writes again after one has failed: writes `probe`, synced; if that is refused
    /// and its folder can be written, closes the database, opens it again, and writes `probe` before anything else can
    /// be read or written. To be called about twice a second until it succeeds. Blocks.
    ///
    /// # Errors
    /// It takes no writes yet. While it cannot be opened, everything else fails too.
    pub fn heal(&self, probe: &Batch) -> Result<Healed, BackendError> {
        if matches!(&*self.state.read(), State::Open(_)) {
            match self.write(probe, Durability::Synced) {
                Ok(()) => {
                    self.refused.store(0, Ordering::Release);
                    return Ok(Healed::Resumed);
                }
                Err(error) if self.resumes_by_itself(&error) => return Err(error),
                Err(_) => {}
            }
        }
        self.try_folder()?;
        self.reopen(probe)?;
        Ok(Healed::Reopened)
    }

    /// Whether RocksDB is to be left to itself: it ran out of space, and there is none or it has not had its time.
    fn resumes_by_itself(&self, error: &BackendError) -> bool {
        if !is_no_space(error) {
            return false;
        }
        let needed = 2 * self.spec.write_buffer_bytes as u64;
        let free = rustix::fs::statvfs(&self.spec.path).map_or(0, |disk| disk.f_bavail * disk.f_frsize);
        free < needed || self.refused.fetch_add(1, Ordering::AcqRel) < RESUMES_WITHIN
    }

    /// Makes, syncs and removes a file in the folder: a database is not closed that could not be opened again.
    fn try_folder(&self) -> Result<(), BackendError> {
        let path = self.spec.path.join("PROBE");
        let tried = fs::File::create(&path)
            .and_then(|mut file| {
                io::Write::write_all(&mut file, &[0; PROBE_BYTES])?;
                file.sync_all()
            })
            .and_then(|()| fs::remove_file(&path));
        tried.map_err(|error| {
            BackendError::new(kind_of(&error), self.spec.name, "trying its folder").with_source(error)
        })
    }

    fn reopen(&self, probe: &Batch) -> Result<(), BackendError> {
        let busy = || BackendError::new(BackendErrorKind::Unavailable, self.spec.name, "opening again");
        let mut state = self
            .state
            .try_write_for(READERS_LEAVE_WITHIN)
            .ok_or_else(|| busy().with_source("it is being read"))?;
        // The old handle goes first: one process can have a database open once.
        *state = State::Closed(busy());
        let opened = Open::new(&self.spec, &self.machine).and_then(|open| {
            open.write(self.spec.name, probe, Durability::Synced)?;
            Ok(open)
        });
        match opened {
            Ok(open) => {
                *state = State::Open(open);
                self.marked.store(u64::MAX, Ordering::Release);
                self.refused.store(0, Ordering::Release);
                self.suspect.store(false, Ordering::Release);
                tracing::info!(store = self.spec.name, "opened again after a failed write");
                Ok(())
            }
            Err(error) => {
                *state = State::Closed(error.copy());
                Err(error)
            }
        }
    }

    fn with<T>(&self, work: impl FnOnce(&Open) -> Result<T, BackendError>) -> Result<T, BackendError> {
        match &*self.state.read() {
            State::Open(open) => work(open),
            State::Closed(error) => Err(error.copy()),
        }
    }

    /// The value under `key`.
    ///
    /// # Errors
    /// `Corrupt` when a checksum does not hold; never an absent value in its place.
    pub fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, BackendError> {
        self.with(|open| {
            open.db
                .get_cf(open.family(family), key)
                .map_err(|error| backend_error(error, self.spec.name, "reading"))
        })
    }

    /// Calls `each` with every key and value from `from` on, in order, until it answers `false` or the
    /// keys reach `to`. `each` must not use the database.
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
        // Rows are scanned when something is loaded, and then kept in memory by the loader.
        let of_rows = |known: &&Family| known.name == family && known.kind == FamilyKind::Rows;
        options.fill_cache(!self.spec.families.iter().any(|known| of_rows(&known)));
        let mode = IteratorMode::From(from, Direction::Forward);
        self.with(|open| {
            for item in open.db.iterator_cf_opt(open.family(family), options, mode) {
                let (key, value) = item.map_err(|error| backend_error(error, self.spec.name, "scanning"))?;
                if !each(&key, &value) {
                    break;
                }
            }
            Ok(())
        })
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
        self.with(|open| {
            let mut iterator = open.db.raw_iterator_cf(open.family(family));
            iterator.seek_for_prev(below);
            while iterator.valid() && iterator.key() == Some(below) {
                iterator.prev();
            }
            iterator.status().map_err(|error| backend_error(error, self.spec.name, "scanning"))?;
            Ok(iterator.item().map(|(key, value)| (key.into(), value.into())))
        })
    }

    /// Lets compaction drop what range deletions covered, now. Blocks for as long as that takes.
    pub fn compact(&self, family: &str, from: &[u8], to: &[u8]) {
        if let State::Open(open) = &*self.state.read() {
            open.db.compact_range_cf(open.family(family), Some(from), Some(to));
        }
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
        self.with(|open| {
            let sequence = open.db.latest_sequence_number();
            if self.marked.load(Ordering::Acquire) == sequence {
                return Ok(());
            }
            if let Err(error) = open.db.flush_wal(true) {
                self.suspect.store(true, Ordering::Release);
                return Err(backend_error(error, self.spec.name, "syncing"));
            }
            open.marker.write(&self.spec.path, sequence).map_err(|error| {
                BackendError::new(BackendErrorKind::Unavailable, self.spec.name, "marking what is synced")
                    .with_source(error)
            })?;
            self.marked.store(sequence, Ordering::Release);
            Ok(())
        })
    }

    /// The number of the last write; `None` while it is closed after a failed one.
    pub fn sequence(&self) -> Option<u64> {
        match &*self.state.read() {
            State::Open(open) => Some(open.db.latest_sequence_number()),
            State::Closed(_) => None,
        }
    }

    /// A numeric property of RocksDB summed over its column families, `None` when it has none of that name.
    pub fn property(&self, name: &str, families: &[&str]) -> Option<u64> {
        let state = self.state.read();
        let State::Open(open) = &*state else { return None };
        families
            .iter()
            .map(|family| open.db.property_int_value_cf(open.family(family), name).ok().flatten())
            .sum()
    }
}

impl Open {
    fn new(spec: &Spec, machine: &Machine) -> Result<Self, BackendError> {
        let failed = |kind: BackendErrorKind, reason: String| {
            BackendError::new(kind, spec.name, "opening").with_source(format!(
                "failed to open RocksDB {} at {}: {reason}",
                spec.name,
                spec.path.display()
            ))
        };
        let io = |error: io::Error| {
            let kind = kind_of(&error);
            failed(kind, advised(kind, &error.to_string()))
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
        if let Some(foreign) = foreign(&spec.path).map_err(io)? {
            let reason = format!(
                "it holds {foreign}, which is not of this database; give the database a folder of its own"
            );
            return Err(failed(BackendErrorKind::Refused, reason));
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
        Ok(Self { db, marker })
    }

    fn family(&self, name: &str) -> &ColumnFamily {
        self.db.cf_handle(name).expect("the spec names this column family")
    }

    fn write(&self, name: &'static str, batch: &Batch, durability: Durability) -> Result<(), BackendError> {
        let mut native = WriteBatch::with_capacity_bytes(batch.native_bytes());
        for (kind, family, key, other) in batch.each() {
            let family = self.family(family);
            match kind {
                Kind::Put => native.put_cf(family, key, other),
                Kind::Delete => native.delete_cf(family, key),
                Kind::DeleteRange => native.delete_range_cf(family, key, other),
            }
        }
        let mut options = WriteOptions::default();
        options.set_sync(durability == Durability::Synced);
        self.db.write_opt(native, &options).map_err(|error| backend_error(error, name, "writing"))
    }
}

fn kind_of(error: &io::Error) -> BackendErrorKind {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            BackendErrorKind::Full
        }
        io::ErrorKind::InvalidData => BackendErrorKind::Corrupt,
        _ => BackendErrorKind::Unavailable,
    }
}

impl Drop for LocalDb {
    fn drop(&mut self) {
        if let Err(error) = self.sync() {
            tracing::warn!(store = self.spec.name, error = %error.chain(), "could not sync at close");
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
    failed(mapped.kind(), advised(mapped.kind(), &source_text(&mapped)))
}

/// A reason with what to do about it. Only what is damaged is worth a backup: what the system refuses for now destroys
/// nothing, and wiping the folder would.
fn advised(kind: BackendErrorKind, reason: &str) -> String {
    const REFUSED: [&str; 6] = [
        "Permission denied",
        "Read-only file system",
        "Too many open files",
        "Cannot allocate memory",
        "lock ",
        "locks available",
    ];
    if kind == BackendErrorKind::Full {
        format!("{reason}; the disk is full, nothing was lost: free some space and start again")
    } else if REFUSED.iter().any(|sign| reason.contains(sign)) {
        format!("{reason}; nothing was lost: mend that and start again")
    } else {
        format!("{reason}; restore it from a backup or wipe the folder")
    }
}

fn source_text(error: &BackendError) -> String {
    std::error::Error::source(error).map(ToString::to_string).unwrap_or_default()
}

/// RocksDB makes a new, empty database when only its pointer file is gone. Says what else is there.
fn pointer_is_missing(path: &Path) -> io::Result<Option<String>> {
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

/// What is in the folder of a database that is not there yet, and is of none.
fn foreign(path: &Path) -> io::Result<Option<String>> {
    if path.join("CURRENT").exists() {
        return Ok(None);
    }
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // What a start that was cut off may have left, and what a file system has of its own.
        let is_ours = ["LOCK", "IDENTITY", "PROBE", "lost+found"].contains(&name.as_str())
            || ["LOG", "OPTIONS-"].iter().any(|start| name.starts_with(start))
            || name.ends_with(".dbtmp");
        if !is_ours {
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
    if kind == FamilyKind::Rows {
        // Most rows that are asked for by key are not there yet: no block is read and kept in memory for that.
        table.set_bloom_filter(10.0, false);
    }
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
