//! The six state stores: a small trait each, its production implementation, its key layout.
//!
//! Local and fast, in one RocksDB ([`positions`]): [`positions::OffsetStore`] and
//! [`positions::DeliveryStateStore`]. Shared through Meta: subscriptions, sessions, dead letters, tasks.
//! Nothing here decides when to write; what each does when its backend is down is written at its trait.

pub mod positions;
pub mod shared;
