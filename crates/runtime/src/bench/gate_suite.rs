//! What the security gate costs: publishing to memory through all of it, beside an open one, rounds in turns.

use std::path::PathBuf;

use anyhow::{bail, ensure};
use mesh_gate::verify_audit;
use serde::Serialize;

use super::{
    gate_files::{Audited, GateFiles},
    publish::PublishLoad,
    raw::Connection,
    subject::{Folder, Subject},
    suite::{Figures, SuiteOptions, figures},
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
    /// The share of the open gate's rate that is lost.
    denials_lost: f64,
    everything_lost: f64,
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
pub(super) async fn publish(options: SuiteOptions) -> anyhow::Result<GateReport> {
    let open = Subject::mesh("memory").await?;
    let denials = Guarded::start(options, Audited::Denials).await?;
    let everything = Guarded::start(options, Audited::Everything).await?;
    // The same topic, without a credential.
    let without = PublishLoad { token: None, ..denials.load.clone() };
    let [mut o, mut d, mut e] = [const { Vec::new() }; 3];
    for _ in 0..options.rounds {
        o.push(open.take(without.clone()).await?);
        d.push(denials.subject.take(denials.load.clone()).await?);
        e.push(everything.subject.take(everything.load.clone()).await?);
    }
    let audit_lines = audit_lines(everything.audit_file, e.iter().map(|round| round.events).sum()).await?;
    let (open, denials, everything) = (figures(&o), figures(&d), figures(&e));
    Ok(GateReport {
        rounds: options.rounds,
        denials_lost: 1.0 - denials.rate / open.rate,
        everything_lost: 1.0 - everything.rate / open.rate,
        denials_more_cpu_us: denials.cpu_us_per_event - open.cpu_us_per_event,
        everything_more_cpu_us: everything.cpu_us_per_event - open.cpu_us_per_event,
        open,
        denials,
        everything,
        audit_lines,
    })
}

/// Verifies the audit log and counts its lines, of which there must be as many as events were answered.
async fn audit_lines(file: PathBuf, events: u64) -> anyhow::Result<u64> {
    // The last records are written some milliseconds after the last answer.
    for _ in 0..10 {
        let path = file.clone();
        let report = tokio::task::spawn_blocking(move || verify_audit(&path)).await??;
        ensure!(report.lost == 0, "the disk is too slow: {} audit records were lost", report.lost);
        if report.lines >= events {
            return Ok(report.lines);
        }
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    bail!("the audit log has fewer lines than {events} events that were answered")
}
