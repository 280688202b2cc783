//! An event that ends whoever gets it: only that one becomes a dead letter, not what came beside it.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, ensure};
use mesh_tests::{Client, Delivery, EventStream, Server, Subscribe, event, until};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(30);
/// The event that ends its consumers.
const GUILTY: &str = "3";

async fn with_ten_events(consumer: &Subscribe) -> Result<(Server, Client)> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    client.subscribed(consumer).await?;
    let events: Vec<Value> = (0..10).map(event).collect();
    client.publish_batch("t", &events).await?.expect(202)?;
    Ok((server, client))
}

fn consumer() -> Subscribe {
    Subscribe::load_balance("c", "t").ack_timeout_ms(400).backoff_ms(10, 10).max_attempts(5)
}

/// The next delivery; `None`: none came in that time, or the stream has ended.
async fn next_within(stream: &mut EventStream, most: Duration) -> Result<Option<Delivery>> {
    tokio::time::timeout(most, stream.next()).await.unwrap_or(Ok(None))
}

fn is_guilty(delivery: &Delivery) -> bool {
    delivery.id() == GUILTY
}

/// Only the guilty one is dead, after all its attempts, and everything else is done.
async fn only_the_guilty_one_dies(client: &Client, acked: &BTreeSet<String>) -> Result<()> {
    let others: BTreeSet<String> = (0..10).map(|id| id.to_string()).filter(|id| id != GUILTY).collect();
    assert_eq!(*acked, others);
    let dead = client.dead_letters("t").await?;
    ensure!(dead.len() == 1 && dead[0]["eventId"] == GUILTY && dead[0]["attempts"] == 5, "{dead:?}");
    assert_eq!(client.pending().await?, 0);
    Ok(())
}

#[tokio::test]
async fn of_ten_that_are_polled_together_only_the_one_that_ends_its_consumer_dies() -> Result<()> {
    let (_server, client) = with_ten_events(&consumer()).await?;
    let (mut acked, mut alone) = (BTreeSet::new(), 0);
    until("the guilty one to be dead and the others done", SOON, async || {
        let got = client.poll("c", 100, 200).await.ok()?;
        if got.iter().any(is_guilty) {
            // The consumer dies with all that it has: no ack and no nack.
            alone += u32::from(got.len() == 1);
        } else {
            client.acked(&got).await.ok()?;
            acked.extend(got.iter().map(Delivery::id));
        }
        let dead = client.dead_letters("t").await.ok()?;
        (!dead.is_empty() && acked.len() == 9).then_some(())
    })
    .await?;
    ensure!(alone >= 3, "of five attempts {alone} were alone");
    only_the_guilty_one_dies(&client, &acked).await
}

#[tokio::test]
async fn of_ten_that_are_streamed_together_only_the_one_that_ends_its_consumer_dies() -> Result<()> {
    let (_server, client) = with_ten_events(&consumer().ack_timeout_ms(60_000)).await?;
    let mut acked = BTreeSet::new();
    let mut lives = 0;
    while acked.len() < 9 || client.dead_letters("t").await?.is_empty() {
        lives += 1;
        ensure!(lives < 60, "{acked:?} are done");
        let mut stream = client.stream("c").await?;
        loop {
            // What comes together is worked on together.
            let mut got = Vec::new();
            while let Some(delivery) = next_within(&mut stream, Duration::from_millis(200)).await? {
                got.push(delivery);
            }
            if got.iter().any(is_guilty) {
                let beside = lives > 3 && got.len() > 1;
                ensure!(!beside, "{} came beside it in life {lives}", got.len() - 1);
                break;
            }
            if got.is_empty() {
                break;
            }
            client.acked(&got).await?;
            acked.extend(got.iter().map(Delivery::id));
        }
    }
    until("the dead letter", SOON, async || (client.pending().await.ok()? == 0).then_some(())).await?;
    only_the_guilty_one_dies(&client, &acked).await
}

#[tokio::test]
async fn what_is_given_back_with_a_word_or_cut_off_by_the_server_goes_on_together() -> Result<()> {
    let (mut server, client) = with_ten_events(&consumer().ack_timeout_ms(60_000).max_attempts(20)).await?;
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
            ensure!(next_within(&mut stream, SOON).await?.is_some(), "{got} of 10 came");
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
    until("all ten in one answer", SOON, async || {
        let got = client.poll("c", 100, 1_000).await.ok()?;
        (got.len() == 10).then_some(())
    })
    .await
}
