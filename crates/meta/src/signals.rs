//! The metrics of the Meta handle.

use mesh_base::{BackendErrorKind, CounterFamily, Gauge, Signals};

#[derive(Clone, Debug)]
pub(crate) struct MetaSignals {
    failures: CounterFamily,
    available: Gauge,
}

impl MetaSignals {
    pub(crate) fn register(signals: &Signals) -> Self {
        let metrics = Self {
            failures: signals
                .counters("meta_operation_failures", "Meta operations that failed, by operation and kind"),
            available: signals.gauge("meta_available", "1 while the last Meta operation was answered"),
        };
        metrics.available.set(1);
        metrics
    }

    pub(crate) fn failed(&self, operation: &'static str, kind: BackendErrorKind) {
        let labels = vec![("operation", operation.to_owned()), ("kind", kind.as_str().to_owned())];
        self.failures.get_or_create(&labels).inc();
    }

    pub(crate) fn available(&self, yes: bool) {
        self.available.set(i64::from(yes));
    }
}
