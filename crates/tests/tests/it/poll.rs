//! The long poll that everything arrives by: how long it takes, who gets what, who is told that he is nobody.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mesh_tests::{Subscribe, event, pause};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use crate::acks::started;

#[tokio::test]
async fn polling_without_a_subscription_says_so_and_makes_nothing() -> Result<()> {
    // covers: U130
    let (_server, client) = started().await?;
    for _ in 0..2 {
        client.poll_reply("nobody", 10, 0).await?.expect_error(404, "unknown_client")?;
    }
    client.get("/events/poll").await?.expect_error(400, "missing_parameter")?;
    client.get("/events/poll?clientId=").await?.expect(400)?;
    client.get("/events/poll?clientId=a&clientId=b").await?.expect(400)?;
    assert_eq!(client.admin("/admin/subscriptions").await?.expect(200)?.json()?, json!([]));
    assert_eq!(client.admin("/admin/clients?topic=t").await?.expect(200)?.json()?, Value::Array(Vec::new()));
    Ok(())
}

#[tokio::test]
async fn a_poll_takes_as_long_as_it_must_and_no_longer() -> Result<()> {
    // covers: U129
    let (_server, client) = started().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    let timed = async |max, timeout| {
        let start = Instant::now();
        let got = client.poll("c", max, timeout).await?;
        anyhow::Ok((got, start.elapsed()))
    };
    let (got, took) = timed(10, 0).await?;
    ensure!(
        got.is_empty() && took < Duration::from_millis(1_500),
        "timeoutMs=0: {} after {took:?}",
        got.len()
    );
    let (got, took) = timed(10, 2_000).await?;
    let right = Duration::from_millis(1_990)..Duration::from_millis(4_500);
    ensure!(got.is_empty() && right.contains(&took), "timeoutMs=2000: {} after {took:?}", got.len());
    let start = Instant::now();
    let got = client.get("/events/poll?clientId=c").await?.expect(200)?.json()?;
    let right = Duration::from_millis(990)..Duration::from_millis(3_500);
    ensure!(
        got == json!([]) && right.contains(&start.elapsed()),
        "no parameters: {got} after {:?}",
        start.elapsed()
    );

    // Data ends the wait.
    let publisher = client.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        pause(Duration::from_millis(500)).await;
        publisher.publish("t", &event("late")).await.map(|reply| (reply.status, Instant::now()))
    });
    let (got, _) = timed(10, 10_000).await?;
    let received = Instant::now();
    let (status, published) = tasks.join_next().await.context("one publish")???;
    let gap = received.saturating_duration_since(published);
    ensure!(
        status == 202 && got.len() == 1 && gap < Duration::from_millis(3_000),
        "the event came {gap:?} after its 202"
    );
    client.acked(&got).await?;

    client.published("t", (0..10).map(event)).await?;
    let (got, took) = timed(3, 5_000).await?;
    ensure!(got.len() == 3 && took < Duration::from_secs(4), "max=3: {} after {took:?}", got.len());
    client.acked(&got).await?;
    let (got, _) = timed(100, 1_000).await?;
    assert_eq!(got.len(), 7);
    client.acked(&got).await
}

#[tokio::test]
async fn of_two_parallel_polls_of_a_client_one_gets_the_event_and_the_other_waits_on() -> Result<()> {
    // covers: U129
    let (_server, client) = started().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    let mut polls = JoinSet::new();
    for _ in 0..2 {
        let client = client.clone();
        polls.spawn(async move {
            let start = Instant::now();
            client.poll("c", 10, 5_000).await.map(|got| (got.len(), start.elapsed()))
        });
    }
    pause(Duration::from_millis(300)).await;
    client.published("t", [event(1)]).await?;
    let mut ends = Vec::new();
    while let Some(end) = polls.join_next().await {
        ends.push(end??);
    }
    assert_eq!((ends[0].0, ends[1].0), (1, 0), "{ends:?}");
    ensure!(
        ends[0].1 < Duration::from_millis(4_000) && ends[1].1 >= Duration::from_millis(4_900),
        "{ends:?}"
    );
    Ok(())
}

#[tokio::test]
async fn an_answer_has_at_most_8_mebibytes_and_at_least_one_event() -> Result<()> {
    let (_server, client) = started().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    let large = |id: u32, mebibytes: usize| {
        let mut event = event(id);
        event["data"] = "x".repeat(mebibytes << 20).into();
        event
    };
    client.published("t", [large(1, 3), large(2, 3), large(3, 3), large(4, 7)]).await?;
    let mut sizes = Vec::new();
    while sizes.iter().map(|(events, _)| events).sum::<usize>() < 4 {
        let reply = client.poll_reply("c", 1_000, 5_000).await?.expect(200)?;
        let got: Vec<mesh_tests::Delivery> = reply.read()?;
        ensure!(!got.is_empty(), "{sizes:?}");
        client.acked(&got).await?;
        sizes.push((got.len(), reply.body.len()));
    }
    ensure!(sizes.iter().all(|(_, bytes)| *bytes <= 8 << 20), "{sizes:?}");
    ensure!(sizes.iter().any(|(events, _)| *events == 2), "answers are as full as they may be: {sizes:?}");

    // An event that is larger than that by itself is an answer of its own.
    let mut largest = event(5);
    largest["data"] = "x".repeat((8 << 20) - 2).into();
    client.published("t", [largest]).await?;
    let reply = client.poll_reply("c", 1_000, 5_000).await?.expect(200)?;
    ensure!(reply.body.len() > 8 << 20, "{} bytes", reply.body.len());
    client.acked(&reply.read::<Vec<mesh_tests::Delivery>>()?).await
}
