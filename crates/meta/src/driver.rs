//! What a Meta backend has to do.
//!
//! The contract is here and, runnable, in `conformance` (feature of that name): a backend is done when every
//! rule there holds against its real server.

use std::pin::Pin;

use bytes::Bytes;
use mesh_base::BackendError;

use crate::{Delete, Listing, Page, PutIfAbsent, Remove, Revision, Swap, Versioned, Watch};

/// A boxed future, so that drivers can be told apart at run time.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A Meta backend. Keys are UTF-8 in any characters, values arbitrary bytes.
///
/// * A change that was answered is durable: it outlives a kill of the process, a loss of power and a
///   restart of the server.
/// * Every read that starts after a change was answered shows it, or a later one.
/// * The conditional changes compare the whole value, byte for byte, and the comparison and the change are
///   one atomic step against every other writer of the store.
/// * [`Revision`]s rise with every change of the store; a backend without such a number keeps one itself.
///
/// # Errors
/// `Err` means that the backend failed. A write that failed may still have happened: the caller reads
/// again and looks for its own value. A driver neither waits for ever nor retries for long; the time limit
/// is the handle's.
pub trait MetaDriver: Send + Sync + 'static {
    /// What messages and metrics call the backend.
    fn name(&self) -> &'static str;

    /// The largest value in bytes that it takes.
    fn value_limit(&self) -> usize;

    /// What `key` holds.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Versioned>, BackendError>>;

    /// The entries whose key starts with `prefix`, in the byte order of their keys.
    fn get_with_prefix<'a>(
        &'a self,
        prefix: &'a str,
        page: &'a Page,
    ) -> BoxFuture<'a, Result<Listing, BackendError>>;

    /// Writes unless the key holds something: of many writers one wins.
    fn put_if_absent<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
    ) -> BoxFuture<'a, Result<PutIfAbsent, BackendError>>;

    /// Writes `new` if the key holds exactly `expected`.
    fn try_acquire<'a>(
        &'a self,
        key: &'a str,
        expected: &'a [u8],
        new: Bytes,
    ) -> BoxFuture<'a, Result<Swap, BackendError>>;

    /// Removes the key if it holds exactly `expected`, so that nobody removes its successor's record.
    fn try_remove<'a>(
        &'a self,
        key: &'a str,
        expected: &'a [u8],
    ) -> BoxFuture<'a, Result<Remove, BackendError>>;

    /// Writes whatever the key holds: the last write wins.
    fn put<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<Revision, BackendError>>;

    /// Removes whatever the key holds.
    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Delete, BackendError>>;

    /// The changes from now on of the keys that start with `prefix`, in the order in which they happened.
    /// A caller that needs a whole view watches first and lists second.
    fn watch<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Watch, BackendError>>;
}
