//! Positions: how far every group is, and what it has in flight. One database, two column families, one
//! batch an effect.
//!
//! [`OffsetStore`] and [`DeliveryStateStore`] stage changes into a [`PositionBatch`]; [`PositionLog`]
//! commits it. The two cannot lose their tails independently. A commit that is answered `Ok` is in the
//! write-ahead log: kept when the process is killed. Every second it is synced: power loss can take the
//! last second. A failed commit **suspends** the log: everything queued fails, and whoever keeps a view in
//! memory reads it again once a probe write has opened the log.

mod commit;
mod database;
mod keys;
mod last_error;
mod log;
mod row;
mod stores;

pub use commit::{Commit, CommitError, Decision};
pub use database::{OldIdentity, Positions, PositionsSettings};
pub use keys::LaneKey;
pub use last_error::LastError;
pub use log::{LedgerEpoch, PositionLog};
pub use row::{EndReason, Row, RowState};
pub use stores::{
    Cursor, DeliveryStateStore, OffsetStore, PositionBatch, RocksDbDeliveryStateStore, RocksDbOffsetStore,
};
