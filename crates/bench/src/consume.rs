//! Consuming load: clients of one group that poll and acknowledge, while a topic holds enough for them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
use clap::Args;
use mesh_base::{Clock, Tasks};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::{
    process::{Usage, Used},
    raw::{Connection, post},
    span::Span,
};

/// A consuming load.
#[derive(Clone, Debug, Args)]
pub(crate) struct ConsumeLoad {
    /// The server, `host:port`
    #[arg(long, default_value = "127.0.0.1:10105")]
    pub(crate) address: String,
    /// The topic
    #[arg(long, default_value = "bench")]
    pub(crate) topic: String,
    /// Clients of the group
    #[arg(long, default_value_t = 16)]
    pub(crate) clients: usize,
    /// Deliveries a poll asks for
    #[arg(long, default_value_t = 100)]
    pub(crate) max: usize,
    /// Events to publish first, in batches
    #[arg(long, default_value_t = 0)]
    pub(crate) fill: usize,
    /// The server's process, for its processor time and memory
    #[arg(long)]
    pub(crate) pid: Option<u32>,
    #[command(flatten)]
    pub(crate) span: Span,
}

/// What a consuming load measured.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConsumeResult {
    /// Deliveries acknowledged a second.
    pub(crate) rate: f64,
    /// Deliveries acknowledged.
    pub(crate) acked: u64,
    /// Polls that found nothing.
    pub(crate) empty_polls: u64,
    /// What the server used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<Used>,
}

struct Shared {
    counting: AtomicBool,
    stop: AtomicBool,
    acked: AtomicU64,
    empty: AtomicU64,
}

#[derive(Deserialize)]
struct Delivery<'a> {
    #[serde(rename = "deliveryId")]
    id: &'a str,
}

impl ConsumeLoad {
    /// Runs the load.
    pub(crate) async fn run(self) -> anyhow::Result<ConsumeResult> {
        for client in 0..self.clients {
            let body = format!(
                r#"{{"clientId":"bench-{client}","topic":"{}","mode":"LOAD_BALANCE","from":"earliest"}}"#,
                self.topic
            );
            let mut connection = Connection::open(&self.address).await?;
            let request = post(&self.address, "/events/subscribe", "application/json", &body);
            let answer = connection.exchange(&request).await?;
            ensure!(answer.status == 200, "subscribe: {}", String::from_utf8_lossy(answer.body));
        }
        self.publish().await?;
        let shared = Arc::new(Shared {
            counting: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            acked: AtomicU64::new(0),
            empty: AtomicU64::new(0),
        });
        let clock = Clock::system();
        let (report, mut reports) = mpsc::unbounded_channel();
        let tasks = Tasks::new();
        for client in 0..self.clients {
            let connection = Connection::open(&self.address).await?;
            let (load, shared, report) = (self.clone(), shared.clone(), report.clone());
            tasks.spawn("consumer", async move {
                if report.send(load.consume(client, connection, &shared).await).is_err() {
                    tracing::debug!("the load has ended");
                }
            });
        }
        drop(report);
        tokio::time::sleep(Duration::from_secs_f64(self.span.warmup)).await;
        let before = self.pid.map(Usage::of).transpose()?;
        let start = clock.elapsed();
        shared.counting.store(true, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs_f64(self.span.seconds)).await;
        shared.counting.store(false, Ordering::SeqCst);
        let seconds = (clock.elapsed() - start).as_secs_f64();
        let after = self.pid.map(Usage::of).transpose()?;
        shared.stop.store(true, Ordering::SeqCst);
        while let Some(result) = reports.recv().await {
            result?;
        }
        let acked = shared.acked.load(Ordering::SeqCst);
        Ok(ConsumeResult {
            rate: acked as f64 / seconds,
            acked,
            empty_polls: shared.empty.load(Ordering::SeqCst),
            server: before.zip(after).map(|(before, after)| after.since(before, acked)),
        })
    }

    async fn publish(&self) -> anyhow::Result<()> {
        let mut connection = Connection::open(&self.address).await?;
        let data = "x".repeat(512);
        for first in (0..self.fill).step_by(1_000) {
            let events: Vec<String> = (first..self.fill.min(first + 1_000))
                .map(|id| {
                    format!(r#"{{"specversion":"1.0","id":"{id}","source":"/bench","type":"bench.event","data":"{data}"}}"#)
                })
                .collect();
            let path = format!("/events/publish-batch?topic={}", self.topic);
            let body = format!("[{}]", events.join(","));
            let request = post(&self.address, &path, "application/cloudevents-batch+json", &body);
            let answer = connection.exchange(&request).await?;
            ensure!(answer.status == 202, "publish: {}", String::from_utf8_lossy(answer.body));
        }
        Ok(())
    }

    async fn consume(self, client: usize, mut connection: Connection, shared: &Shared) -> anyhow::Result<()> {
        let poll = format!(
            "GET /events/poll?clientId=bench-{client}&max={}&timeoutMs=200 HTTP/1.1\r\nHost: {}\r\n\r\n",
            self.max, self.address
        );
        while !shared.stop.load(Ordering::Relaxed) {
            let answer = connection.exchange(poll.as_bytes()).await?;
            ensure!(answer.status == 200, "poll: {}", String::from_utf8_lossy(answer.body));
            let deliveries: Vec<Delivery<'_>> = serde_json::from_slice(answer.body)?;
            let counting = shared.counting.load(Ordering::Relaxed);
            if deliveries.is_empty() {
                shared.empty.fetch_add(u64::from(counting), Ordering::Relaxed);
                continue;
            }
            let ids: Vec<&str> = deliveries.iter().map(|delivery| delivery.id).collect();
            let count = ids.len() as u64;
            let body = serde_json::to_string(&serde_json::json!({ "deliveryId": ids }))?;
            let request = post(&self.address, "/events/ack", "application/json", &body);
            let answer = connection.exchange(&request).await?;
            ensure!(answer.status == 200, "ack: {}", String::from_utf8_lossy(answer.body));
            if counting {
                shared.acked.fetch_add(count, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}
