//! The numbers of `/admin/metrics`, under the names scripts of EventMesh know.

use serde::Serialize;

/// The counters and gauges of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Numbers {
    pub(crate) publish_count: u64,
    pub(crate) publish_failed: u64,
    pub(crate) rate_limited: u64,
    pub(crate) events_dispatched: u64,
    pub(crate) ack_count: u64,
    pub(crate) redeliveries: u64,
    pub(crate) dlq_count: u64,
    pub(crate) pending_deliveries: u64,
    pub(crate) offset_write_failures: u64,
}
