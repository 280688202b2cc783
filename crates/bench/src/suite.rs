//! Publishing and consuming: every server a child process, rounds in turns, medians and ratios.

use anyhow::bail;
use clap::Args;
use serde::Serialize;

use crate::{
    consume::ConsumeLoad,
    publish::PublishLoad,
    span::Span,
    subject::{Subject, median},
};

/// How a suite runs.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SuiteOptions {
    /// Rounds; the figures are their medians
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    #[command(flatten)]
    pub(crate) span: Span,
}

/// The publishing suite's result: events a second, and each as a share of the bare endpoint's.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PublishReport {
    rounds: usize,
    bare64: Figures,
    memory64: Figures,
    bare128: Figures,
    embedded128: Figures,
    memory_to_bare: f64,
    embedded_to_bare: f64,
    /// One publisher, one event at a time, every one synced.
    lone_embedded: Figures,
    /// The same bytes appended to a file and synced, on the same disk, at the same time of day.
    device_sync_p50_us: u64,
}

/// The consuming suite's result.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConsumeReport {
    rounds: usize,
    embedded16: Figures,
}

/// Medians over the rounds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Figures {
    rate: f64,
    p50_us: u64,
    p99_us: u64,
    cpu_us_per_event: f64,
    rss_kib: u64,
    disk_bytes_per_event: f64,
}

/// What one round measured.
#[derive(Clone, Copy, Default)]
pub(crate) struct Round {
    pub(crate) rate: f64,
    pub(crate) events: u64,
    p50_us: u64,
    p99_us: u64,
    pub(crate) cpu_us_per_event: f64,
    rss_kib: u64,
    disk_bytes_per_event: f64,
}

/// The medians.
pub(crate) fn figures(rounds: &[Round]) -> Figures {
    let of = |get: fn(&Round) -> f64| median(rounds.iter().map(get).collect());
    let whole = |get: fn(&Round) -> u64| median(rounds.iter().map(get).collect());
    Figures {
        rate: of(|round| round.rate),
        p50_us: whole(|round| round.p50_us),
        p99_us: whole(|round| round.p99_us),
        cpu_us_per_event: of(|round| round.cpu_us_per_event),
        rss_kib: whole(|round| round.rss_kib),
        disk_bytes_per_event: of(|round| round.disk_bytes_per_event),
    }
}

impl Subject {
    async fn publish(&self, connections: usize, span: Span) -> anyhow::Result<Round> {
        self.take(PublishLoad::closed(connections, span)).await
    }

    /// Puts a load on it.
    pub(crate) async fn take(&self, load: PublishLoad) -> anyhow::Result<Round> {
        let load = PublishLoad { address: self.address.clone(), pid: self.pid(), ..load };
        let result = load.run().await?;
        if result.refused > 0 {
            bail!("{} publishes were refused", result.refused);
        }
        Ok(Round {
            rate: result.rate,
            events: result.events,
            p50_us: result.latency_us.p50,
            p99_us: result.latency_us.p99,
            cpu_us_per_event: result.server.map_or(0.0, |used| used.cpu_us_per_event),
            rss_kib: result.server.map_or(0, |used| used.rss_kib),
            disk_bytes_per_event: result.server.map_or(0.0, |used| used.disk_bytes_per_event),
        })
    }
}

/// Publishing: memory with 64 connections and embedded with 128, each beside the bare endpoint.
pub(crate) async fn publish(options: SuiteOptions) -> anyhow::Result<PublishReport> {
    let (bare, memory) = (Subject::bare().await?, Subject::mesh("memory").await?);
    let embedded = Subject::mesh("embedded").await?;
    let [mut b64, mut m64, mut b128, mut e128, mut lone] = [const { Vec::new() }; 5];
    let mut syncs = Vec::new();
    for _ in 0..options.rounds {
        b64.push(bare.publish(64, options.span).await?);
        m64.push(memory.publish(64, options.span).await?);
        b128.push(bare.publish(128, options.span).await?);
        e128.push(embedded.publish(128, options.span).await?);
        lone.push(embedded.publish(1, options.span).await?);
        syncs.push(tokio::task::spawn_blocking(device_sync_p50_us).await??);
    }
    let (bare64, memory64, bare128, embedded128) =
        (figures(&b64), figures(&m64), figures(&b128), figures(&e128));
    Ok(PublishReport {
        rounds: options.rounds,
        memory_to_bare: memory64.rate / bare64.rate,
        embedded_to_bare: embedded128.rate / bare128.rate,
        bare64,
        memory64,
        bare128,
        embedded128,
        lone_embedded: figures(&lone),
        device_sync_p50_us: median(syncs),
    })
}

/// The median time of appending 640 bytes to a file and syncing it.
fn device_sync_p50_us() -> anyhow::Result<u64> {
    use std::io::Write as _;
    let path = std::env::temp_dir().join(format!("eventmesh-sync-{}", uuid::Uuid::new_v4()));
    let mut file = std::fs::File::create(&path)?;
    let clock = mesh_base::Clock::system();
    let mut times = Vec::new();
    for _ in 0..500 {
        let start = clock.elapsed();
        file.write_all(&[7; 640])?;
        file.sync_data()?;
        times.push(u64::try_from((clock.elapsed() - start).as_micros())?);
    }
    std::fs::remove_file(&path)?;
    Ok(median(times))
}

/// Poll and ack with 16 clients on the embedded log.
pub(crate) async fn consume(options: SuiteOptions) -> anyhow::Result<ConsumeReport> {
    let mut rounds = Vec::new();
    for _ in 0..options.rounds {
        let embedded = Subject::mesh("embedded").await?;
        let expected = (options.span.seconds + options.span.warmup) * 120_000.0;
        let load = ConsumeLoad {
            address: embedded.address.clone(),
            topic: "bench".to_owned(),
            clients: 16,
            max: 100,
            fill: expected as usize,
            pid: embedded.pid(),
            span: options.span,
        };
        let result = load.run().await?;
        rounds.push(Round {
            rate: result.rate,
            cpu_us_per_event: result.server.map_or(0.0, |used| used.cpu_us_per_event),
            rss_kib: result.server.map_or(0, |used| used.rss_kib),
            disk_bytes_per_event: result.server.map_or(0.0, |used| used.disk_bytes_per_event),
            ..Round::default()
        });
    }
    Ok(ConsumeReport { rounds: options.rounds, embedded16: figures(&rounds) })
}
