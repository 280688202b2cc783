//! Metric plumbing: a registry that is passed in, and the three kinds of metric the project uses.
//!
//! Names are given without the `eventmesh_` prefix and, for counters, without `_total`: the registry and
//! the exposition format add them.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64},
};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::text::encode,
    metrics::{counter, family::Family, gauge},
    registry::Registry,
};

/// A number that only grows.
pub type Counter = counter::Counter<u64, AtomicU64>;
/// A number that goes up and down.
pub type Gauge = gauge::Gauge<i64, AtomicI64>;
/// Counters told apart by labels; the set of label values must be bounded.
pub type CounterFamily = Family<Vec<(&'static str, String)>, Counter>;

/// The registry every station registers its metrics into.
#[derive(Clone, Debug)]
pub struct Signals(Arc<Mutex<Registry>>);

impl Default for Signals {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Registry::with_prefix("eventmesh"))))
    }
}

impl Signals {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a counter.
    pub fn counter(&self, name: &'static str, help: &'static str) -> Counter {
        let metric = Counter::default();
        self.0.lock().register(name, help, metric.clone());
        metric
    }

    /// Registers a gauge.
    pub fn gauge(&self, name: &'static str, help: &'static str) -> Gauge {
        let metric = Gauge::default();
        self.0.lock().register(name, help, metric.clone());
        metric
    }

    /// Registers counters told apart by labels.
    pub fn counters(&self, name: &'static str, help: &'static str) -> CounterFamily {
        let metric = CounterFamily::default();
        self.0.lock().register(name, help, metric.clone());
        metric
    }

    /// Registers a collector: metrics that are computed when they are read.
    pub fn collector(&self, collector: Box<dyn prometheus_client::collector::Collector>) {
        self.0.lock().register_collector(collector);
    }

    /// Everything in the text format that Prometheus and OpenMetrics scrapers read.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0.lock()).expect("writing to a string does not fail");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_the_prefix_and_label_values_are_escaped() {
        let signals = Signals::new();
        signals.counter("publish", "Events stored").inc();
        signals.counters("dropped", "Events dropped").get_or_create(&vec![("topic", "a\"\\\n".into())]).inc();
        let text = signals.text();
        assert!(text.contains("eventmesh_publish_total 1"), "{text}");
        assert!(text.contains(r#"topic="a\"\\\n""#), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
