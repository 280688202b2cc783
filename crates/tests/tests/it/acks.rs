//! Acknowledging, retrying, dead letters.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mesh_frame::parse_timestamp;
use mesh_tests::{Client, Delivery, Server, Subscribe, event, pause, until};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

const SOON: Duration = Duration::from_secs(10);

pub(crate) async fn started() -> Result<(Server, Client)> {
    let mut server = Server::new()?.key("eventmesh.storage.partitions", 1);
    let client = server.start().await?;
    Ok((server, client))
}

fn quick(client: &str) -> Subscribe {
    Subscribe::load_balance(client, "t").ack_timeout_ms(300).backoff_ms(50, 100)
}

/// Polls as `client` until the topic has `count` dead letters; gives what was received meanwhile.
async fn until_dead(client: &Client, names: &[&str], count: usize) -> Result<Vec<Delivery>> {
    let mut got = Vec::new();
    until("the dead letters", Duration::from_secs(30), async || {
        for name in names {
            got.extend(client.poll(name, 100, 100).await.ok()?);
        }
        (client.dead_letters("t").await.ok()?.len() >= count).then_some(())
    })
    .await?;
    Ok(got)
}

#[tokio::test]
async fn three_clients_that_never_acknowledge_make_one_dead_letter() -> Result<()> {
    // covers: U46
    let (_server, client) = started().await?;
    let names = ["a", "b", "c"];
    for name in names {
        client.subscribed(&quick(name).max_attempts(4)).await?;
    }
    client.published("t", [event(1)]).await?;
    let got = until_dead(&client, &names, 1).await?;
    assert_eq!(got.iter().map(|delivery| delivery.attempt).collect::<Vec<_>>(), [1, 2, 3, 4]);
    pause(Duration::from_secs(1)).await;
    let letters = client.dead_letters("t").await?;
    assert_eq!(letters.len(), 1, "{letters:?}");
    let letter = &letters[0];
    assert_eq!(letter["eventId"], "1");
    assert_eq!((&letter["reason"], &letter["attempts"]), (&json!("attempts_exhausted"), &json!(4)));
    for (name, value) in [
        ("emdlgroup", json!("default")),
        ("emdlreason", json!("attempts_exhausted")),
        ("data", event(1)["data"].clone()),
    ] {
        assert_eq!(letter["event"][name], value, "{name} of {letter}");
    }
    for name in ["emdlattempts", "emdltime"] {
        ensure!(letter["event"].get(name).is_some(), "no {name} in {letter}");
    }
    assert_eq!((client.number("dlqCount").await?, client.pending().await?), (1, 0));
    for delivery in &got {
        client.ack(&delivery.delivery_id).await?.expect_error(404, "unknown_delivery")?;
    }
    Ok(())
}

#[tokio::test]
async fn retries_come_at_the_documented_times_and_exactly_so_often() -> Result<()> {
    // covers: U48
    let (_server, client) = started().await?;
    // The ladder in small: 200, 400, 800, 800 ms after a deadline of 1 s.
    client
        .subscribed(
            &Subscribe::load_balance("c", "t").ack_timeout_ms(1_000).backoff_ms(200, 800).max_attempts(5),
        )
        .await?;
    client.published("t", [event(1)]).await?;
    let mut times = Vec::new();
    for attempt in 1..=5 {
        let got = client.receive("c", 1, SOON).await?;
        assert_eq!(got[0].attempt, attempt);
        // The lock began when it was handed out, by the server's own clock.
        times.push(parse_timestamp(&got[0].locked_until).context("a time")?);
    }
    let last = Instant::now();
    for (number, (pair, backoff)) in times.windows(2).zip([200_i64, 400, 800, 800]).enumerate() {
        let gap = pair[1] - pair[0];
        // It is handed out when somebody asks: on a busy machine that is later.
        let (least, most) = (1_000 + backoff * 8 / 10, 1_000 + backoff * 12 / 10 + 2_500);
        ensure!(gap >= least && gap <= most, "gap {number} is {gap} ms, expected {least} to {most}");
    }
    until_dead(&client, &["c"], 1).await?;
    let died = last.elapsed();
    ensure!(
        died >= Duration::from_millis(500) && died <= Duration::from_millis(5_000),
        "it died after {died:?}"
    );
    assert_eq!(client.dead_letters("t").await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn six_attempts_are_the_default() -> Result<()> {
    // covers: U48
    let (_server, client) = started().await?;
    client.subscribed(&quick("c").ack_timeout_ms(100).backoff_ms(10, 20)).await?;
    client.published("t", [event(1)]).await?;
    let got = until_dead(&client, &["c"], 1).await?;
    assert_eq!(got.iter().map(|delivery| delivery.attempt).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    Ok(())
}

#[tokio::test]
async fn the_backoff_stays_within_its_bounds_after_many_attempts() -> Result<()> {
    // covers: U49
    let (_server, client) = started().await?;
    client
        .subscribed(
            &Subscribe::load_balance("c", "t").ack_timeout_ms(100).backoff_ms(5, 50).max_attempts(500),
        )
        .await?;
    client.published("t", [event(1)]).await?;
    // By the server's own times, so that a slow test machine shortens nothing: a lock begins with its hand-out.
    let mut last: Option<i64> = None;
    for attempt in 1..=80 {
        let got = client.receive("c", 1, SOON).await?;
        assert_eq!(got[0].attempt, attempt);
        let locked_until = parse_timestamp(&got[0].locked_until).context("a time")?;
        // The deadline of 100 ms and, from the fifth attempt on, the longest backoff less its jitter; less what
        // rounding to milliseconds takes.
        let least = if attempt > 6 { 100 + 40 - 2 } else { 100 - 2 };
        if let Some(last) = last {
            let gap = locked_until - last;
            ensure!(gap >= least, "attempt {attempt} was handed out after {gap} ms, the floor is {least}");
        }
        last = Some(locked_until);
    }
    Ok(())
}

#[tokio::test]
async fn a_late_ack_counts_and_ends_every_retry() -> Result<()> {
    // covers: U50
    let (_server, client) = started().await?;
    client.subscribed(&quick("c").ack_timeout_ms(500)).await?;
    client.published("t", [event(1)]).await?;
    let first = client.receive("c", 1, SOON).await?;
    let second = client.receive("c", 1, SOON).await?;
    assert_eq!((first[0].attempt, second[0].attempt), (1, 2));
    client.ack(&first[0].delivery_id).await?.expect(200)?;
    client.ack(&second[0].delivery_id).await?.expect_error(404, "unknown_delivery")?;
    let more = client.poll("c", 10, 1_500).await?;
    ensure!(more.is_empty(), "it came a third time");
    let numbers = (
        client.number("eventsDispatched").await?,
        client.number("ackCount").await?,
        client.number("redeliveries").await?,
    );
    assert_eq!(numbers, (2, 1, 1));
    Ok(())
}

#[tokio::test]
async fn pending_returns_to_zero_whatever_the_end_was() -> Result<()> {
    // covers: U52
    let (mut server, client) = started().await?;
    client.subscribed(&quick("c").max_attempts(2)).await?;
    client.subscribed(&Subscribe::broadcast("leaves", "t")).await?;
    client.published("t", (0..20).map(event)).await?;
    let got = client.receive("c", 20, SOON).await?;
    client.receive("leaves", 20, SOON).await?;
    assert_eq!(client.pending().await?, 40);
    let clients = client.admin("/admin/clients?topic=t").await?.expect(200)?.json()?;
    let listed: u64 =
        clients.as_array().into_iter().flatten().filter_map(|client| client["pending"].as_u64()).sum();
    assert_eq!(listed, 40, "{clients}");
    client.acked(&got[..10]).await?;
    client.unsubscribe("leaves", "t").await?.expect(200)?;
    until_dead(&client, &["c"], 10).await?;
    until("pending to be 0", SOON, async || (client.pending().await.ok()? == 0).then_some(())).await?;
    server.kill9();
    let client = server.start().await?;
    assert_eq!(client.pending().await?, 0);
    assert_eq!(client.dead_letters("t").await?.len(), 10);
    Ok(())
}

#[tokio::test]
async fn of_fifty_parallel_acks_one_counts() -> Result<()> {
    // covers: U57
    let (_server, client) = started().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    client.published("t", [event(1)]).await?;
    let delivery = client.receive("c", 1, SOON).await?.remove(0);
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let (client, id) = (client.clone(), delivery.delivery_id.clone());
        tasks.spawn(async move { client.ack(&id).await });
    }
    let mut answers = [0, 0];
    while let Some(reply) = tasks.join_next().await {
        match reply??.status {
            200 => answers[0] += 1,
            404 => answers[1] += 1,
            other => anyhow::bail!("an ack was answered {other}"),
        }
    }
    assert_eq!(answers, [1, 49]);
    assert_eq!(client.number("ackCount").await?, 1);
    assert_eq!(client.offsets("t").await?["default#0"], delivery.offset() + 1);
    Ok(())
}

#[tokio::test]
async fn many_acks_in_one_request_are_answered_one_by_one() -> Result<()> {
    let (_server, client) = started().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    client.published("t", (0..3).map(event)).await?;
    let got = client.receive("c", 3, SOON).await?;
    let ids: Vec<String> = got.iter().map(|delivery| delivery.delivery_id.clone()).collect();
    let asked = [ids[0].clone(), "no-such-id".to_owned(), ids[0].clone(), ids[1].clone()];
    let answer = client.ack_many(&asked).await?.expect(200)?.json()?;
    let results = answer["results"].as_array().context("results")?;
    let short: Vec<&str> =
        results.iter().map(|one| one["status"].as_str().or(one["error"].as_str()).unwrap_or("?")).collect();
    assert_eq!(short, ["acked", "unknown_delivery", "unknown_delivery", "acked"], "{answer}");
    assert_eq!(results[1]["deliveryId"], "no-such-id");
    for wrong in [
        json!({}),
        json!({"deliveryId": 5}),
        json!({"deliveryId": null}),
        json!([]),
        json!({"deliveryId": [5]}),
    ] {
        let reply = client.post("/events/ack", &wrong).await?;
        ensure!(reply.status == 400 && !reply.code().is_empty(), "{wrong}: {reply}");
    }
    let many: Vec<String> = (0..10_001).map(|number| number.to_string()).collect();
    client.ack_many(&many).await?.expect(400)?;
    assert_eq!(client.ack_many(&[]).await?.expect(200)?.json()?, json!({"results": []}));
    Ok(())
}
