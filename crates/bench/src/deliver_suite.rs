//! Fan-out and latency: streams and polls of the mesh beside bare streams, rounds in turns, medians and ratios.

use anyhow::ensure;
use clap::Args;
use serde::Serialize;

use crate::{
    deliver::{By, DeliverLoad, DeliverResult},
    process::Used,
    span::Span,
    subject::{Subject, median},
    suite::SuiteOptions,
};

/// How the latency suite runs.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LatencyOptions {
    /// Events a second
    #[arg(long, default_value_t = 1_000.0)]
    rate: f64,
    #[command(flatten)]
    suite: SuiteOptions,
}

/// The fan-out suite's result.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FanoutReport {
    rounds: usize,
    streams: usize,
    rate: f64,
    bare: Figures,
    auto: Figures,
    explicit: Figures,
    auto_p99_to_bare: f64,
    explicit_p99_to_bare: f64,
}

/// The latency suite's result.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LatencyReport {
    rounds: usize,
    rate: f64,
    bare: Figures,
    stream: Figures,
    poll: Figures,
}

/// Medians over the rounds; what must not happen is summed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Figures {
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
    deliveries: u64,
    missing: u64,
    repeated: u64,
    refused_acks: u64,
    bytes_per_delivery: u64,
    cpu_us_per_delivery: f64,
}

fn figures(rounds: &[DeliverResult]) -> Figures {
    let of = |get: fn(&DeliverResult) -> u64| median(rounds.iter().map(get).collect());
    let sum = |get: fn(&DeliverResult) -> u64| rounds.iter().map(get).sum();
    let used = |result: &DeliverResult| result.server.map_or(0.0, |used: Used| used.cpu_us_per_event);
    Figures {
        p50_us: of(|round| round.latency_us.p50),
        p99_us: of(|round| round.latency_us.p99),
        max_us: of(|round| round.latency_us.max),
        deliveries: sum(|round| round.deliveries),
        missing: sum(|round| round.missing),
        repeated: sum(|round| round.repeated),
        refused_acks: sum(|round| round.refused_acks),
        bytes_per_delivery: of(|round| round.bytes_per_delivery),
        cpu_us_per_delivery: median(rounds.iter().map(used).collect()),
    }
}

/// One load for subscribers of a server that nobody used before.
#[derive(Clone, Copy)]
struct Load {
    subscribers: usize,
    rate: f64,
    span: Span,
}

impl Load {
    async fn mesh(self, by: By) -> anyhow::Result<DeliverResult> {
        self.on(&Subject::mesh("embedded").await?, by, 512).await
    }

    /// Bare streams that carry as many bytes as deliveries of the mesh.
    async fn bare(self, bytes_per_delivery: u64) -> anyhow::Result<DeliverResult> {
        // What the text of an event has around its data, the line's name and the length of its chunk.
        let around = 13;
        let bytes = usize::try_from(bytes_per_delivery)?.saturating_sub(around);
        self.on(&Subject::bare().await?, By::Bare, bytes).await
    }

    async fn on(self, subject: &Subject, by: By, bytes: usize) -> anyhow::Result<DeliverResult> {
        let load = DeliverLoad {
            address: subject.address.clone(),
            topic: "bench".to_owned(),
            by,
            subscribers: self.subscribers,
            rate: self.rate,
            bytes,
            pid: subject.pid(),
            span: self.span,
        };
        let result = load.run().await?;
        ensure!(result.deliveries > 0, "nothing was delivered: {result:?}");
        Ok(result)
    }
}

/// 20 events a second to 1,000 streams.
pub(crate) async fn fanout(options: SuiteOptions) -> anyhow::Result<FanoutReport> {
    let load = Load { subscribers: 1_000, rate: 20.0, span: options.span };
    let [mut bare, mut auto, mut explicit] = [const { Vec::new() }; 3];
    for _ in 0..options.rounds {
        auto.push(load.mesh(By::Auto).await?);
        explicit.push(load.mesh(By::Explicit).await?);
        bare.push(load.bare(auto[0].bytes_per_delivery).await?);
    }
    let (bare, auto, explicit) = (figures(&bare), figures(&auto), figures(&explicit));
    Ok(FanoutReport {
        rounds: options.rounds,
        streams: load.subscribers,
        rate: load.rate,
        auto_p99_to_bare: auto.p99_us as f64 / bare.p99_us as f64,
        explicit_p99_to_bare: explicit.p99_us as f64 / bare.p99_us as f64,
        bare,
        auto,
        explicit,
    })
}

/// One subscriber.
pub(crate) async fn latency(options: LatencyOptions) -> anyhow::Result<LatencyReport> {
    let load = Load { subscribers: 1, rate: options.rate, span: options.suite.span };
    let [mut bare, mut stream, mut poll] = [const { Vec::new() }; 3];
    for _ in 0..options.suite.rounds {
        stream.push(load.mesh(By::Explicit).await?);
        poll.push(load.mesh(By::Poll).await?);
        bare.push(load.bare(stream[0].bytes_per_delivery).await?);
    }
    Ok(LatencyReport {
        rounds: options.suite.rounds,
        rate: load.rate,
        bare: figures(&bare),
        stream: figures(&stream),
        poll: figures(&poll),
    })
}
