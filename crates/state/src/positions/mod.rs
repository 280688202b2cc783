//! Positions: how far every group is, and what it has in flight. One store, one batch an effect.
//!
//! Changes are staged into a [`PositionBatch`]; [`PositionLog`] commits it to the [`PositionStore`], the driver.
//! Cursors ([`OffsetStore`]) and rows ([`DeliveryStateStore`]) are written together, so that the two cannot lose their
//! tails independently. A commit that is answered `Ok` is kept when the process is killed; power loss can take the last
//! second. A failed commit **suspends** the log: everything queued fails, and a caller that keeps a view in memory reads it
//! again once the store has healed. Callers that commit or read hold [`Positions`]; a server's driver is [`RocksDbPositions`].

mod batch;
mod commit;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod cursor;
#[cfg(any(test, feature = "conformance"))]
pub mod faulty;
mod handle;
mod keys;
mod last_error;
mod log;
#[cfg(any(test, feature = "conformance"))]
pub mod memory;
mod rocksdb;
mod row;
mod store;

pub use batch::{PositionBatch, PositionChange};
pub use commit::{Commit, CommitError, Decision};
pub use cursor::Cursor;
pub use handle::Positions;
pub use keys::LaneKey;
pub use last_error::LastError;
pub use log::{LedgerEpoch, PositionLog};
pub use rocksdb::{
    OldIdentity, PositionsSettings, RocksDbDeliveryStateStore, RocksDbOffsetStore, RocksDbPositions,
};
pub use row::{EndReason, Row, RowState};
pub use store::{DeliveryStateStore, OffsetStore, PositionStore};
