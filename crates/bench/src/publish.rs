//! Publishing load: closed loop (each connection as fast as it is answered) or open loop (a given rate).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use clap::Args;
use hdrhistogram::Histogram;
use mesh_base::{Clock, Tasks};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::{
    process::{Usage, Used},
    raw::Connection,
    span::Span,
};

/// A publishing load.
#[derive(Clone, Debug, Args)]
pub(crate) struct PublishLoad {
    /// The server, `host:port`
    #[arg(long, default_value = "127.0.0.1:10105")]
    pub(crate) address: String,
    /// The topic
    #[arg(long, default_value = "bench")]
    pub(crate) topic: String,
    /// Connections at a time
    #[arg(long, default_value_t = 64)]
    pub(crate) connections: usize,
    /// Bytes of data an event carries
    #[arg(long, default_value_t = 512)]
    pub(crate) bytes: usize,
    /// Events a second over all connections; without it each connection publishes as fast as it is answered
    #[arg(long)]
    pub(crate) rate: Option<f64>,
    /// The bearer token; without it requests carry no credential
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// The server's process, for its processor time and memory
    #[arg(long)]
    pub(crate) pid: Option<u32>,
    #[command(flatten)]
    pub(crate) span: Span,
}

/// What a publishing load measured.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PublishResult {
    /// Events answered 202 a second.
    pub(crate) rate: f64,
    /// Events answered 202.
    pub(crate) events: u64,
    /// Other answers.
    pub(crate) refused: u64,
    /// Microseconds from the intended send time to the answer.
    pub(crate) latency_us: Quantiles,
    /// What the server used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<Used>,
}

/// Quantiles of a latency.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

impl Quantiles {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            max: histogram.max(),
        }
    }
}

/// What the connections of a load share.
struct Shared {
    clock: Clock,
    counting: AtomicBool,
    stop: AtomicBool,
    events: AtomicU64,
    refused: AtomicU64,
}

impl PublishLoad {
    /// Closed loop, 512 bytes an event, for a server that is still to be named.
    pub(crate) fn closed(connections: usize, span: Span) -> Self {
        let (address, topic) = (String::new(), "bench".to_owned());
        Self { address, topic, connections, bytes: 512, rate: None, token: None, pid: None, span }
    }

    /// Runs the load.
    pub(crate) async fn run(self) -> anyhow::Result<PublishResult> {
        let shared = Arc::new(Shared {
            clock: Clock::system(),
            counting: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            events: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        });
        let (report, mut reports) = mpsc::unbounded_channel();
        let tasks = Tasks::new();
        for number in 0..self.connections {
            let connection = Connection::open(&self.address).await?;
            let pace = self.rate.map(|rate| Duration::from_secs_f64(self.connections as f64 / rate));
            let client = Client { number, request: self.request(number), pace, shared: shared.clone() };
            let report = report.clone();
            tasks.spawn("publisher", async move {
                let result = client.run(connection).await;
                if report.send(result).is_err() {
                    tracing::debug!("the load has ended");
                }
            });
        }
        drop(report);
        tokio::time::sleep(Duration::from_secs_f64(self.span.warmup)).await;
        let before = self.pid.map(Usage::of).transpose()?;
        let start = shared.clock.elapsed();
        shared.counting.store(true, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs_f64(self.span.seconds)).await;
        shared.counting.store(false, Ordering::SeqCst);
        let seconds = (shared.clock.elapsed() - start).as_secs_f64();
        let after = self.pid.map(Usage::of).transpose()?;
        shared.stop.store(true, Ordering::SeqCst);
        let mut latency = Histogram::new(3)?;
        while let Some(result) = reports.recv().await {
            latency.add(result?)?;
        }
        let events = shared.events.load(Ordering::SeqCst);
        Ok(PublishResult {
            rate: events as f64 / seconds,
            events,
            refused: shared.refused.load(Ordering::SeqCst),
            latency_us: Quantiles::of(&latency),
            server: before.zip(after).map(|(before, after)| after.since(before, events)),
        })
    }

    /// What one of the connections sends.
    pub(crate) fn request(&self, connection: usize) -> Request {
        let data = "x".repeat(self.bytes);
        let id = format!("{connection:06}{:012}", 0);
        let body = format!(
            r#"{{"specversion":"1.0","id":"{id}","source":"/bench","type":"bench.event","datacontenttype":"application/json","data":"{data}"}}"#
        );
        let authorization = self
            .token
            .as_ref()
            .map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        let head = format!(
            "POST /events/publish?topic={} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/cloudevents+json\r\n\
             {authorization}Content-Length: {}\r\n\r\n",
            self.topic,
            self.address,
            body.len()
        );
        let place = head.len() + body.find(&id).expect("the body holds its id") + 6;
        Request { bytes: (head + &body).into_bytes(), place }
    }
}

/// A prepared request, and where the running number of its event's id stands.
pub(crate) struct Request {
    bytes: Vec<u8>,
    place: usize,
}

impl Request {
    /// The bytes with this number.
    pub(crate) fn numbered(&mut self, number: u64) -> &[u8] {
        let digits = format!("{number:012}");
        self.bytes[self.place..self.place + 12].copy_from_slice(digits.as_bytes());
        &self.bytes
    }
}

struct Client {
    number: usize,
    request: Request,
    pace: Option<Duration>,
    shared: Arc<Shared>,
}

impl Client {
    async fn run(mut self, mut connection: Connection) -> anyhow::Result<Histogram<u64>> {
        let mut latency = Histogram::new(3)?;
        let clock = self.shared.clock;
        // Open loop: the connections start spread over one interval, and a late event is measured from when
        // it should have been sent.
        let mut due =
            clock.elapsed() + self.pace.unwrap_or_default().mul_f64(self.number as f64 % 64.0 / 64.0);
        for number in 0.. {
            if self.shared.stop.load(Ordering::Relaxed) {
                break;
            }
            if let Some(pace) = self.pace {
                let wait = due.saturating_sub(clock.elapsed());
                if !wait.is_zero() {
                    tokio::time::sleep(wait).await;
                }
                due += pace;
            }
            let sent = self.pace.map_or_else(|| clock.elapsed(), |pace| due - pace);
            let answer = connection.exchange(self.request.numbered(number)).await?;
            if self.shared.counting.load(Ordering::Relaxed) {
                let counter = if answer.status == 202 { &self.shared.events } else { &self.shared.refused };
                counter.fetch_add(1, Ordering::Relaxed);
                let took = clock.elapsed().saturating_sub(sent);
                latency.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1))?;
            }
        }
        Ok(latency)
    }
}
