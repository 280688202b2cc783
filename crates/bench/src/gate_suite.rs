//! What the security gate costs: publishing to memory through all of it, beside an open one, rounds in turns.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{bail, ensure};
use mesh_gate::verify_audit;
use serde::Serialize;

use crate::{
    gate_files::{Audited, GateFiles},
    publish::PublishLoad,
    raw::Connection,
    subject::{Folder, Subject, median},
    suite::{Figures, Round, SuiteOptions, figures},
};

/// As many as the publishing suite has on memory.
const CONNECTIONS: usize = 64;

/// The result: events a second, and what of the open gate's is lost.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GateReport {
    rounds: usize,
    /// No filter, no quota, no audit file; requests carry no credential.
    open: Figures,
    /// A signed token, 1,000 rules, quotas, an audit file of denials.
    denials: Figures,
    /// The same with an audit file of everything.
    everything: Figures,
    /// The share of the open gate's rate that is lost: the median of what each round says, as with the processor
    /// time.
    denials_lost: f64,
    everything_lost: f64,
    /// The processor time an event that comes to the open gate's.
    denials_more_cpu_us: f64,
    everything_more_cpu_us: f64,
    /// Lines of the audit log of everything, of which each was verified; no publish is without one.
    audit_lines: u64,
}

/// A mesh behind a whole gate.
struct Guarded {
    subject: Subject,
    load: PublishLoad,
    audit_file: PathBuf,
}

impl Guarded {
    /// Started, and seen to refuse what it should.
    async fn start(options: SuiteOptions, audited: Audited) -> anyhow::Result<Self> {
        let folder = Folder::make()?;
        let files = GateFiles::write(folder.path(), audited)?;
        let subject = Subject::mesh_in(folder, "memory", &files.settings).await?;
        let load = PublishLoad {
            address: subject.address.clone(),
            topic: files.topic,
            token: Some(files.token),
            ..PublishLoad::closed(CONNECTIONS, options.span)
        };
        let nobody = PublishLoad { token: None, ..load.clone() };
        let elsewhere = PublishLoad { topic: "elsewhere".to_owned(), ..load.clone() };
        for (load, wanted) in [(&load, 202), (&nobody, 401), (&elsewhere, 403)] {
            let mut connection = Connection::open(&subject.address).await?;
            let status = connection.exchange(load.request(0).numbered(0)).await?.status;
            ensure!(status == wanted, "the gate is not what is to be measured: {status}, not {wanted}");
        }
        Ok(Self { subject, load, audit_file: files.audit_file })
    }
}

/// Publishing through the gate.
pub(crate) async fn publish(options: SuiteOptions) -> anyhow::Result<GateReport> {
    let open = Subject::mesh("memory").await?;
    let denials = Guarded::start(options, Audited::Denials).await?;
    let everything = Guarded::start(options, Audited::Everything).await?;
    // The same topic, without a credential.
    let without = PublishLoad { token: None, ..denials.load.clone() };
    let loads =
        [(&open, &without), (&denials.subject, &denials.load), (&everything.subject, &everything.load)];
    let mut rounds = [const { Vec::new() }; 3];
    for round in 0..options.rounds {
        // Each of them comes first, second and third in turn.
        for turn in 0..loads.len() {
            let which = (round + turn) % loads.len();
            let (subject, load) = loads[which];
            rounds[which].push(subject.take(load.clone()).await?);
        }
    }
    let [o, d, e] = rounds;
    let published = e.iter().map(|round| round.events).sum();
    let audit_lines = audit_lines(&everything.audit_file, published).await?;
    let lost = |guarded: &[Round]| {
        median(guarded.iter().zip(&o).map(|(guarded, open)| 1.0 - guarded.rate / open.rate).collect())
    };
    let more_cpu_us = |guarded: &[Round]| {
        let more = |(guarded, open): (&Round, &Round)| guarded.cpu_us_per_event - open.cpu_us_per_event;
        median(guarded.iter().zip(&o).map(more).collect())
    };
    Ok(GateReport {
        rounds: options.rounds,
        open: figures(&o),
        denials: figures(&d),
        everything: figures(&e),
        denials_lost: lost(&d),
        everything_lost: lost(&e),
        denials_more_cpu_us: more_cpu_us(&d),
        everything_more_cpu_us: more_cpu_us(&e),
        audit_lines,
    })
}

/// Verifies the audit log and counts its lines, of which there must be as many as events were answered.
async fn audit_lines(file: &Path, events: u64) -> anyhow::Result<u64> {
    // The last records are written some milliseconds after the last answer.
    for _ in 0..10 {
        let path = file.to_owned();
        let report = tokio::task::spawn_blocking(move || verify_audit(&path)).await??;
        ensure!(report.lost == 0, "the disk is too slow: {} audit records were lost", report.lost);
        if report.lines >= events {
            return Ok(report.lines);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    bail!("the audit log has fewer lines than {events} events that were answered")
}
