//! How every local database is opened, written, synced, checked and closed.
//!
//! One [`Machine`] a process holds the block cache and the write-buffer budget that all databases
//! share. A [`LocalDb`] is one RocksDB with the policies this project chose and tested: point-in-time
//! recovery of the write-ahead log, and a marker of what was synced, so that a database that lost
//! synced data to damage is refused instead of served. After a write that failed, [`LocalDb::heal`] makes it take
//! writes again once the cause is gone. Nothing here knows a key layout.

mod batch;
mod db;
mod error;
mod machine;
mod marker;
mod syncer;

pub use batch::Batch;
pub use db::{Durability, Family, FamilyKind, Healed, LocalDb, Spec};
pub use machine::Machine;
pub use syncer::Syncer;
