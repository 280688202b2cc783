//! Typed access to the records of one kind, and what an answer that got lost means.
//!
//! Every write carries a stamp of its own. When a conditional write fails as unavailable it may have
//! happened: the key is read once more, and a value with our stamp is our success. If that read fails too
//! the caller gets the first error and repeats the operation.

use std::{marker::PhantomData, sync::Arc};

use mesh_base::{BackendError, BackendErrorKind, Chance};
use mesh_meta::{MetaStore, Page, PutIfAbsent, Remove, Revision, Swap, Versioned};

use super::{
    Writer,
    record::{self, SharedRecord, Stored},
};

/// How a creation ended.
#[derive(Clone, Debug)]
#[must_use = "the change may not have been made"]
pub enum Created<T> {
    /// The record is there now.
    Written(Arc<Stored<T>>),
    /// This was there before; nothing was changed.
    AlreadyThere(Arc<Stored<T>>),
}

/// How a compare-and-set of a record ended.
#[derive(Clone, Debug)]
#[must_use = "the change may not have been made"]
pub enum Replaced<T> {
    /// The new record is there now.
    Replaced(Arc<Stored<T>>),
    /// This is there instead, or nothing; nothing was changed.
    Stale(Option<Arc<Stored<T>>>),
}

/// How a conditional removal ended.
#[derive(Clone, Debug)]
#[must_use = "the change may not have been made"]
pub enum Removed<T> {
    /// The record is gone.
    Removed(Revision),
    /// This is there instead, or nothing; nothing was changed.
    Stale(Option<Arc<Stored<T>>>),
}

/// The records of one kind in Meta.
#[derive(Clone, Debug)]
pub(crate) struct Records<T> {
    meta: MetaStore,
    writer: Writer,
    kind: PhantomData<fn() -> T>,
}

impl<T: SharedRecord> Records<T> {
    pub(crate) fn new(meta: MetaStore, writer: Writer) -> Self {
        Self { meta, writer, kind: PhantomData }
    }

    pub(crate) fn meta(&self) -> &MetaStore {
        &self.meta
    }

    pub(crate) fn chance(&self) -> &Chance {
        self.writer.chance()
    }

    pub(crate) async fn get(&self, id: &T::Id) -> Result<Option<Arc<Stored<T>>>, BackendError> {
        current("reading", self.meta.get(&T::key(id)).await?)
    }

    pub(crate) async fn create(&self, id: &T::Id, record: T) -> Result<Created<T>, BackendError> {
        let (key, ours) = (T::key(id), self.stored(record));
        let there = match self.meta.put_if_absent(&key, ours.raw.clone()).await {
            Ok(PutIfAbsent::Written(revision)) => return Ok(Created::Written(at(ours, revision))),
            Ok(PutIfAbsent::AlreadyThere(there)) => there,
            Err(error) => match self.read_again(&key, error).await? {
                (error, None) => return Err(error),
                (_, Some(there)) => there,
            },
        };
        if there.value == ours.raw {
            return Ok(Created::Written(at(ours, there.revision)));
        }
        Ok(Created::AlreadyThere(record::decode(there).map_err(|error| error.into_error("creating"))?))
    }

    pub(crate) async fn replace(
        &self,
        id: &T::Id,
        expected: &Stored<T>,
        record: T,
    ) -> Result<Replaced<T>, BackendError> {
        let (key, ours) = (T::key(id), self.stored(record));
        let there = match self.meta.try_acquire(&key, &expected.raw, ours.raw.clone()).await {
            Ok(Swap::Swapped(revision)) => return Ok(Replaced::Replaced(at(ours, revision))),
            Ok(Swap::Stale(there)) => there,
            Err(error) => {
                let (error, there) = self.read_again(&key, error).await?;
                if there.as_ref().is_some_and(|there| there.value == expected.raw) {
                    return Err(error);
                }
                there
            }
        };
        match there {
            Some(there) if there.value == ours.raw => Ok(Replaced::Replaced(at(ours, there.revision))),
            there => Ok(Replaced::Stale(current("replacing", there)?)),
        }
    }

    /// The last write wins; an error says that it may have happened.
    pub(crate) async fn put(&self, id: &T::Id, record: T) -> Result<Arc<Stored<T>>, BackendError> {
        let ours = self.stored(record);
        let revision = self.meta.put(&T::key(id), ours.raw.clone()).await?;
        Ok(at(ours, revision))
    }

    pub(crate) async fn remove(&self, id: &T::Id, expected: &Stored<T>) -> Result<Removed<T>, BackendError> {
        let key = T::key(id);
        match self.meta.try_remove(&key, &expected.raw).await {
            Ok(Remove::Removed(revision)) => Ok(Removed::Removed(revision)),
            Ok(Remove::Stale(there)) => Ok(Removed::Stale(current("removing", there)?)),
            Err(error) => match self.read_again(&key, error).await? {
                (_, None) => Ok(Removed::Removed(expected.revision)),
                (error, Some(there)) if there.value == expected.raw => Err(error),
                (_, Some(there)) => Ok(Removed::Stale(current("removing", Some(there))?)),
            },
        }
    }

    /// One page below `prefix`; what cannot be read is logged and left out. Gives the records and the key to
    /// go on after, if there is more.
    pub(crate) async fn page(&self, prefix: &str, page: &Page) -> Result<RecordPage<T>, BackendError> {
        let listing = self.meta.get_with_prefix(prefix, page).await?;
        let next = listing.entries.last().filter(|_| listing.more).map(|entry| entry.key.clone());
        let records = listing
            .entries
            .into_iter()
            .filter_map(|entry| record::decode_or_skip(&entry.key, entry.current))
            .collect();
        Ok(RecordPage { records, next })
    }

    /// The record with a stamp, not written yet.
    fn stored(&self, record: T) -> Stored<T> {
        let stamp = self.writer.stamp();
        let raw = record::encode(&record, &stamp);
        Stored { record, stamp, revision: Revision::default(), raw }
    }

    /// What the key holds after a write that may or may not have happened. An error that says that it did
    /// not is given back at once.
    async fn read_again(
        &self,
        key: &str,
        error: BackendError,
    ) -> Result<(BackendError, Option<Versioned>), BackendError> {
        if error.kind() != BackendErrorKind::Unavailable {
            return Err(error);
        }
        match self.meta.get(key).await {
            Ok(there) => Ok((error, there)),
            Err(_) => Err(error),
        }
    }
}

/// One page of records.
pub(crate) struct RecordPage<T: SharedRecord> {
    pub(crate) records: Vec<(T::Id, Arc<Stored<T>>)>,
    pub(crate) next: Option<String>,
}

/// A record that was on its way out, with the change that wrote it.
fn at<T>(mut ours: Stored<T>, revision: Revision) -> Arc<Stored<T>> {
    ours.revision = revision;
    Arc::new(ours)
}

fn current<T: SharedRecord>(
    operation: &'static str,
    there: Option<Versioned>,
) -> Result<Option<Arc<Stored<T>>>, BackendError> {
    there.map(record::decode).transpose().map_err(|error| error.into_error(operation))
}
