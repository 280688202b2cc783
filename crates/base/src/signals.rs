//! Metric plumbing: a registry that is passed in, and the three kinds of metric the project uses.
//!
//! Names are given without the `eventmesh_` prefix and, for counters, without `_total`: the registry and
//! the exposition format add them.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64},
    },
};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::{prometheus_text, text::encode},
    metrics::{counter, family::Family, gauge},
    registry::{Metric, Registry},
};

/// A number that only grows.
pub type Counter = counter::Counter<u64, AtomicU64>;
/// A number that goes up and down.
pub type Gauge = gauge::Gauge<i64, AtomicI64>;
/// Counters told apart by labels; the set of label values must be bounded.
pub type CounterFamily = Family<Vec<(&'static str, String)>, Counter>;

/// The registry every station registers its metrics into.
#[derive(Clone, Debug)]
pub struct Signals(Arc<Mutex<Metrics>>);

#[derive(Debug)]
struct Metrics {
    registry: Registry,
    names: HashSet<&'static str>,
}

impl Default for Signals {
    fn default() -> Self {
        let registry = Registry::with_prefix("eventmesh");
        Self(Arc::new(Mutex::new(Metrics { registry, names: HashSet::new() })))
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
        self.register(name, help, metric.clone());
        metric
    }

    /// Registers a counter that counted before there was a registry.
    pub fn show_counter(&self, name: &'static str, help: &'static str, counter: &Counter) {
        self.register(name, help, counter.clone());
    }

    /// Registers a gauge.
    pub fn gauge(&self, name: &'static str, help: &'static str) -> Gauge {
        let metric = Gauge::default();
        self.register(name, help, metric.clone());
        metric
    }

    /// Registers counters told apart by labels.
    pub fn counters(&self, name: &'static str, help: &'static str) -> CounterFamily {
        let metric = CounterFamily::default();
        self.register(name, help, metric.clone());
        metric
    }

    /// Registers a collector: metrics that are computed when they are read.
    pub fn collector(&self, collector: Box<dyn prometheus_client::collector::Collector>) {
        self.0.lock().registry.register_collector(collector);
    }

    /// Everything in the text format of OpenMetrics 1.0.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0.lock().registry).expect("writing to a string does not fail");
        text
    }

    /// Everything in the text format of Prometheus, version 0.0.4.
    pub fn prometheus_text(&self) -> String {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.0.lock().registry)
            .expect("writing to a string does not fail");
        text
    }

    /// Registers a metric. A second one of a name is not shown: a scraper that sees a family twice takes nothing at all.
    fn register(&self, name: &'static str, help: &'static str, metric: impl Metric) {
        let mut metrics = self.0.lock();
        if metrics.names.insert(name) {
            metrics.registry.register(name, help, metric);
        } else {
            tracing::error!(name, "a metric of this name is there already; this one is not shown");
        }
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
        let text = signals.prometheus_text();
        assert!(text.contains("# TYPE eventmesh_publish_total counter\neventmesh_publish_total 1"), "{text}");
        assert!(!text.contains("# EOF"), "{text}");
    }

    #[test]
    fn no_family_is_there_twice() {
        let signals = Signals::new();
        signals.counter("publish", "Events stored").inc();
        signals.counter("publish", "Events stored").inc();
        let text = signals.text();
        assert_eq!(text.matches("# TYPE eventmesh_publish counter").count(), 1, "{text}");
        assert_eq!(text.matches("eventmesh_publish_total 1").count(), 1, "{text}");
    }
}
