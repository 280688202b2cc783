//! Delivery under a constant load: from when an event should have been published to when a subscriber has it.
//!
//! Open loop: events are published by the clock, whatever became of those before, and each carries its number, from
//! which every receiver knows when it was due. What did not come within ten seconds after the last is missing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use mesh_base::{Clock, Tasks};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::{
    process::{Usage, Used},
    publish::Quantiles,
    raw::{Connection, post},
    span::Span,
    sse::Events,
};

/// How long after the last event the others may come.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections that publish.
const PUBLISHERS: u64 = 4;
/// Ids in one ack.
const ACKS: usize = 1_000;

/// How events come to their subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Streams of the bare endpoint
    Bare,
    /// Streams whose deliveries are done when they are handed out
    Auto,
    /// Streams with acks, in arrays over another connection
    Explicit,
    /// Long polls with acks
    Poll,
}

/// A constant load of events, and who receives them.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeliverLoad {
    /// The server, `host:port`
    #[arg(long, default_value = "127.0.0.1:10105")]
    pub(crate) address: String,
    /// The topic
    #[arg(long, default_value = "bench")]
    pub(crate) topic: String,
    /// How events come
    #[arg(long, value_enum, default_value_t = By::Auto)]
    pub(crate) by: By,
    /// Subscribers, each of which gets every event
    #[arg(long, default_value_t = 1_000)]
    pub(crate) subscribers: usize,
    /// Events a second
    #[arg(long, default_value_t = 20.0)]
    pub(crate) rate: f64,
    /// Bytes of data an event carries
    #[arg(long, default_value_t = 512)]
    pub(crate) bytes: usize,
    /// The server's process, for its processor time and memory
    #[arg(long)]
    pub(crate) pid: Option<u32>,
    #[command(flatten)]
    pub(crate) span: Span,
}

/// A constant load for one subscriber.
#[derive(Clone, Debug, Args)]
pub(crate) struct LatencyLoad {
    /// The server, `host:port`
    #[arg(long, default_value = "127.0.0.1:10105")]
    address: String,
    /// The topic
    #[arg(long, default_value = "bench")]
    topic: String,
    /// How events come
    #[arg(long, value_enum, default_value_t = By::Poll)]
    by: By,
    /// Events a second
    #[arg(long, default_value_t = 1_000.0)]
    rate: f64,
    /// Bytes of data an event carries
    #[arg(long, default_value_t = 512)]
    bytes: usize,
    #[command(flatten)]
    span: Span,
}

impl LatencyLoad {
    /// Runs the load.
    pub(crate) async fn run(self) -> anyhow::Result<DeliverResult> {
        let Self { address, topic, by, rate, bytes, span } = self;
        DeliverLoad { address, topic, by, subscribers: 1, rate, bytes, pid: None, span }.run().await
    }
}

/// What a load measured.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeliverResult {
    /// Deliveries that count.
    pub(crate) deliveries: u64,
    /// Events that a subscriber did not get.
    pub(crate) missing: u64,
    /// Events that a subscriber got again.
    pub(crate) repeated: u64,
    /// Acks that were not answered with success.
    pub(crate) refused_acks: u64,
    /// Microseconds from when an event should have been published to when a subscriber had it.
    pub(crate) latency_us: Quantiles,
    /// Bytes of a delivery as it was sent.
    pub(crate) bytes_per_delivery: u64,
    /// What the server used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<Used>,
}

/// When events are due.
#[derive(Clone, Copy)]
struct Schedule {
    clock: Clock,
    start: Duration,
    pace: Duration,
    /// Events that do not count.
    warmup: u64,
    events: u64,
}

impl Schedule {
    fn due(&self, number: u64) -> Duration {
        self.start + self.pace.mul_f64(number as f64)
    }

    async fn until(&self, due: Duration) {
        let wait = due.saturating_sub(self.clock.elapsed());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}

/// What one subscriber saw.
struct Seen {
    schedule: Schedule,
    came: Vec<bool>,
    missing: u64,
    repeated: u64,
    bytes: u64,
    latency: Histogram<u64>,
}

impl Seen {
    fn new(schedule: Schedule) -> anyhow::Result<Self> {
        let came = vec![false; usize::try_from(schedule.events)?];
        let latency = Histogram::new(3)?;
        Ok(Self { schedule, came, missing: schedule.events, repeated: 0, bytes: 0, latency })
    }

    /// A delivery came.
    fn delivery(&mut self, text: &[u8]) -> anyhow::Result<()> {
        let now = self.schedule.clock.elapsed();
        let Some(number) = number_in(text) else { return Ok(()) };
        let Some(came) = self.came.get_mut(usize::try_from(number)?) else { return Ok(()) };
        if std::mem::replace(came, true) {
            self.repeated += 1;
            return Ok(());
        }
        self.missing -= 1;
        if number >= self.schedule.warmup {
            let took = now.saturating_sub(self.schedule.due(number));
            self.latency.record(u64::try_from(took.as_micros())?.max(1))?;
            self.bytes += text.len() as u64;
        }
        Ok(())
    }
}

/// The number an event carries at the beginning of its data: `#000000000042`.
fn number_in(text: &[u8]) -> Option<u64> {
    let place = memchr::memchr(b'#', text)? + 1;
    std::str::from_utf8(text.get(place..place + 12)?).ok()?.parse().ok()
}

/// The id in the line that it has in a stream.
fn delivery_id(text: &[u8]) -> Option<&str> {
    let start = memchr::memmem::find(text, b"id: ")? + 4;
    let length = memchr::memchr(b'\n', &text[start..])?;
    std::str::from_utf8(&text[start..start + length]).ok()
}

#[derive(Deserialize)]
struct Polled<'a> {
    #[serde(rename = "deliveryId")]
    id: &'a str,
    #[serde(borrow)]
    event: &'a serde_json::value::RawValue,
}

impl DeliverLoad {
    /// Runs the load.
    pub(crate) async fn run(self) -> anyhow::Result<DeliverResult> {
        self.subscribe().await?;
        let mut streams = Vec::new();
        if self.by != By::Poll {
            for number in 0..self.subscribers {
                streams.push(Events::open(&self.address, &self.stream_path(number)).await?);
            }
        }
        let clock = Clock::system();
        let schedule = Schedule {
            clock,
            start: clock.elapsed() + Duration::from_millis(200),
            pace: Duration::from_secs_f64(1.0 / self.rate),
            warmup: (self.rate * self.span.warmup) as u64,
            events: (self.rate * (self.span.warmup + self.span.seconds)) as u64,
        };
        let tasks = Tasks::new();
        let refused = Arc::new(AtomicU64::new(0));
        let (report, mut reports) = mpsc::unbounded_channel();
        let (acks, to_ack) = mpsc::unbounded_channel();
        let (acked, mut acks_done) = mpsc::channel(1);
        let acker = acknowledge(self.address.clone(), to_ack, refused.clone());
        tasks.spawn("acker", async move { drop(acked.send(acker.await).await) });
        for stream in streams {
            let (report, acks) = (report.clone(), (self.by == By::Explicit).then(|| acks.clone()));
            tasks.spawn("subscriber", async move {
                drop(report.send(receive(stream, schedule, acks).await));
            });
        }
        if self.by == By::Poll {
            for number in 0..self.subscribers {
                let (load, report, refused) = (self.clone(), report.clone(), refused.clone());
                tasks.spawn("subscriber", async move {
                    drop(report.send(load.poll(number, schedule, &refused).await));
                });
            }
        }
        drop((report, acks));
        let (published, mut publishers) = mpsc::unbounded_channel();
        for first in 0..PUBLISHERS {
            let (load, published) = (self.clone(), published.clone());
            tasks.spawn("publisher", async move {
                drop(published.send(load.publish(first, schedule).await));
            });
        }
        drop(published);
        schedule.until(schedule.due(schedule.warmup)).await;
        let before = self.pid.map(Usage::of).transpose()?;
        while let Some(result) = publishers.recv().await {
            result?;
        }
        let mut latency = Histogram::new(3)?;
        let (mut missing, mut repeated, mut bytes) = (0, 0, 0);
        while let Some(seen) = reports.recv().await {
            let seen = seen?;
            latency.add(&seen.latency)?;
            missing += seen.missing;
            repeated += seen.repeated;
            bytes += seen.bytes;
        }
        if let Some(acked) = acks_done.recv().await {
            acked?;
        }
        let after = self.pid.map(Usage::of).transpose()?;
        let deliveries = latency.len();
        Ok(DeliverResult {
            deliveries,
            missing,
            repeated,
            refused_acks: refused.load(Ordering::SeqCst),
            latency_us: Quantiles::of(&latency),
            bytes_per_delivery: bytes / deliveries.max(1),
            server: before.zip(after).map(|(before, after)| after.since(before, deliveries)),
        })
    }

    fn client(&self, number: usize) -> String {
        format!("{}-{number}", self.topic)
    }

    fn stream_path(&self, number: usize) -> String {
        if self.by == By::Bare {
            return "/stream".to_owned();
        }
        format!("/events/stream?clientId={}", self.client(number))
    }

    async fn subscribe(&self) -> anyhow::Result<()> {
        if self.by == By::Bare {
            return Ok(());
        }
        let ack = if self.by == By::Auto { "auto" } else { "explicit" };
        // A group of one that shares is what most have; it is as much as a group of its own.
        let mode = if self.subscribers == 1 { "LOAD_BALANCE" } else { "BROADCAST" };
        let mut connection = Connection::open(&self.address).await?;
        for number in 0..self.subscribers {
            let body = format!(
                r#"{{"clientId":"{}","topic":"{}","mode":"{mode}","ack":"{ack}"}}"#,
                self.client(number),
                self.topic
            );
            let request = post(&self.address, "/events/subscribe", "application/json", &body);
            let answer = connection.exchange(&request).await?;
            ensure!(answer.status == 200, "subscribe: {}", String::from_utf8_lossy(answer.body));
        }
        Ok(())
    }

    /// Publishes every fourth event when it is due.
    async fn publish(self, first: u64, schedule: Schedule) -> anyhow::Result<()> {
        let mut connection = Connection::open(&self.address).await?;
        let padding = "x".repeat(self.bytes.saturating_sub(14));
        let path = match self.by {
            By::Bare => "/publish".to_owned(),
            _ => format!("/events/publish?topic={}", self.topic),
        };
        for number in (first..schedule.events).step_by(PUBLISHERS as usize) {
            let data = format!("#{number:012}#{padding}");
            let request = if self.by == By::Bare {
                post(&self.address, &path, "text/plain", &data)
            } else {
                let body = format!(
                    r#"{{"specversion":"1.0","id":"{number}","source":"/bench","type":"bench.event","datacontenttype":"application/json","data":"{data}"}}"#
                );
                post(&self.address, &path, "application/cloudevents+json", &body)
            };
            schedule.until(schedule.due(number)).await;
            let answer = connection.exchange(&request).await?;
            ensure!(answer.status == 202, "publish: {}", String::from_utf8_lossy(answer.body));
        }
        Ok(())
    }

    async fn poll(self, number: usize, schedule: Schedule, refused: &AtomicU64) -> anyhow::Result<Seen> {
        let mut seen = Seen::new(schedule)?;
        let mut connection = Connection::open(&self.address).await?;
        let poll = format!(
            "GET /events/poll?clientId={}&timeoutMs=1000 HTTP/1.1\r\nHost: {}\r\n\r\n",
            self.client(number),
            self.address
        );
        let end = schedule.due(schedule.events) + PATIENCE;
        while seen.missing > 0 && schedule.clock.elapsed() < end {
            let answer = connection.exchange(poll.as_bytes()).await?;
            ensure!(answer.status == 200, "poll: {}", String::from_utf8_lossy(answer.body));
            let deliveries: Vec<Polled<'_>> = serde_json::from_slice(answer.body)?;
            for delivery in &deliveries {
                seen.delivery(delivery.event.get().as_bytes())?;
            }
            if !deliveries.is_empty() {
                let ids: Vec<String> = deliveries.iter().map(|delivery| delivery.id.to_owned()).collect();
                refused.fetch_add(ack(&mut connection, &self.address, &ids).await?, Ordering::SeqCst);
            }
        }
        Ok(seen)
    }
}

/// Reads a stream until everything has come or the patience is over.
async fn receive(
    mut stream: Events,
    schedule: Schedule,
    acks: Option<mpsc::UnboundedSender<String>>,
) -> anyhow::Result<Seen> {
    let mut seen = Seen::new(schedule)?;
    let end = (schedule.due(schedule.events) + PATIENCE).saturating_sub(schedule.clock.elapsed());
    let reading = async {
        while seen.missing > 0 {
            let text = stream.next().await?;
            seen.delivery(text)?;
            if let Some(acks) = &acks
                && let Some(id) = delivery_id(text)
            {
                acks.send(id.to_owned())?;
            }
        }
        anyhow::Ok(())
    };
    // What is missing when the time is over is counted.
    if let Ok(result) = tokio::time::timeout(end, reading).await {
        result?;
    }
    Ok(seen)
}

/// Acknowledges what comes, as many at a time as are there.
async fn acknowledge(
    address: String,
    mut ids: mpsc::UnboundedReceiver<String>,
    refused: Arc<AtomicU64>,
) -> anyhow::Result<()> {
    let mut connection = Connection::open(&address).await?;
    let mut some = Vec::new();
    while ids.recv_many(&mut some, ACKS).await > 0 {
        refused.fetch_add(ack(&mut connection, &address, &some).await?, Ordering::SeqCst);
        some.clear();
    }
    Ok(())
}

/// How many of the ids were not acknowledged.
async fn ack(connection: &mut Connection, address: &str, ids: &[String]) -> anyhow::Result<u64> {
    let body = serde_json::json!({ "deliveryId": ids }).to_string();
    let answer = connection.exchange(&post(address, "/events/ack", "application/json", &body)).await?;
    ensure!(answer.status == 200, "ack: {}", String::from_utf8_lossy(answer.body));
    Ok(memchr::memmem::find_iter(answer.body, b"\"error\"").count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_and_id_are_found_in_a_delivery() {
        let text =
            b"\r\n3f\r\nid: 05tr\ndata: {\"deliveryId\":\"05tr\",\"event\":{\"data\":\"#000000000042#xxx\"}}";
        assert_eq!((number_in(text), delivery_id(text)), (Some(42), Some("05tr")));
        assert_eq!((number_in(b": keep-alive"), delivery_id(b": keep-alive")), (None, None));
    }

    #[test]
    fn what_is_missing_late_and_repeated_is_told_apart() -> anyhow::Result<()> {
        let clock = Clock::system();
        let pace = Duration::from_secs(1);
        let start = clock.elapsed().saturating_sub(Duration::from_secs(10));
        let mut seen = Seen::new(Schedule { clock, start, pace, warmup: 1, events: 3 })?;
        for number in [0, 1, 1, 7] {
            seen.delivery(format!("#{number:012}").as_bytes())?;
        }
        assert_eq!((seen.missing, seen.repeated, seen.latency.len()), (1, 1, 1));
        Ok(())
    }
}
