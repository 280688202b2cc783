//! `TenantQuotaManager`: what a tenant may use, and what it uses.
//!
//! Events and bytes a second are token buckets of one second's worth; a batch larger than the bucket is let
//! through when the bucket is full and leaves a debt. Connections are leases that come back when the
//! connection ends. Subscriptions and backlog are counted by those who hold them (they survive a restart); the
//! manager says how many there may be.

mod bucket;
mod limits;
mod manager;

pub(crate) use bucket::{Bucket, Ticks};
pub use limits::{TenantLimits, TenantLimitsFile};
pub use manager::{Cost, Exceeded, TenantQuotaManager};
