//! An event that ends its consumer each time takes nothing else with it into the dead letters.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use mesh_tests::{Client, Delivery, EventStream, Server, Subscribe, event, pause};
use tokio::time::{Instant, timeout};

const SOON: Duration = Duration::from_secs(30);
const GUILTY: &str = "4";

/// A consumer that looks at nothing before it has all that comes at once.
struct Consumer {
    client: Client,
    stream: Option<EventStream>,
}

impl Consumer {
    /// What comes at once, by poll or over a stream that stays open.
    async fn next(&mut self, by_stream: bool) -> Result<Vec<Delivery>> {
        if !by_stream {
            return self.client.poll("c", 100, 200).await;
        }
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => self.stream.insert(self.client.stream("c").await?),
        };
        let mut got = Vec::new();
        while let Ok(next) = timeout(Duration::from_millis(100), stream.next()).await {
            got.push(next?.context("the stream ended by itself")?);
        }
        Ok(got)
    }
}

fn group() -> Subscribe {
    Subscribe::load_balance("c", "t").ack_timeout_ms(400).backoff_ms(20, 50).max_attempts(5)
}

/// Lets a consumer run that dies of one event, with the server killed at some point; sees what is left of the ten.
async fn consume(by_stream: bool, killed_after: usize) -> Result<()> {
    let mut server = Server::new()?.key("eventmesh.storage.partitions", 1);
    let mut consumer = Consumer { client: server.start().await?, stream: None };
    consumer.client.subscribed(&group()).await?;
    consumer.client.published("t", (0..10).map(event)).await?;
    let (mut acked, mut deaths, mut alone) = (BTreeSet::new(), 0, 0);
    let end = Instant::now() + SOON;
    while acked.len() < 9 || consumer.client.dead_letters("t").await?.is_empty() {
        ensure!(Instant::now() < end, "acked {acked:?}, {deaths} deaths");
        let got = consumer.next(by_stream).await?;
        let Some(guilty) = got.iter().find(|delivery| delivery.id() == GUILTY) else {
            consumer.client.acked(&got).await?;
            acked.extend(got.iter().map(Delivery::id));
            continue;
        };
        // It dies, with everything that it has.
        deaths += 1;
        alone += usize::from(got.len() == 1);
        let ids: Vec<String> = got.iter().map(Delivery::id).collect();
        ensure!(guilty.attempt <= 2 || got.len() == 1, "attempt {} among {ids:?}", guilty.attempt);
        consumer.stream = None;
        if deaths == killed_after {
            server.kill9();
            consumer.client = server.start().await?;
        }
    }
    let client = consumer.client;
    let letters = client.dead_letters("t").await?;
    let ids: Vec<&str> = letters.iter().filter_map(|letter| letter["event"]["id"].as_str()).collect();
    ensure!(ids == [GUILTY], "{letters:?}");
    ensure!(acked.len() == 9 && alone == 3 && client.pending().await? == 0, "{acked:?}, {alone} times alone");
    Ok(())
}

#[tokio::test]
async fn of_ten_polled_events_only_the_one_that_kills_its_consumer_becomes_a_dead_letter() -> Result<()> {
    consume(false, usize::MAX).await
}

#[tokio::test]
async fn of_ten_streamed_events_only_the_one_that_kills_its_consumer_becomes_a_dead_letter() -> Result<()> {
    consume(true, usize::MAX).await
}

#[tokio::test]
async fn lost_locks_are_counted_across_a_kill_of_the_server() -> Result<()> {
    // Polled deliveries keep their locks, which run out after the start as they would have before.
    consume(false, 1).await?;
    consume(false, 2).await
}

#[tokio::test]
async fn what_is_given_back_with_a_word_or_cut_off_by_the_server_goes_on_together() -> Result<()> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    client.subscribed(&group().ack_timeout_ms(60_000).max_attempts(20)).await?;
    client.published("t", (0..10).map(event)).await?;
    for _ in 0..3 {
        let got = client.receive("c", 10, SOON).await?;
        let ids: Vec<String> = got.iter().map(|delivery| delivery.delivery_id.clone()).collect();
        let body = serde_json::json!({"deliveryId": ids, "delayMs": 0});
        client.post("/events/nack", &body).await?.expect(200)?;
    }
    for round in 0..3 {
        let mut stream = server.client().stream("c").await?;
        let mut got = 0;
        while got < 10 {
            ensure!(timeout(SOON, stream.next()).await??.is_some(), "{got} of 10 came");
            got += 1;
        }
        // A planned stop and a kill in turn: neither is the consumer's doing.
        if round % 2 == 0 {
            server.stop().await?
        } else {
            server.kill9()
        }
        server.start().await?;
    }
    let client = server.client();
    // Each of them waits for its backoff first.
    pause(Duration::from_millis(500)).await;
    // An answer has what is in memory: after the start a partition each.
    let (mut got, mut answers) = (0, 0);
    while got < 10 {
        let came = client.poll("c", 100, 10_000).await?.len();
        ensure!(came > 0, "{got} of 10 came");
        (got, answers) = (got + came, answers + 1);
    }
    ensure!(answers <= 4, "in {answers} answers");
    Ok(())
}
