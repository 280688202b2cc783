//! Delivery's metrics.

use mesh_base::{Counter, CounterFamily, Gauge, Signals};

/// Counters of the dispatcher.
#[derive(Clone, Debug)]
pub struct DeliverySignals {
    /// Deliveries handed out.
    pub dispatched: Counter,
    /// Those of them that were not the first attempt.
    pub redelivered: Counter,
    /// Deliveries acknowledged.
    pub acked: Counter,
    /// Deliveries given back for another attempt.
    pub nacked: Counter,
    /// Locks extended.
    pub extended: Counter,
    /// Deliveries rejected, with their dead letter stored.
    pub rejected: Counter,
    /// Dead letters stored.
    pub dead_lettered: Counter,
    /// Dead letters replayed.
    pub replayed: Counter,
    /// Events that ended otherwise, by reason.
    pub dropped: CounterFamily,
    /// Answers that never reached their client, so that their deliveries came back uncounted.
    pub returned: Counter,
    /// Subscriptions that ended because nothing was heard of their client.
    pub idle: Counter,
    /// Open streams.
    pub streams: Gauge,
}

impl DeliverySignals {
    /// Registers them.
    pub fn new(signals: &Signals) -> Self {
        Self {
            dispatched: signals.counter("dispatched", "Deliveries handed out"),
            redelivered: signals.counter("redelivered", "Deliveries handed out again"),
            acked: signals.counter("acked", "Deliveries acknowledged"),
            nacked: signals.counter("nacked", "Deliveries given back for another attempt"),
            extended: signals.counter("extended", "Locks of deliveries extended"),
            rejected: signals.counter("rejected", "Deliveries rejected, their dead letters stored"),
            dead_lettered: signals.counter("dead_lettered", "Dead letters stored"),
            replayed: signals.counter("dead_letters_replayed", "Dead letters replayed to their group"),
            dropped: signals
                .counters("dropped", "Events that ended without an ack or a dead letter, by reason"),
            idle: signals.counter("subscriptions_expired", "Subscriptions that ended in silence"),
            returned: signals.counter("returned", "Deliveries whose answer never reached the client"),
            streams: signals.gauge("streams", "Open streams of clients"),
        }
    }

    pub(crate) fn drop_by(&self, reason: &'static str, count: u64) {
        if count > 0 {
            self.dropped.get_or_create(&vec![("reason", reason.to_owned())]).inc_by(count);
        }
    }
}
