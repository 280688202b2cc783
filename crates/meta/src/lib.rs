//! MetaStore: small shared records with compare-and-set and watches.
//!
//! [`MetaDriver`] is what a backend implements, [`MetaStore`] the handle everyone else holds; it adds the
//! time limit, the size limit, the metrics and the log lines. [`LocalMeta`] is the driver for one process.
//! What a record means is not known here.
//!
//! When the backend is unreachable every operation fails with `Unavailable`, within the time limit; nothing
//! is queued, cached or retried here, and the next operation after it healed succeeds.

mod change;
mod driver;
mod local;
mod outcome;
mod probe;
mod signals;
mod store;
mod watch;

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
#[cfg(any(test, feature = "conformance"))]
pub mod faulty;
#[cfg(any(test, feature = "conformance"))]
pub mod memory;

pub use driver::{BoxFuture, MetaDriver};
pub use local::{LocalMeta, LocalMetaSettings};
pub use outcome::{Delete, Entry, Listing, Page, PutIfAbsent, Remove, Revision, Swap, Versioned};
pub use probe::Probe;
pub use store::MetaStore;
pub use watch::{Watch, WatchEvent, WatchSender};
