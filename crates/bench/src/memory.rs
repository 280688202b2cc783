//! What an idle stream and an idle subscription take: how the server's memory grows with their number.
//!
//! The figure is the slope of a line through several points, so that what is there once does not count.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;

use crate::{
    process::Usage,
    raw::{Connection, post},
    sse::Events,
    subject::Subject,
};

/// How much is measured.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct MemoryOptions {
    /// Streams at the last point
    #[arg(long, default_value_t = 4_000)]
    streams: usize,
    /// Subscriptions at the last point
    #[arg(long, default_value_t = 20_000)]
    subscriptions: usize,
}

/// Points of a line.
const POINTS: usize = 5;
/// How long a server is left alone before it is looked at.
const SETTLE: Duration = Duration::from_secs(2);
const TOPIC: &str = "memory";

/// The memory suite's result.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemoryReport {
    bare_stream_kib: f64,
    stream_kib: f64,
    stream_to_bare: f64,
    subscription_kib: f64,
    /// Number and memory in KiB, as measured.
    bare_streams: Vec<(usize, u64)>,
    streams: Vec<(usize, u64)>,
    subscriptions: Vec<(usize, u64)>,
}

/// KiB one more of them takes: the least squares line through the points.
fn slope(points: &[(usize, u64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |get: fn(&(usize, u64)) -> f64| points.iter().map(get).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0 as f64), mean(|point| point.1 as f64));
    let above: f64 = points.iter().map(|point| (point.0 as f64 - x) * (point.1 as f64 - y)).sum();
    let below: f64 = points.iter().map(|point| (point.0 as f64 - x).powi(2)).sum();
    above / below
}

/// The steps to a number.
fn steps(most: usize) -> impl Iterator<Item = usize> {
    (1..=POINTS).map(move |point| most * point / POINTS)
}

async fn memory_of(subject: &Subject) -> anyhow::Result<u64> {
    tokio::time::sleep(SETTLE).await;
    Ok(Usage::of(subject.pid().context("the server ended")?)?.rss_kib())
}

async fn subscribe(subject: &Subject, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
    let mut connection = Connection::open(&subject.address).await?;
    for number in numbers {
        let body = format!(r#"{{"clientId":"client-{number}","topic":"{TOPIC}","mode":"BROADCAST"}}"#);
        let request = post(&subject.address, "/events/subscribe", "application/json", &body);
        let answer = connection.exchange(&request).await?;
        ensure!(answer.status == 200, "subscribe: {}", String::from_utf8_lossy(answer.body));
    }
    Ok(())
}

async fn streams(
    subject: &Subject,
    most: usize,
    path: impl Fn(usize) -> String,
) -> anyhow::Result<Vec<(usize, u64)>> {
    let mut open = Vec::new();
    let mut points = Vec::new();
    for step in steps(most) {
        while open.len() < step {
            open.push(Events::open(&subject.address, &path(open.len())).await?);
        }
        points.push((step, memory_of(subject).await?));
    }
    Ok(points)
}

async fn subscriptions(subject: &Subject, most: usize) -> anyhow::Result<Vec<(usize, u64)>> {
    let mut points = Vec::new();
    let mut made = 0;
    for step in steps(most) {
        subscribe(subject, made..step).await?;
        made = step;
        points.push((step, memory_of(subject).await?));
    }
    Ok(points)
}

/// Bare streams, streams of the mesh, subscriptions; each on a server of its own.
pub(crate) async fn measure(options: MemoryOptions) -> anyhow::Result<MemoryReport> {
    let bare = Subject::bare().await?;
    let bare_streams = streams(&bare, options.streams, |_| "/stream".to_owned()).await?;
    drop(bare);
    let mesh = Subject::mesh("embedded").await?;
    subscribe(&mesh, 0..options.streams).await?;
    let path = |number| format!("/events/stream?clientId=client-{number}");
    let mesh_streams = streams(&mesh, options.streams, path).await?;
    drop(mesh);
    let mesh = Subject::mesh("embedded").await?;
    let subscriptions = subscriptions(&mesh, options.subscriptions).await?;
    let (bare_stream_kib, stream_kib) = (slope(&bare_streams), slope(&mesh_streams));
    Ok(MemoryReport {
        bare_stream_kib,
        stream_kib,
        stream_to_bare: stream_kib / bare_stream_kib,
        subscription_kib: slope(&subscriptions),
        bare_streams,
        streams: mesh_streams,
        subscriptions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_leaves_out_what_is_there_once() {
        assert!((slope(&[(10, 1_030), (20, 1_060), (30, 1_090)]) - 3.0).abs() < 1e-9);
        assert_eq!(steps(20_000).collect::<Vec<_>>(), [4_000, 8_000, 12_000, 16_000, 20_000]);
    }
}
