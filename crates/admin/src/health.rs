//! Health and readiness: what is down, since when, and why.
//!
//! Health is about the process and always answers 200; its body says `STARTING`, `UP`, `DEGRADED` or `DOWN`
//! and names the components. Readiness is about traffic: 200 or 503.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use mesh_base::{Clock, Stop, UnixMillis};
use mesh_server::Readiness;
use parking_lot::Mutex;
use serde::Serialize;

/// What one component says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealthReport {
    /// `UP`, `DEGRADED` or `DOWN`.
    pub status: &'static str,
    /// Why it is not `UP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl HealthReport {
    /// It works.
    pub fn up() -> Self {
        Self { status: "UP", reason: None }
    }

    /// It works, but not as it should.
    pub fn degraded(reason: impl Into<String>) -> Self {
        Self { status: "DEGRADED", reason: Some(reason.into()) }
    }

    /// It does not work.
    pub fn down(reason: impl Into<String>) -> Self {
        Self { status: "DOWN", reason: Some(reason.into()) }
    }
}

type Check = Box<dyn Fn() -> HealthReport + Send + Sync>;

/// Who is asked about health. Cheap to clone.
#[derive(Clone)]
pub struct Health {
    readiness: Readiness,
    started: Arc<AtomicBool>,
    checks: Arc<Mutex<Vec<(&'static str, Check)>>>,
    since: Arc<Mutex<BTreeMap<&'static str, (&'static str, UnixMillis)>>>,
}

/// A component's report with the time since when it is so.
#[derive(Debug, Serialize)]
pub(crate) struct Component {
    #[serde(flatten)]
    report: HealthReport,
    #[serde(rename = "sinceMs", skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
}

impl Health {
    /// No component to ask yet: `STARTING` until `readiness` says otherwise.
    pub fn new(readiness: Readiness) -> Self {
        Self { readiness, started: Arc::default(), checks: Arc::default(), since: Arc::default() }
    }

    /// Asks a component from now on; `check` must be quick.
    pub fn ask(&self, component: &'static str, check: impl Fn() -> HealthReport + Send + Sync + 'static) {
        self.checks.lock().push((component, Box::new(check)));
    }

    /// Recovery is over.
    pub fn started(&self) {
        self.started.store(true, Ordering::Release);
    }

    /// Whether recovery is over.
    pub(crate) fn is_recovered(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// Whether traffic is served.
    pub fn is_ready(&self) -> bool {
        self.readiness.is_ready()
    }

    /// Asks every component once a second until it is told to stop, so that "since when" is right also when
    /// it was not observed at the time.
    pub async fn keep_looking(self, clock: Clock, stop: Stop) {
        loop {
            tokio::select! {
                () = stop.wait() => return,
                () = tokio::time::sleep(Duration::from_secs(1)) => drop(self.report(clock.now())),
            }
        }
    }

    /// Every component's state, and the worst of them.
    pub(crate) fn report(&self, now: UnixMillis) -> (&'static str, BTreeMap<&'static str, Component>) {
        let mut worst = "UP";
        let mut components = BTreeMap::new();
        let mut since = self.since.lock();
        for (name, check) in self.checks.lock().iter() {
            let report = check();
            let entry = since.entry(name).or_insert((report.status, now));
            if entry.0 != report.status {
                *entry = (report.status, now);
            }
            let changed = entry.1.0;
            worst = match (worst, report.status) {
                ("DOWN", _) | (_, "DOWN") => "DOWN",
                ("DEGRADED", _) | (_, "DEGRADED") => "DEGRADED",
                (other, _) => other,
            };
            let since = (report.status != "UP").then_some(changed);
            components.insert(*name, Component { report, since });
        }
        let status = if self.started.load(Ordering::Acquire) { worst } else { "STARTING" };
        (status, components)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_component_decides_and_its_time_is_that_of_its_change() {
        let readiness = Readiness::new();
        let health = Health::new(readiness.clone());
        let broken = Arc::new(AtomicBool::new(false));
        let seen = broken.clone();
        health.ask("log", HealthReport::up);
        health.ask("ledger", move || {
            if seen.load(Ordering::Relaxed) { HealthReport::down("full") } else { HealthReport::up() }
        });
        assert_eq!(health.report(UnixMillis(1)).0, "STARTING");
        health.started();
        readiness.open();
        assert!(health.is_ready());
        assert_eq!(health.report(UnixMillis(2)).0, "UP");
        broken.store(true, Ordering::Relaxed);
        let (status, components) = health.report(UnixMillis(5));
        assert_eq!((status, components["ledger"].since), ("DOWN", Some(5)));
        assert_eq!(health.report(UnixMillis(9)).1["ledger"].since, Some(5));
    }
}
