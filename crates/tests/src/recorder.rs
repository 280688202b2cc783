//! A client whose every call is in the history.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{AckAnswer, Client, DeadRow, Delivery, Fact, History, Reply, Subscribe, id_of};

/// A client that records what it does. Clones share the record and the connections.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// The client, for calls that need no record.
    pub client: Client,
    /// The record.
    pub history: History,
}

impl Recorder {
    /// Records what `client` does in `history`.
    pub fn new(client: Client, history: &History) -> Self {
        Self { client, history: history.clone() }
    }

    /// Subscribes and sees it accepted.
    ///
    /// # Errors
    /// When it is not.
    pub async fn subscribed(&self, subscribe: &Subscribe) -> Result<()> {
        let answer = self.client.subscribed(subscribe).await?;
        let topic = subscribe.body()["topic"].as_str().context("a topic")?.to_owned();
        let group = answer["group"].as_str().with_context(|| format!("no group in {answer}"))?.to_owned();
        self.history.record(Fact::Subscribed { topic, group });
        Ok(())
    }

    fn sent(&self, topic: &str, event: &Value) {
        self.history.record(Fact::PublishSent {
            event: id_of(event).to_owned(),
            topic: topic.to_owned(),
            key: event["partitionkey"].as_str().map(str::to_owned),
            data: event["data"].to_string(),
        });
    }

    /// Publishes an event.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn publish(&self, topic: &str, event: &Value) -> Result<Reply> {
        self.sent(topic, event);
        let reply = self.client.publish(topic, event).await?;
        if reply.status == 202 {
            let answer = reply.json()?;
            let partition = answer["partition"].as_u64().and_then(|partition| u32::try_from(partition).ok());
            let offset = match &answer["offset"] {
                Value::String(text) => text.parse().ok(),
                other => other.as_u64(),
            };
            let position = partition.zip(offset);
            self.history.record(Fact::Published { event: id_of(event).to_owned(), position });
        }
        Ok(reply)
    }

    /// Publishes several events at once.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn publish_batch(&self, topic: &str, events: &[Value]) -> Result<Reply> {
        events.iter().for_each(|event| self.sent(topic, event));
        let reply = self.client.publish_batch(topic, events).await?;
        if reply.status == 202 {
            for event in events {
                self.history.record(Fact::Published { event: id_of(event).to_owned(), position: None });
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
            let event = delivery.event();
            self.history.record(Fact::Delivered {
                asked,
                client: client.to_owned(),
                delivery: delivery.delivery_id.clone(),
                topic: delivery.topic.clone(),
                group: delivery.group.clone(),
                event: id_of(&event).to_owned(),
                data: event["data"].to_string(),
                partition: delivery.partition,
                offset: delivery.offset(),
                attempt: delivery.attempt,
            });
        }
        Ok(deliveries)
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
        let letters = self.client.dead_letters(topic).await?;
        anyhow::ensure!(letters.len() < 1_000, "{topic} has more dead letters than a browse shows");
        let rows: Vec<DeadRow> = letters
            .iter()
            .map(|letter| row(letter).with_context(|| format!("a row of the dead letters is {letter}")))
            .collect::<Result<_>>()?;
        self.history.record(Fact::Browsed { topic: topic.to_owned(), rows: rows.clone() });
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

/// Data of a given size, different for each event.
pub fn sized(id: &str, bytes: usize) -> Value {
    json!({"n": id, "fill": id.repeat(bytes / id.len().max(1) + 1)})
}
