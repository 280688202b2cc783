//! How many verdicts there were, by filter, and how many rules hold.

use mesh_base::{Counter, CounterFamily, Gauge, Signals};

use crate::{AclFilter, filter};

/// The counters of the verdicts that are frequent, and the family of all.
#[derive(Debug)]
pub(super) struct Verdicts {
    pub(super) family: CounterFamily,
    pub(super) admitted_without_filter: Counter,
    pub(super) token_passed: Counter,
    pub(super) signature_passed: Counter,
    pub(super) acl_passed: Counter,
}

impl Verdicts {
    pub(super) fn new(signals: &Signals) -> Self {
        let family = signals.counters("gate_verdicts", "Verdicts of the security gate by filter");
        let of = |filter: &str| family.get_or_create(&labels(filter, "allow")).clone();
        Self {
            admitted_without_filter: of("no_gate"),
            token_passed: of(filter::TOKEN),
            signature_passed: of(filter::SIGNATURE),
            acl_passed: of(filter::ACL),
            family,
        }
    }

    pub(super) fn count(&self, filter: &str, verdict: &str) {
        self.family.get_or_create(&labels(filter, verdict)).inc();
    }
}

fn labels(filter: &str, verdict: &str) -> Vec<(&'static str, String)> {
    vec![("filter", filter.to_owned()), ("verdict", verdict.to_owned())]
}

/// How many rules hold.
#[derive(Debug)]
pub(super) struct RuleGauges {
    all: Gauge,
    malformed: Gauge,
}

impl RuleGauges {
    pub(super) fn new(signals: &Signals) -> Self {
        Self {
            all: signals.gauge("gate_acl_rules", "Access rules"),
            malformed: signals.gauge("gate_acl_rules_malformed", "Access rules that cannot be read"),
        }
    }

    pub(super) fn show(&self, acl: Option<&AclFilter>) {
        let Some(count) = acl.map(AclFilter::count) else { return };
        self.all.set(i64::try_from(count.all).unwrap_or(i64::MAX));
        self.malformed.set(i64::try_from(count.malformed).unwrap_or(i64::MAX));
    }
}
