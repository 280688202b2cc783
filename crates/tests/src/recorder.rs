//! A client whose every call is in the history.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use rand::{RngExt, SeedableRng, distr::Alphanumeric, rngs::StdRng};
use serde_json::{Value, json};

use mesh_base::Clock;

use crate::{
    AckAnswer, Client, DeadRow, Delivery, EventStream, Fact, History, Moment, Reply, SeekTo, Subscribe, Verb,
    client::encode, id_of,
};

/// A client that records what it does. Clones share the record and the connections.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// The client, for calls that need no record.
    pub client: Client,
    /// The record.
    pub history: History,
    clock: Clock,
    streams: Arc<AtomicU64>,
}

/// A stream whose deliveries are in the record.
#[derive(Debug)]
pub struct RecordedStream {
    recorder: Recorder,
    client: String,
    stream: EventStream,
    number: u64,
    asked: Moment,
}

impl RecordedStream {
    /// The next delivery; `None`: the stream has ended.
    ///
    /// # Errors
    /// When what comes is no delivery.
    pub async fn next(&mut self) -> Result<Option<Delivery>> {
        let delivery = self.stream.next().await?;
        if let Some(delivery) = &delivery {
            self.recorder.received(self.asked, Some(self.number), &self.client, delivery);
        }
        Ok(delivery)
    }

    /// Closes the stream from this side.
    pub fn close(self) {
        drop(self.stream);
        self.recorder.history.record(Fact::StreamClosed);
    }
}

/// Offsets by partition as the admin port writes them.
fn offsets(json: &Value) -> Option<BTreeMap<u32, u64>> {
    let read = |(partition, offset): (&String, &Value)| {
        Some((partition.parse().ok()?, offset.as_str()?.parse().ok()?))
    };
    json.as_object()?.iter().map(read).collect()
}

impl Recorder {
    /// Records what `client` does in `history`.
    pub fn new(client: Client, history: &History) -> Self {
        Self { client, history: history.clone(), clock: Clock::system(), streams: Arc::default() }
    }

    /// Subscribes and sees it accepted.
    ///
    /// # Errors
    /// When it is not.
    pub async fn subscribed(&self, subscribe: &Subscribe) -> Result<()> {
        let answer = self.client.subscribed(subscribe).await?;
        let topic = subscribe.body()["topic"].as_str().context("a topic")?.to_owned();
        let group = answer["group"].as_str().with_context(|| format!("no group in {answer}"))?.to_owned();
        let auto = subscribe.body()["ack"] == "auto";
        self.history.record(Fact::Subscribed { topic, group, auto });
        Ok(())
    }

    fn sent(&self, topic: &str, event: &Value) -> Moment {
        self.history.record(Fact::PublishSent {
            event: id_of(event).to_owned(),
            topic: topic.to_owned(),
            key: event["partitionkey"].as_str().map(str::to_owned),
            data: event["data"].to_string(),
        })
    }

    /// Publishes an event.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn publish(&self, topic: &str, event: &Value) -> Result<Reply> {
        let sent = self.sent(topic, event);
        let reply = self.client.publish(topic, event).await?;
        if reply.status == 202 {
            let answer = reply.json()?;
            let partition = answer["partition"].as_u64().and_then(|partition| u32::try_from(partition).ok());
            let offset = match &answer["offset"] {
                Value::String(text) => text.parse().ok(),
                other => other.as_u64(),
            };
            let position = partition.zip(offset);
            let duplicate = Some(answer["duplicate"] == true);
            self.history.record(Fact::Published {
                sent,
                event: id_of(event).to_owned(),
                position,
                duplicate,
            });
        }
        Ok(reply)
    }

    /// Publishes several events at once.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn publish_batch(&self, topic: &str, events: &[Value]) -> Result<Reply> {
        let sent: Vec<Moment> = events.iter().map(|event| self.sent(topic, event)).collect();
        let reply = self.client.publish_batch(topic, events).await?;
        if reply.status == 202 {
            // How many of them had been stored before is told, not which.
            let duplicate = reply.json()?["duplicates"].is_null().then_some(false);
            for (event, sent) in events.iter().zip(sent) {
                let event = id_of(event).to_owned();
                self.history.record(Fact::Published { sent, event, position: None, duplicate });
            }
        }
        Ok(reply)
    }

    /// Polls.
    ///
    /// # Errors
    /// When there is no answer, or another than 200.
    pub async fn poll(&self, client: &str, max: u32, timeout_ms: u64) -> Result<Vec<Delivery>> {
        let asked = self.history.now();
        let deliveries = self.client.poll(client, max, timeout_ms).await?;
        for delivery in &deliveries {
            self.received(asked, None, client, delivery);
        }
        Ok(deliveries)
    }

    fn received(&self, asked: Moment, stream: Option<u64>, client: &str, delivery: &Delivery) {
        let event = delivery.event();
        self.history.record(Fact::Delivered {
            asked,
            stream,
            at_ms: self.clock.now().0,
            client: client.to_owned(),
            delivery: delivery.delivery_id.clone(),
            topic: delivery.topic.clone(),
            group: delivery.group.clone(),
            event: id_of(&event).to_owned(),
            data: event["data"].to_string(),
            partition: delivery.partition,
            offset: delivery.offset(),
            attempt: delivery.attempt,
            copy_for: event["emreplaygroup"].as_str().map(str::to_owned),
            copy_of: event["emdlposition"].as_str().map(str::to_owned),
        });
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// When there is no answer, or another than 200.
    pub async fn stream(&self, client: &str) -> Result<RecordedStream> {
        let asked = self.history.now();
        let stream = self.client.stream(client).await?;
        let number = self.streams.fetch_add(1, Ordering::Relaxed);
        // Numbers are those of this recorder: with the moment of the opening they are nobody else's.
        let number = (asked.0 as u64) << 20 | number;
        Ok(RecordedStream { recorder: self.clone(), client: client.to_owned(), stream, number, asked })
    }

    /// Gives a delivery back, or rejects it. `None`: the answer is none that such a verb has.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn settle(&self, verb: Verb, delivery: &str) -> Result<Option<AckAnswer>> {
        let at_ms = self.clock.now().0;
        let (path, body) = match verb {
            Verb::Nack { delay_ms: None } => ("/events/nack", json!({"deliveryId": delivery})),
            Verb::Nack { delay_ms } => ("/events/nack", json!({"deliveryId": delivery, "delayMs": delay_ms})),
            Verb::Reject => ("/events/reject", json!({"deliveryId": delivery, "reason": "a test"})),
        };
        let sent = self.history.record(Fact::VerbSent { verb, delivery: delivery.to_owned(), at_ms });
        let answer = match self.client.post(path, &body).await?.status {
            200 => AckAnswer::Acked,
            404 => AckAnswer::Unknown,
            503 | 507 => AckAnswer::Refused,
            _ => return Ok(None),
        };
        self.history.record(Fact::VerbAnswered { sent, answer });
        Ok(Some(answer))
    }

    /// Seeks a group; gives whether it was answered 200.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn seek(&self, topic: &str, group: &str, to: SeekTo) -> Result<bool> {
        let body = match &to {
            SeekTo::Earliest => json!({"to": "earliest"}),
            SeekTo::Latest => json!({"to": "latest"}),
            SeekTo::Offsets(offsets) => {
                let offsets: BTreeMap<_, _> = offsets
                    .iter()
                    .map(|(partition, offset)| (partition.to_string(), offset.to_string()))
                    .collect();
                json!({"to": {"offsets": offsets}})
            }
        };
        let (topic, group) = (topic.to_owned(), group.to_owned());
        let path = format!("/admin/groups/{}/{}/seek", encode(&topic), encode(&group));
        let sent = self.history.record(Fact::SeekSent { topic, group, to });
        let reply = self.client.administer("POST", &path, &body).await?;
        // Any other answer says nothing of what has happened.
        if reply.status != 200 {
            return Ok(false);
        }
        let answer = reply.json()?;
        let done = answer["generation"].as_u64().zip(offsets(&answer["to"]));
        let (generation, to) = done.with_context(|| format!("a seek was answered {answer}"))?;
        self.history.record(Fact::SeekAnswered { sent, generation, to });
        Ok(true)
    }

    /// Takes a sample of the generation of every group of a topic.
    ///
    /// # Errors
    /// When it is not answered.
    pub async fn generations(&self, topic: &str) -> Result<()> {
        let asked = self.history.now();
        let groups = self.client.admin(&format!("/admin/groups?topic={}", encode(topic))).await?;
        let groups: Vec<Value> = groups.expect(200)?.read()?;
        for row in &groups {
            let group = row["group"].as_str().with_context(|| format!("no name in {row}"))?.to_owned();
            let generation = row["generation"].as_u64().with_context(|| format!("no generation in {row}"))?;
            self.history.record(Fact::Generation { asked, topic: topic.to_owned(), group, generation });
        }
        Ok(())
    }

    /// Replays all dead letters of a topic, a thousand at most.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn replay(&self, topic: &str) -> Result<()> {
        let sent = self.history.record(Fact::ReplaySent { topic: topic.to_owned() });
        let path = format!("/admin/dlq/replay?topic={}&max=1000", encode(topic));
        let reply = self.client.administer("POST", &path, &json!({})).await?;
        let replayed = match reply.status {
            200 => reply.json()?["replayed"].as_u64(),
            _ => None,
        };
        self.history.record(Fact::ReplayAnswered { sent, replayed });
        Ok(())
    }

    /// Deletes a topic with its groups, and its dead letters too when `letters` says so. Whether it was there and
    /// is gone.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn delete_topic(&self, topic: &str, letters: bool) -> Result<bool> {
        let sent = self.history.record(Fact::DeleteSent { topic: topic.to_owned(), letters });
        let path = format!("/admin/topics/{}?force=true&deadLetters={letters}", encode(topic));
        let status = self.client.administer("DELETE", &path, &json!({})).await?.status;
        // Any other answer says nothing of what has happened.
        if matches!(status, 200 | 404) {
            self.history.record(Fact::DeleteAnswered { sent, done: status == 200 });
        }
        Ok(status == 200)
    }

    /// Looks at a topic; the lowest offset that may still be there, by partition. `None`: there is no such topic.
    ///
    /// # Errors
    /// When it is not answered.
    pub async fn describe(&self, topic: &str) -> Result<Option<BTreeMap<u32, u64>>> {
        let asked = self.history.now();
        let reply = self.client.admin(&format!("/admin/topics/{}", encode(topic))).await?;
        let (incarnation, starts) = if reply.status == 404 {
            (None, None)
        } else {
            let json = reply.expect(200)?.json()?;
            let start = |row: &Value| {
                let partition = u32::try_from(row["partition"].as_u64()?).ok()?;
                Some((partition, row["start"].as_str()?.parse().ok()?))
            };
            let rows = json["partitions"].as_array().with_context(|| format!("no partitions in {json}"))?;
            let starts: Option<BTreeMap<u32, u64>> = rows.iter().map(start).collect();
            let starts = starts.with_context(|| format!("no starts in {json}"))?;
            (json["incarnation"].as_str().map(str::to_owned), Some(starts))
        };
        let topic = topic.to_owned();
        self.history.record(Fact::Described {
            asked,
            topic,
            incarnation,
            starts: starts.clone().unwrap_or_default(),
        });
        Ok(starts)
    }

    /// Takes a sample of how many events the backlog limits have dropped.
    ///
    /// # Errors
    /// When it is not answered.
    pub async fn dropped(&self) -> Result<()> {
        let asked = self.history.now();
        let reply = self.client.admin("/metrics").await?.expect(200)?;
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        let line = text.lines().find(|line| {
            line.starts_with("eventmesh_dropped_total{") && line.contains("\"dropped_backlog\"")
        });
        let count = match line {
            // A series is there from its first count on.
            None => 0,
            Some(line) => line
                .rsplit(' ')
                .next()
                .and_then(|count| count.parse().ok())
                .with_context(|| format!("no count in {line}"))?,
        };
        self.history.record(Fact::Dropped { asked, count });
        Ok(())
    }

    /// Acknowledges a delivery. `None`: the answer is none that an ack has.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn ack(&self, delivery: &str) -> Result<Option<AckAnswer>> {
        let sent = self.history.record(Fact::AckSent { delivery: delivery.to_owned() });
        let reply = self.client.ack(delivery).await?;
        let answer = match reply.status {
            200 => AckAnswer::Acked,
            404 => AckAnswer::Unknown,
            503 | 507 => AckAnswer::Refused,
            _ => return Ok(None),
        };
        self.history.record(Fact::AckAnswered { sent, delivery: delivery.to_owned(), answer });
        Ok(Some(answer))
    }

    /// Acknowledges deliveries in one request; how each was answered.
    ///
    /// # Errors
    /// When there is no answer, or not one result for each.
    pub async fn ack_many(&self, deliveries: &[String]) -> Result<Vec<AckAnswer>> {
        let sent: Vec<_> =
            deliveries.iter().map(|id| self.history.record(Fact::AckSent { delivery: id.clone() })).collect();
        let reply = self.client.ack_many(deliveries).await?;
        let answers: Vec<AckAnswer> = if matches!(reply.status, 503 | 507) {
            vec![AckAnswer::Refused; deliveries.len()]
        } else {
            let json = reply.expect(200)?.json()?;
            let results = json["results"].as_array().with_context(|| format!("no results in {json}"))?;
            let answer = |result: &Value| match (result["status"].as_str(), result["error"].as_str()) {
                (Some("acked"), _) => AckAnswer::Acked,
                (_, Some("unknown_delivery")) => AckAnswer::Unknown,
                _ => AckAnswer::Refused,
            };
            results.iter().map(answer).collect()
        };
        anyhow::ensure!(
            answers.len() == deliveries.len(),
            "{} results for {}",
            answers.len(),
            deliveries.len()
        );
        for ((id, sent), answer) in deliveries.iter().zip(sent).zip(&answers) {
            self.history.record(Fact::AckAnswered { sent, delivery: id.clone(), answer: *answer });
        }
        Ok(answers)
    }

    /// Takes a sample of every cursor of a topic.
    ///
    /// # Errors
    /// When it is not answered.
    pub async fn sample(&self, topic: &str) -> Result<()> {
        let asked = self.history.now();
        for (place, floor) in self.client.offsets(topic).await? {
            self.history.record(Fact::Cursor { asked, topic: topic.to_owned(), place, floor });
        }
        Ok(())
    }

    /// Reads the dead letters of a topic.
    ///
    /// # Errors
    /// When they are not answered, or a row lacks a member.
    pub async fn browse(&self, topic: &str) -> Result<Vec<DeadRow>> {
        let row = |letter: &Value| {
            Some(DeadRow {
                group: letter["group"].as_str()?.to_owned(),
                event: letter["eventId"].as_str()?.to_owned(),
                partition: u32::try_from(letter["partition"].as_u64()?).ok()?,
                offset: letter["offset"].as_str()?.parse().ok()?,
            })
        };
        let asked = self.history.now();
        let letters = self.client.dead_letters(topic).await?;
        anyhow::ensure!(letters.len() < 1_000, "{topic} has more dead letters than a browse shows");
        let rows: Vec<DeadRow> = letters
            .iter()
            .map(|letter| row(letter).with_context(|| format!("a row of the dead letters is {letter}")))
            .collect::<Result<_>>()?;
        self.history.record(Fact::Browsed { asked, topic: topic.to_owned(), rows: rows.clone() });
        Ok(rows)
    }

    /// Polls and acknowledges with these clients until nothing is pending and nothing more comes.
    ///
    /// # Errors
    /// When something is still pending after `most`.
    pub async fn drain(&self, clients: &[&str], most: Duration) -> Result<()> {
        let end = tokio::time::Instant::now() + most;
        let mut quiet = 0;
        while quiet < 3 {
            let mut came = 0;
            for client in clients {
                let ids: Vec<String> = self
                    .poll(client, 1_000, 100)
                    .await?
                    .into_iter()
                    .map(|delivery| delivery.delivery_id)
                    .collect();
                came += ids.len();
                if !ids.is_empty() {
                    self.ack_many(&ids).await?;
                }
            }
            let pending = self.client.pending().await?;
            quiet = if came == 0 && pending == 0 { quiet + 1 } else { 0 };
            let late = tokio::time::Instant::now() >= end;
            anyhow::ensure!(!late, "{pending} deliveries are still pending after draining for {most:?}");
        }
        Ok(())
    }

    /// Adds a note to the record.
    pub fn note(&self, text: impl Into<String>) {
        self.history.record(Fact::Note(text.into()));
    }
}

/// Data of a given size that no compression makes smaller, always the same for an event.
pub fn sized(id: &str, bytes: usize) -> Value {
    let seed = id.bytes().fold(0u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut random = StdRng::seed_from_u64(seed);
    let fill: String = (0..bytes).map(|_| char::from(random.sample(Alphanumeric))).collect();
    json!({"n": id, "fill": fill})
}
