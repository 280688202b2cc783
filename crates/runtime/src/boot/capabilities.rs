//! What the configured drivers can do, compared with what the configuration needs of them.
//!
//! A driver says what it can do as plain data; nothing here knows a driver by name. What is missing stops the boot
//! before anything is served, naming the key and the capability. Whether a Meta backend keeps its word about
//! conditional changes cannot be read from data: it is tried, on a key of this instance's own.

use std::time::Duration;

use anyhow::{Context as _, bail};
use mesh_delivery::DeliveryTopology;
use mesh_frame::InstanceId;
use mesh_meta::{MetaStore, Probe};
use mesh_storage::{Capabilities, PartitionCount};

use crate::config::Settings;

/// How often a probe is made again that another instance disturbed.
const PROBES: usize = 3;

/// Something that the configuration needs and the driver lacks.
#[derive(Debug, PartialEq, Eq)]
struct Missing {
    key: &'static str,
    value: String,
    capability: &'static str,
}

/// Stops the boot when the log cannot do what the configuration needs.
///
/// # Errors
/// Everything that is missing: the key that needs it, and the capability.
pub(super) fn check_log(settings: &Settings, can: &Capabilities) -> anyhow::Result<()> {
    let missing = missing(&Needs::of(settings), can);
    if missing.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = missing
        .iter()
        .map(|missing| format!("{}={} needs a log that {}", missing.key, missing.value, missing.capability))
        .collect();
    bail!("the {} log (eventmesh.storage.type) cannot do what is configured: {}", can.name, lines.join("; "))
}

/// What the configuration needs of the log.
#[derive(Clone, Copy, Debug)]
struct Needs {
    /// `None`: partitions that instances own.
    topology: Option<DeliveryTopology>,
    dedup_window: Option<Duration>,
    backlog_max_age: Option<Duration>,
    backlog_max_bytes: Option<u64>,
}

impl Needs {
    fn of(settings: &Settings) -> Self {
        Self {
            topology: settings.delivery.topology,
            dedup_window: settings.topics.dedup_window.filter(|window| !window.is_zero()),
            backlog_max_age: settings.storage.backlog_max_age,
            backlog_max_bytes: settings.storage.backlog_max_bytes,
        }
    }
}

fn missing(needs: &Needs, can: &Capabilities) -> Vec<Missing> {
    let mut missing = Vec::new();
    let mut need = |holds: bool, key, value: String, capability| {
        if !holds {
            missing.push(Missing { key, value, capability });
        }
    };
    let topology = match needs.topology {
        Some(topology) => topology.as_str(),
        None => {
            need(
                can.shared,
                "eventmesh.delivery.topology",
                "PARTITION_OWNED_PULL".into(),
                "several instances share",
            );
            "PARTITION_OWNED_PULL"
        }
    };
    need(
        can.partition_count == PartitionCount::Known,
        "eventmesh.delivery.topology",
        topology.into(),
        "says how many partitions a topic has",
    );
    if let Some(window) = needs.dedup_window {
        need(
            can.deduplication,
            "eventmesh.publish.dedup.window",
            format!("{window:?}"),
            "can be read back for duplicates at a start",
        );
    }
    if let Some(age) = needs.backlog_max_age {
        let value = format!("{age:?}");
        need(
            can.retention_by_groups,
            "eventmesh.storage.backlog.maxAge",
            value,
            "keeps what groups have not done",
        );
    }
    if let Some(bytes) = needs.backlog_max_bytes {
        let value = bytes.to_string();
        need(
            can.retention_by_groups,
            "eventmesh.storage.backlog.maxBytes",
            value,
            "keeps what groups have not done",
        );
    }
    missing
}

/// Stops the boot when conditional changes of the Meta backend do not hold.
///
/// # Errors
/// The change that was made although its condition did not hold; that the backend does not answer; that somebody else
/// uses the key of the probe.
pub(super) async fn check_meta(meta: &MetaStore, instance: &InstanceId) -> anyhow::Result<()> {
    let key = format!("/em/probe/{instance}");
    for _ in 0..PROBES {
        let found = meta.probe(&key).await.map_err(|error| anyhow::anyhow!(error.chain()));
        match found.with_context(|| format!("the conditional changes of {} cannot be tried", meta.name()))? {
            Probe::Holds => return Ok(()),
            Probe::Broken(change) => bail!(
                "{} makes changes whose condition does not hold: {change}. No state would be safe in it",
                meta.name()
            ),
            Probe::Disturbed => tracing::warn!(key, "somebody else changes the key of the probe of Meta"),
        }
    }
    bail!("somebody else changes {key} in {}: is another process running as {instance}?", meta.name())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mesh_base::{Clock, Signals};
    use mesh_meta::{LocalMeta, LocalMetaSettings, faulty::FaultyMeta};
    use mesh_rocks::Machine;

    use super::*;

    const EVERYTHING: Capabilities = Capabilities {
        name: "able",
        survives_kill: true,
        survives_power_loss: true,
        partition_count: PartitionCount::Known,
        shared: true,
        deduplication: true,
        retention_by_groups: true,
    };

    const ALL_NEEDS: Needs = Needs {
        topology: None,
        dedup_window: Some(Duration::from_secs(60)),
        backlog_max_age: Some(Duration::from_secs(3_600)),
        backlog_max_bytes: Some(1 << 30),
    };

    const NO_NEEDS: Needs = Needs {
        topology: Some(DeliveryTopology::LocalStickyPull),
        dedup_window: None,
        backlog_max_age: None,
        backlog_max_bytes: None,
    };

    #[test]
    fn what_a_driver_lacks_is_named_with_the_key_that_needs_it() {
        let keys = |needs: &Needs, can: &Capabilities| -> Vec<&'static str> {
            missing(needs, can).into_iter().map(|missing| missing.key).collect()
        };
        assert_eq!(missing(&ALL_NEEDS, &EVERYTHING), []);
        let backlog = ["eventmesh.storage.backlog.maxAge", "eventmesh.storage.backlog.maxBytes"];
        let cases: [(&str, Capabilities, &[&str], &[&str]); 4] = [
            (
                "one process alone",
                Capabilities { shared: false, ..EVERYTHING },
                &["eventmesh.delivery.topology"],
                &[],
            ),
            (
                "unknown partitions",
                Capabilities { partition_count: PartitionCount::Unknown, ..EVERYTHING },
                &["eventmesh.delivery.topology"],
                &["eventmesh.delivery.topology"],
            ),
            (
                "no deduplication",
                Capabilities { deduplication: false, ..EVERYTHING },
                &["eventmesh.publish.dedup.window"],
                &[],
            ),
            ("its own retention", Capabilities { retention_by_groups: false, ..EVERYTHING }, &backlog, &[]),
        ];
        for (name, can, of_all, of_none) in cases {
            assert_eq!(keys(&ALL_NEEDS, &can), of_all, "{name}");
            assert_eq!(keys(&NO_NEEDS, &can), of_none, "{name}");
        }
    }

    #[tokio::test]
    async fn a_backend_that_says_yes_to_everything_stops_the_boot() {
        let folder = tempfile::tempdir().expect("a folder");
        let local = LocalMeta::open(&LocalMetaSettings::at(folder.path()), &Machine::default());
        let driver = FaultyMeta::new(Arc::new(local.expect("opens")));
        let meta = MetaStore::new(driver.clone(), Clock::system(), &Signals::new());
        let instance = InstanceId::new("one").expect("legal");
        check_meta(&meta, &instance).await.expect("it holds");
        assert!(meta.list("/em/").await.expect("listed").entries.is_empty(), "nothing is left of the probe");
        driver.always_yes(true);
        let error = check_meta(&meta, &instance).await.expect_err("it does not hold").to_string();
        assert!(error.contains("whose condition does not hold: try_acquire"), "{error}");
        driver.always_yes(false);
        driver.partition(true);
        let error = format!("{:#}", check_meta(&meta, &instance).await.expect_err("it does not answer"));
        assert!(error.contains("cannot be tried"), "{error}");
    }
}
