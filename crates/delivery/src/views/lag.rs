//! How far groups are behind, as metrics that are computed when they are read.
//!
//! One series a shared group, a thousand at most, in the order of their names; everything else is summed a topic,
//! and what is beyond a thousand topics in one series. Series of groups and topics that are gone are gone.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Weak},
};

use mesh_base::Signals;
use mesh_frame::TopicName;
use mesh_state::shared::GroupKind;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};

use super::groups::lag;
use crate::group::Core;

/// Series of each kind at most.
const MOST: usize = 1_000;
/// What stands for the topics beyond that.
const OTHERS: &str = "(others)";

/// Shows the lag of groups among the metrics.
pub(crate) fn show(core: &Arc<Core>, signals: &Signals) {
    signals.collector(Box::new(Lag(Arc::downgrade(core))));
}

struct Lag(Weak<Core>);

impl fmt::Debug for Lag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lag")
    }
}

/// What is shown.
#[derive(Debug, Default)]
struct Seen {
    groups: Vec<(Vec<(&'static str, String)>, u64)>,
    rest: BTreeMap<TopicName, u64>,
}

fn lags(core: &Core, most: usize) -> Seen {
    let mut groups = core.directory.all();
    groups.sort_by(|one, other| one.id.cmp(&other.id));
    let mut seen = Seen::default();
    for group in groups {
        let behind: u64 = group.state.lock().lanes.iter().map(lag).sum();
        let id = &group.id;
        if id.kind == GroupKind::LoadBalance && seen.groups.len() < most {
            let labels = vec![
                ("tenant", id.tenant.to_string()),
                ("topic", id.topic.to_string()),
                ("group", id.name.to_string()),
            ];
            seen.groups.push((labels, behind));
        } else {
            *seen.rest.entry(id.topic.clone()).or_default() += behind;
        }
    }
    seen
}

impl Collector for Lag {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(core) = self.0.upgrade() else { return Ok(()) };
        let seen = lags(&core, MOST);
        let help = "Events that a shared group has not done";
        let mut family = encoder.encode_descriptor("group_lag", help, None, MetricType::Gauge)?;
        for (labels, behind) in &seen.groups {
            gauge(*behind).encode(family.encode_family(labels)?)?;
        }
        let help = "Events that the other groups of a topic have not done, summed";
        let mut family = encoder.encode_descriptor("topic_lag", help, None, MetricType::Gauge)?;
        for (topic, behind) in seen.rest.iter().take(MOST) {
            let labels = vec![("topic", topic.to_string())];
            gauge(*behind).encode(family.encode_family(&labels)?)?;
        }
        if seen.rest.len() > MOST {
            let labels = vec![("topic", OTHERS.to_owned())];
            let behind = seen.rest.values().skip(MOST).sum();
            gauge(behind).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}
