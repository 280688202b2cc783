//! The driver `local`: one RocksDB in the data directory, for one process.
//!
//! One thread makes all changes. It takes what is queued, decides every comparison in the order of arrival,
//! writes the changes as one batch, syncs it, tells the watchers and then answers: so a compare-and-set
//! needs no lock and many writers share a device sync. When the batch cannot be written all of them fail
//! and nobody is told of a change. Once a second after that the thread tries whether the database takes writes again,
//! and opens it again where that is what it takes. When it cannot be opened, opening fails and names its path.

mod reader;
mod writer;

use std::{path::PathBuf, sync::Arc, thread::JoinHandle, time::Duration};

use bytes::Bytes;
use mesh_base::{BackendError, BackendErrorKind, Tasks};
use mesh_rocks::{Family, FamilyKind, LocalDb, Machine, Spec, Syncer};
use tokio::sync::mpsc;

use crate::{
    BoxFuture, Delete, Listing, MetaDriver, Page, PutIfAbsent, Remove, Revision, Swap, Versioned, Watch,
    change::{self, Effect},
};
use reader::{BACKEND, RECORDS, Reader};
use writer::{Command, Job, Writer};

/// What messages call the database.
const NAME: &str = "meta store";
const FAMILIES: &[Family] = &[Family { name: RECORDS, kind: FamilyKind::Rows }];
/// The largest value. Records are a few hundred bytes; it keeps a mistake out of the write-ahead log.
const VALUE_LIMIT: usize = 1 << 20;
/// How many changes wait before their callers wait for a place.
const QUEUE: usize = 1_024;
/// How often the marker of what is synced moves.
const MARK_EVERY: Duration = Duration::from_secs(1);

/// Where the local store is and how much memory it takes.
#[derive(Clone, Debug)]
pub struct LocalMetaSettings {
    /// Its folder.
    pub path: PathBuf,
    /// The size of its memtable in bytes, which is also what RocksDB preallocates for its log.
    pub write_buffer_bytes: usize,
}

impl LocalMetaSettings {
    /// The store in `path` with a memtable of 2 MiB.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), write_buffer_bytes: 2 << 20 }
    }
}

/// The local driver. Dropping it writes what is queued and closes the database.
pub struct LocalMeta {
    commands: Option<mpsc::Sender<Job>>,
    writer: Option<JoinHandle<()>>,
    reader: Arc<Reader>,
    _syncer: Syncer,
}

impl LocalMeta {
    /// Opens the store and starts its threads. Blocks.
    ///
    /// # Errors
    /// `failed to open RocksDB meta store at <path>` and the reason, with the kind as [`LocalDb::open`] says;
    /// `Refused` when the store was written by a newer format.
    pub fn open(settings: &LocalMetaSettings, machine: &Machine) -> Result<Self, BackendError> {
        let spec = Spec {
            name: NAME,
            path: settings.path.clone(),
            families: FAMILIES,
            write_buffer_bytes: settings.write_buffer_bytes,
        };
        let db = Arc::new(LocalDb::open(&spec, machine)?);
        let reader = Arc::new(Reader::open(db.clone())?);
        let (commands, queue) = mpsc::channel(QUEUE);
        let writer = Writer::new(reader.clone());
        let thread = Tasks::thread("meta-writer", move || writer.run(queue));
        let (suspect, heal) = (db.clone(), commands.downgrade());
        let syncer = Syncer::spawn(db, MARK_EVERY, move || {
            if suspect.is_suspect()
                && let Some(commands) = heal.upgrade()
                && commands.try_send(Job::Heal).is_err()
            {
                tracing::trace!("the queue is full: it is told to heal the next time");
            }
        });
        Ok(Self { commands: Some(commands), writer: Some(thread), reader, _syncer: syncer })
    }

    /// Hands a change to the writer and waits for what came of it.
    async fn change<T: Send + 'static>(
        &self,
        operation: &'static str,
        key: &str,
        rule: impl FnOnce(Option<&Versioned>, Revision) -> (Effect, T) + Send + 'static,
    ) -> Result<T, BackendError> {
        let closed =
            || BackendError::new(BackendErrorKind::Unavailable, BACKEND, operation).with_source("closed");
        let (command, answered) = Command::new(key, rule);
        let commands = self.commands.as_ref().ok_or_else(closed)?;
        commands.send(Job::Change(command)).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    async fn read<T: Send + 'static>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Reader) -> Result<T, BackendError> + Send + 'static,
    ) -> Result<T, BackendError> {
        let reader = self.reader.clone();
        tokio::task::spawn_blocking(move || read(&reader)).await.map_err(|error| {
            BackendError::new(BackendErrorKind::Unavailable, BACKEND, operation).with_source(error)
        })?
    }
}

impl MetaDriver for LocalMeta {
    fn name(&self) -> &'static str {
        BACKEND
    }

    fn value_limit(&self) -> usize {
        VALUE_LIMIT
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Versioned>, BackendError>> {
        let key = key.to_owned();
        Box::pin(self.read("get", move |reader| reader.get(&key)))
    }

    fn get_with_prefix<'a>(
        &'a self,
        prefix: &'a str,
        page: &'a Page,
    ) -> BoxFuture<'a, Result<Listing, BackendError>> {
        let (prefix, page) = (prefix.to_owned(), page.clone());
        Box::pin(self.read("get_with_prefix", move |reader| reader.list(&prefix, &page)))
    }

    fn put_if_absent<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
    ) -> BoxFuture<'a, Result<PutIfAbsent, BackendError>> {
        Box::pin(self.change("put_if_absent", key, change::put_if_absent(value)))
    }

    fn try_acquire<'a>(
        &'a self,
        key: &'a str,
        expected: &'a [u8],
        new: Bytes,
    ) -> BoxFuture<'a, Result<Swap, BackendError>> {
        let rule = change::try_acquire(Bytes::copy_from_slice(expected), new);
        Box::pin(self.change("try_acquire", key, rule))
    }

    fn try_remove<'a>(
        &'a self,
        key: &'a str,
        expected: &'a [u8],
    ) -> BoxFuture<'a, Result<Remove, BackendError>> {
        let rule = change::try_remove(Bytes::copy_from_slice(expected));
        Box::pin(self.change("try_remove", key, rule))
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<Revision, BackendError>> {
        Box::pin(self.change("put", key, change::put(value)))
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Delete, BackendError>> {
        Box::pin(self.change("delete", key, change::delete()))
    }

    fn watch<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Watch, BackendError>> {
        Box::pin(async move { Ok(self.reader.watchers.watch(prefix)) })
    }
}

impl Drop for LocalMeta {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.writer.take()
            && thread.join().is_err()
        {
            tracing::error!("the Meta writer thread panicked");
        }
    }
}

#[cfg(test)]
mod tests;
