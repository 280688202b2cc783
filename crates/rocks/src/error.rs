//! RocksDB's errors as the project's one backend error.

use mesh_base::{BackendError, BackendErrorKind};
use rocksdb::ErrorKind;

/// How the system says that a disk is full; RocksDB resumes by itself after that error, and after no other.
const NO_SPACE: &str = "No space left";

/// Whether a failure is one after which RocksDB resumes by itself.
pub(crate) fn is_no_space(error: &BackendError) -> bool {
    error.chain().contains(NO_SPACE)
}

/// Maps an error of RocksDB. Out of space is told by its text: RocksDB keeps the kind of the first
/// failure in words only once it has latched a background error.
pub(crate) fn backend_error(
    error: rocksdb::Error,
    backend: &'static str,
    operation: &'static str,
) -> BackendError {
    let text = error.as_ref();
    let full = [NO_SPACE, "File too large", "Disk quota exceeded", "out of space"]
        .iter()
        .any(|sign| text.contains(sign));
    let kind = match error.kind() {
        _ if full => BackendErrorKind::Full,
        ErrorKind::Corruption => BackendErrorKind::Corrupt,
        ErrorKind::NotSupported | ErrorKind::InvalidArgument => BackendErrorKind::Refused,
        ErrorKind::NotFound
        | ErrorKind::IOError
        | ErrorKind::MergeInProgress
        | ErrorKind::Incomplete
        | ErrorKind::ShutdownInProgress
        | ErrorKind::TimedOut
        | ErrorKind::Aborted
        | ErrorKind::Busy
        | ErrorKind::Expired
        | ErrorKind::TryAgain
        | ErrorKind::CompactionTooLarge
        | ErrorKind::ColumnFamilyDropped
        | ErrorKind::Unknown => BackendErrorKind::Unavailable,
    };
    BackendError::new(kind, backend, operation).with_source(error)
}
