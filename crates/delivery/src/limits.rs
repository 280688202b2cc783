//! The bounds that the configuration gives delivery.

use std::time::Duration;

/// Bounds of the dispatcher.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryLimits {
    /// Outstanding rows a group may have on a partition.
    pub outstanding: usize,
    /// Outstanding rows of the process.
    pub outstanding_total: usize,
    /// Subscriptions a client may have.
    pub subscriptions_per_client: usize,
    /// After how long without a sign of a client its subscriptions end; `None`: never.
    pub idle_timeout: Option<Duration>,
    /// Bytes an answer to a poll may have.
    pub answer_bytes: usize,
    /// How long a client may leave lie what its stream has for it.
    pub stream_unread: Duration,
    /// How long an append of a dead letter may take.
    pub publish_timeout: Duration,
}
