//! What an operator does through the admin port, and what is left of it when the process is killed meanwhile.
//!
//! `ADMIN_ROUNDS` sets how often each operation is killed, `ADMIN_SEED` replays the moments.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mesh_tests::{Client, Delivery, Raw, Reply, Seed, Server, Subscribe, event, pause, rounds, until};
use rand::RngExt;
use serde_json::{Value, json};
use tokio::task::JoinSet;

const SOON: Duration = Duration::from_secs(20);

fn server(partitions: u32) -> Result<Server> {
    Ok(Server::new()?.key("eventmesh.storage.partitions", partitions))
}

fn once(client: &str) -> Subscribe {
    Subscribe::load_balance(client, "t").ack_timeout_ms(150).backoff_ms(0, 0).max_attempts(1)
}

async fn post(client: &Client, path: &str) -> Result<Reply> {
    client.administer("POST", path, &json!({})).await
}

/// Lets the group of `name` fail everything until the topic has that many dead letters. From then on it has long for
/// an ack, so that nothing dies again on a slow machine.
async fn until_dead(client: &Client, name: &str, count: usize) -> Result<()> {
    until("the dead letters", Duration::from_secs(60), async || {
        client.poll(name, 1_000, 100).await.ok()?;
        (client.dead_letters("t").await.ok()?.len() == count).then_some(())
    })
    .await?;
    client.subscribed(&once(name).ack_timeout_ms(60_000)).await?;
    Ok(())
}

/// Everything that comes until nothing does for a second, acknowledged.
async fn drain(client: &Client, name: &str) -> Result<Vec<Delivery>> {
    let mut all = Vec::new();
    loop {
        let got = client.poll(name, 1_000, 1_000).await?;
        if got.is_empty() {
            return Ok(all);
        }
        let ids: Vec<String> = got.iter().map(|delivery| delivery.delivery_id.clone()).collect();
        client.ack_many(&ids).await?.expect(200)?;
        all.extend(got);
    }
}

/// An operation that is killed in its middle: its answer, when it got to give one.
async fn killed(
    server: &mut Server,
    after: Duration,
    operation: impl Future<Output = Result<Reply>> + Send + 'static,
) -> Option<Reply> {
    let mut running = JoinSet::new();
    running.spawn(operation);
    pause(after).await;
    server.kill9();
    running.join_next().await?.ok()?.ok()
}

#[tokio::test]
async fn a_dead_letter_is_replayed_once_to_the_group_that_failed() -> Result<()> {
    // covers: U46
    let mut server = server(1)?;
    let client = server.start().await?;
    client.subscribed(&once("c")).await?;
    client.subscribed(&Subscribe::broadcast("other", "t")).await?;
    client.published("t", [event(1)]).await?;
    assert_eq!(drain(&client, "other").await?.len(), 1);
    until_dead(&client, "c", 1).await?;
    let dry = post(&client, "/admin/dlq/replay?topic=t&dryRun=true").await?.expect(200)?.json()?;
    assert_eq!(dry, json!({"topic": "t", "replayed": 0, "dryRun": true, "wouldReplay": 1}));
    let done = post(&client, "/admin/dlq/replay?topic=t&max=10").await?.expect(200)?.json()?;
    assert_eq!(done, json!({"topic": "t", "replayed": 1}));
    assert_eq!(client.dead_letters("t").await?.len(), 0, "a replayed entry leaves browse at once");
    let got = client.receive("c", 1, SOON).await?;
    assert_eq!((got[0].id().as_str(), got[0].attempt), ("1", 1));
    assert_eq!(got[0].event()["emreplaygroup"], "default/lb/default");
    let back = client.publish("t", &got[0].event()).await?;
    back.expect_error(400, "reserved_attribute")?;
    client.acked(&got).await?;
    assert_eq!(drain(&client, "other").await?.len(), 0);
    assert_eq!(client.pending().await?, 0);
    server.stop().await
}

#[tokio::test]
async fn replays_that_are_killed_deliver_each_dead_letter_once() -> Result<()> {
    let seed = Seed::from_environment("ADMIN_SEED");
    let kills = rounds("ADMIN_ROUNDS", 6);
    let mut server = server(3)?;
    let mut client = server.start().await?;
    client.subscribed(&once("c")).await?;
    let events: Vec<Value> = (0..600).map(event).collect();
    client.publish_batch("t", &events).await?.expect(202)?;
    until_dead(&client, "c", 600).await?;
    let mut draw = seed.generator(0);
    let mut received: BTreeMap<String, u32> = BTreeMap::new();
    for round in 0..kills {
        let asked = client.clone();
        // Anywhere in it, or in its first page.
        let most = if round % 2 == 0 { 120_000 } else { 12_000 };
        let after = Duration::from_micros(draw.random_range(0..most));
        let replay = async move { post(&asked, "/admin/dlq/replay?topic=t&max=1000").await };
        killed(&mut server, after, replay).await;
        client = server.start().await.with_context(|| format!("round {round}, seed {}", seed.0))?;
        // Whatever was copied is taken before it can die again.
        for delivery in drain(&client, "c").await? {
            *received.entry(delivery.id()).or_default() += 1;
        }
    }
    let left = client.dead_letters("t").await?.len();
    let rest = post(&client, "/admin/dlq/replay?topic=t&max=1000").await?.expect(200)?.json()?;
    assert_eq!(rest["replayed"], left);
    for delivery in drain(&client, "c").await? {
        *received.entry(delivery.id()).or_default() += 1;
    }
    ensure!(received.len() == 600, "{} of 600 came, seed {}", received.len(), seed.0);
    let twice: Vec<_> = received.iter().filter(|(_, times)| **times > 1).collect();
    ensure!(twice.is_empty(), "came again: {twice:?}, seed {}", seed.0);
    assert_eq!((client.dead_letters("t").await?.len(), client.pending().await?), (0, 0));
    server.stop().await
}

#[tokio::test]
async fn a_planned_stop_within_a_replay_loses_and_repeats_nothing() -> Result<()> {
    let mut server = server(3)?;
    let client = server.start().await?;
    client.subscribed(&once("c")).await?;
    let events: Vec<Value> = (0..500).map(event).collect();
    client.publish_batch("t", &events).await?.expect(202)?;
    until_dead(&client, "c", 500).await?;
    let mut replay = JoinSet::new();
    let asked = client.clone();
    replay.spawn(async move { post(&asked, "/admin/dlq/replay?topic=t&max=1000").await });
    until("the first copies", SOON, async || {
        (client.dead_letters("t").await.ok()?.len() < 500).then_some(())
    })
    .await?;
    server.stop().await?;
    replay.shutdown().await;
    let client = server.start().await?;
    let mut received: Vec<String> = drain(&client, "c").await?.iter().map(Delivery::id).collect();
    post(&client, "/admin/dlq/replay?topic=t&max=1000").await?.expect(200)?;
    received.extend(drain(&client, "c").await?.iter().map(Delivery::id));
    assert_eq!(received.len(), 500);
    assert_eq!(received.iter().collect::<BTreeSet<_>>().len(), 500);
    server.stop().await
}

#[tokio::test]
async fn seeks_that_are_killed_happen_or_do_not() -> Result<()> {
    let seed = Seed::from_environment("ADMIN_SEED");
    let mut server = server(3)?;
    let mut client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    let events: Vec<Value> = (0..60).map(event).collect();
    client.publish_batch("t", &events).await?.expect(202)?;
    assert_eq!(drain(&client, "c").await?.len(), 60);
    let mut draw = seed.generator(1);
    let mut generation = 0;
    for round in 0..rounds("ADMIN_ROUNDS", 10) {
        let what = || format!("round {round}, seed {}", seed.0);
        let asked = client.clone();
        let after = Duration::from_micros(draw.random_range(0..5_000));
        let seek = async move {
            asked.administer("POST", "/admin/groups/t/default/seek", &json!({"to": "earliest"})).await
        };
        let answer = killed(&mut server, after, seek).await;
        client = server.start().await.with_context(what)?;
        let group = client.admin("/admin/groups?topic=t").await?.expect(200)?.json()?[0].clone();
        let now = group["generation"].as_u64().context("a generation")?;
        let sought = now > generation;
        generation = now;
        ensure!(answer.is_none_or(|reply| reply.status != 200) || sought, "forgotten: {}", what());
        let got: BTreeSet<String> = drain(&client, "c").await?.iter().map(Delivery::id).collect();
        ensure!(got.len() == if sought { 60 } else { 0 }, "{} came, {sought}: {}", got.len(), what());
        ensure!(client.pending().await? == 0, "something is pending: {}", what());
    }
    println!("{generation} seeks happened");
    server.stop().await
}

#[tokio::test]
async fn a_topic_whose_deletion_is_killed_is_there_or_gone_and_can_be_deleted_again() -> Result<()> {
    let seed = Seed::from_environment("ADMIN_SEED");
    let mut server = server(2)?;
    let mut client = server.start().await?;
    let mut draw = seed.generator(2);
    let mut gone = 0;
    for round in 0..rounds("ADMIN_ROUNDS", 8) {
        let what = || format!("round {round}, seed {}", seed.0);
        for name in ["a", "b", "c"] {
            client.subscribed(&Subscribe::broadcast(name, "t")).await.with_context(what)?;
        }
        client.published("t", (0..5).map(|id| event(format!("{round}-{id}")))).await?;
        assert_eq!(client.receive("a", 5, SOON).await?.len(), 5);
        client
            .administer("DELETE", "/admin/topics/t", &json!({}))
            .await?
            .expect_error(409, "groups_exist")?;
        let asked = client.clone();
        let after = Duration::from_micros(draw.random_range(0..12_000));
        let delete =
            async move { asked.administer("DELETE", "/admin/topics/t?force=true", &json!({})).await };
        let answer = killed(&mut server, after, delete).await;
        client = server.start().await.with_context(what)?;
        let described = client.admin("/admin/topics/t").await?;
        match described.status {
            404 => gone += 1,
            200 => {
                ensure!(answer.is_none_or(|reply| reply.status != 200), "it came back: {}", what());
                client.administer("DELETE", "/admin/topics/t?force=true", &json!({})).await?.expect(200)?;
            }
            _ => anyhow::bail!("{described}: {}", what()),
        }
        client.admin("/admin/topics/t").await?.expect_error(404, "unknown_topic")?;
        ensure!(client.pending().await? == 0, "something is pending: {}", what());
        // Another log under the old name: nothing of the old one is in it.
        client.subscribed(&Subscribe::broadcast("new", "t").from("earliest")).await?;
        ensure!(drain(&client, "new").await?.is_empty(), "an old event came: {}", what());
        client.administer("DELETE", "/admin/topics/t?force=true", &json!({})).await?.expect(200)?;
    }
    println!("{gone} deletions happened before the kill");
    server.stop().await
}

#[tokio::test]
async fn partitions_whose_making_is_killed_are_there_or_not_and_every_event_comes() -> Result<()> {
    let seed = Seed::from_environment("ADMIN_SEED");
    let mut server = server(1)?;
    let mut client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    let mut draw = seed.generator(3);
    let mut has = 1;
    for round in 0..rounds("ADMIN_ROUNDS", 6) {
        let what = || format!("round {round}, seed {}", seed.0);
        let asked = client.clone();
        let wanted = has + 2;
        let after = Duration::from_micros(draw.random_range(0..5_000));
        let grow = async move {
            asked.administer("POST", "/admin/topics", &json!({"topic": "t", "partitions": wanted})).await
        };
        let answer = killed(&mut server, after, grow).await;
        client = server.start().await.with_context(what)?;
        let topic = client.admin("/admin/topics/t").await?.expect(200)?.json()?;
        let now = topic["partitions"].as_array().context("partitions")?.len();
        ensure!(now == has || now == wanted, "{now} partitions: {}", what());
        ensure!(answer.is_none_or(|reply| reply.status != 200) || now == wanted, "forgotten: {}", what());
        has = now;
        client.published("t", (0..20).map(|id| event(format!("{round}-{id}")))).await?;
        let got: BTreeSet<String> = drain(&client, "c").await?.iter().map(Delivery::id).collect();
        ensure!(got.len() == 20, "{} of 20 came: {}", got.len(), what());
    }
    server.stop().await
}

#[tokio::test]
async fn settings_whose_change_is_killed_are_the_old_or_the_new_ones_as_a_whole() -> Result<()> {
    let seed = Seed::from_environment("ADMIN_SEED");
    let mut server = server(1)?;
    let mut client = server.start().await?;
    let mut draw = seed.generator(4);
    let (mut changed, mut before) = (0, Value::Null);
    for round in 0..rounds("ADMIN_ROUNDS", 8) {
        let what = || format!("round {round}, seed {}", seed.0);
        let (window, bytes) = (60_000 + round, (2 << 20) + round);
        let asked = client.clone();
        // A timer takes a millisecond at least: some kills come without one.
        let after = Duration::from_micros(draw.random_range(0..3_000).max(1_000) - 1_000);
        let change = async move {
            let body = json!({"topic": "t", "dedupWindowMs": window, "backlog": {"maxBytes": bytes}});
            asked.administer("POST", "/admin/topics", &body).await
        };
        let answer = killed(&mut server, after, change).await;
        client = server.start().await.with_context(what)?;
        let described = client.admin("/admin/topics/t").await?;
        let now = match described.status {
            404 => Value::Null,
            _ => {
                let settings = described.expect(200)?.json()?["settings"].clone();
                json!([settings["dedupWindowMs"], settings["backlog"]["maxBytes"]])
            }
        };
        let new = json!([window, bytes]);
        ensure!(now == before || now == new, "{now} is neither {before} nor {new}: {}", what());
        let answered = answer.is_some_and(|reply| reply.status == 200 || reply.status == 201);
        ensure!(!answered || now == new, "{new} was answered and is forgotten: {}", what());
        changed += u32::from(now == new);
        before = now;
    }
    println!("{changed} changes happened before the kill");
    server.stop().await
}

#[tokio::test]
async fn a_rejected_client_is_told_and_may_come_again() -> Result<()> {
    // covers: U116 U52
    let mut server = server(1)?;
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t").group("g")).await?;
    client.subscribed(&Subscribe::broadcast("c", "u")).await?;
    client.published("t", (0..3).map(event)).await?;
    assert_eq!(client.receive("c", 3, SOON).await?.len(), 3);
    let mut stream = Raw::connect(server.traffic_port()).await?;
    stream.send(b"GET /events/stream?clientId=c HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    ensure!(stream.read_head(SOON).await.starts_with("HTTP/1.1 200"), "a stream");
    let (asked, waiting) = (client.clone(), client.clone());
    let mut polls = JoinSet::new();
    polls.spawn(async move { waiting.poll_reply("c", 10, 30_000).await });
    let rejected = post(&asked, "/admin/client/reject?clientId=c").await?.expect(200)?.json()?;
    assert_eq!(rejected, json!({"clientId": "c", "removed": 2}));
    polls.join_next().await.context("a poll")???.expect_error(410, "subscription_expired")?;
    client.poll_reply("c", 1, 0).await?.expect_error(410, "subscription_expired")?;
    let rest = stream.read_until("0\r\n\r\n", 1, SOON).await;
    ensure!(rest.ends_with("0\r\n\r\n") && !rest.contains("\ndata: "), "its stream ends: {rest:?}");
    post(&client, "/admin/client/reject?clientId=c").await?.expect_error(404, "unknown_client")?;
    assert_eq!(client.admin("/admin/subscriptions").await?.json()?, json!([]));
    client.subscribed(&Subscribe::load_balance("c", "t").group("g")).await?;
    let again = client.receive("c", 3, SOON).await?;
    assert!(again.iter().all(|delivery| delivery.attempt == 2), "the group kept what was in flight");
    client.acked(&again).await?;
    assert_eq!(client.pending().await?, 0);
    server.stop().await
}

#[tokio::test]
async fn lag_is_among_the_metrics_and_goes_with_its_group() -> Result<()> {
    // covers: U118
    let mut server = server(2)?;
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t").group("quo\"te\\d")).await?;
    client.subscribed(&Subscribe::broadcast("b", "t")).await?;
    client.published("t", (0..7).map(event)).await?;
    assert_eq!(client.metric("eventmesh_group_lag").await?, 7.0);
    assert_eq!(client.metric("eventmesh_topic_lag").await?, 7.0);
    let reply = client.admin("/metrics").await?;
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    ensure!(text.contains(r#"group="quo\"te\\d""#), "the label is not escaped: {text}");
    client.administer("DELETE", "/admin/groups/t/quo%22te%5Cd", &json!({})).await?.expect(200)?;
    ensure!(client.metric("eventmesh_group_lag").await.is_err(), "the series of a group that is gone");
    drain(&client, "b").await?;
    assert_eq!(client.metric("eventmesh_topic_lag").await?, 0.0);
    server.stop().await
}
