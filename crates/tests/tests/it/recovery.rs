//! What a start finds: everything that was answered, and nothing moved by who was absent.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mesh_tests::{Client, History, Recorder, Server, Subscribe, event, pause};
use rand::seq::SliceRandom;
use tokio::task::JoinSet;

/// How long a redelivery may take that is due.
pub(crate) const SOON: Duration = Duration::from_secs(15);

/// One partition, so that one cursor tells everything.
pub(crate) fn one_partition() -> Result<Server> {
    Ok(Server::new()?.key("eventmesh.storage.partitions", 1))
}

pub(crate) fn patient(client: &str) -> Subscribe {
    Subscribe::load_balance(client, "t").ack_timeout_ms(1_000).backoff_ms(100, 100)
}

async fn ids(client: &Client, count: usize) -> Result<Vec<String>> {
    Ok(client.receive("c", count, SOON).await?.iter().map(|delivery| delivery.id()).collect())
}

async fn nothing_comes(client: &Client, name: &str) -> Result<()> {
    let more = client.poll(name, 100, 700).await?;
    ensure!(
        more.is_empty(),
        "nothing more was due, and {:?} came",
        more.iter().map(|d| d.id()).collect::<Vec<_>>()
    );
    Ok(())
}

#[tokio::test]
async fn a_delivery_in_flight_is_pending_right_after_a_kill_and_comes_again() -> Result<()> {
    // covers: U07  proves: FM-2 CV-6
    let home = tempfile::tempdir()?;
    let mut server = Server::new()?.key("eventmesh.offset.path", home.path().join("positions").display());
    let client = server.start().await?;
    client.subscribed(&patient("c1")).await?;
    client.published("t", [event(1)]).await?;
    let first = client.receive("c1", 1, SOON).await?;
    server.kill9();
    let client = server.start().await?;
    ensure!(client.pending().await? == 1, "pending is {} after the start", client.pending().await?);
    let again = client.receive("c1", 1, SOON).await?;
    assert_eq!((again[0].id(), again[0].attempt, again[0].offset()), (first[0].id(), 2, first[0].offset()));
    client.acked(&again).await?;
    ensure!(home.path().join("positions/CURRENT").is_file(), "eventmesh.offset.path holds no database");
    let log = server.log();
    for store in ["RocksDbOffsetStore", "RocksDbDeliveryStateStore", "MetaBackedDeadLetterStore"] {
        ensure!(log.contains(store), "the start-up log does not name {store}");
    }
    Ok(())
}

#[tokio::test]
async fn an_absent_client_moves_nothing_over_any_number_of_kills() -> Result<()> {
    // covers: U61
    let mut server = one_partition()?;
    let client = server.start().await?;
    client.subscribed(&patient("c").max_attempts(0)).await?;
    client.published("t", [event(1), event(2)]).await?;
    ids(&client, 2).await?;
    let before = client.offsets("t").await?;
    server.kill9();
    let client = server.start().await?;
    // Time for whatever would acknowledge on its own: deadlines and backoff run out.
    pause(Duration::from_secs(2)).await;
    assert_eq!(client.offsets("t").await?, before);
    let mut attempts = Vec::new();
    let mut client = client;
    for _ in 0..3 {
        let got = client.receive("c", 2, SOON).await?;
        nothing_comes(&client, "nobody").await.expect_err("an unknown client is told so");
        attempts.push(got.iter().map(|delivery| delivery.attempt).collect::<Vec<_>>());
        server.kill9();
        client = server.start().await?;
        assert_eq!(client.offsets("t").await?, before);
    }
    assert_eq!(attempts, [[2, 2], [3, 3], [4, 4]]);
    let got = client.receive("c", 2, SOON).await?;
    client.acked(&got).await?;
    nothing_comes(&client, "c").await
}

#[tokio::test]
async fn last_acknowledged_and_next_to_read_are_not_mixed_up() -> Result<()> {
    // covers: U68
    let mut server = one_partition()?;
    let client = server.start().await?;
    client.subscribed(&patient("c")).await?;
    client.published("t", (1..=3).map(event)).await?;
    let got = client.receive("c", 3, SOON).await?;
    client.acked(&got[..1]).await?;
    server.stop().await?;
    let client = server.start().await?;
    let got = client.receive("c", 2, SOON).await?;
    // Without a key retries come in the order of their jitter.
    let mut again: Vec<String> = got.iter().map(|delivery| delivery.id()).collect();
    again.sort_unstable();
    assert_eq!(again, ["2", "3"]);
    client.acked(&got).await?;
    server.stop().await?;
    let client = server.start().await?;
    client.published("t", [event(4)]).await?;
    assert_eq!(ids(&client, 1).await?, ["4"]);
    nothing_comes(&client, "c").await
}

#[tokio::test]
async fn offset_zero_is_an_offset_like_any_other() -> Result<()> {
    // covers: U69
    let mut server = one_partition()?;
    let client = server.start().await?;
    client.published("t", [event(1), event(2)]).await?;
    let first = client.subscribed(&Subscribe::load_balance("a", "t").group("a").from("earliest")).await?;
    let floor =
        *client.offsets("t").await?.get("a#0").with_context(|| format!("no a#0; subscribe gave {first}"))?;
    let start = serde_json::json!({"offsets": {"0": floor.to_string()}});
    client.subscribed(&Subscribe::load_balance("b", "t").group("b").from(start)).await?;
    client.subscribed(&Subscribe::load_balance("e", "t").group("e").from(floor.to_string())).await?;
    let mut done = Vec::new();
    for name in ["a", "b", "e"] {
        let got = client.receive(name, 2, SOON).await?;
        assert_eq!(got.iter().map(|delivery| delivery.id()).collect::<Vec<_>>(), ["1", "2"], "{name}");
        client.acked(&got[..1]).await?;
        done.push((name, got[1].offset()));
    }
    server.stop().await?;
    let client = server.start().await?;
    for (name, floor) in done {
        assert_eq!(client.offsets("t").await?[&format!("{name}#0")], floor, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn a_shared_group_keeps_its_backlog_while_its_last_member_is_away() -> Result<()> {
    // covers: U71
    let mut server = one_partition()?;
    let client = server.start().await?;
    for (name, mode) in [("c", Subscribe::load_balance("c", "t")), ("d", Subscribe::broadcast("d", "t"))] {
        client.subscribed(&mode).await?;
        client.published("t", (1..=5).map(|number| event(format!("{name}{number}")))).await?;
    }
    for (name, count) in [("c", 10), ("d", 5)] {
        let got = client.receive(name, count, SOON).await?;
        client.acked(&got).await?;
        assert_eq!(
            client.unsubscribe(name, "t").await?.expect(200)?.json()?,
            serde_json::json!({"removed": true})
        );
        client.poll_reply(name, 1, 0).await?.expect_error(404, "unknown_client")?;
    }
    client.published("t", (6..=8).map(event)).await?;
    server.kill9();
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    assert_eq!(ids(&client, 3).await?, ["6", "7", "8"]);
    // A client with a group of its own took that group along: it starts at the latest again.
    client.subscribed(&Subscribe::broadcast("d", "t")).await?;
    nothing_comes(&client, "d").await
}

#[tokio::test]
async fn cursors_never_go_back_under_parallel_acks_and_a_kill() -> Result<()> {
    // covers: U59
    let seed = mesh_tests::Seed::from_environment("ACKS_SEED");
    let history = History::new();
    let mut server = Server::new()?.key("eventmesh.storage.partitions", 2);
    let recorder = Recorder::new(server.start().await?, &history);
    recorder.subscribed(&Subscribe::load_balance("c", "t").max_in_flight(10_000)).await?;
    for batch in 0..20 {
        let events: Vec<_> = (0..100).map(|number| event(batch * 100 + number)).collect();
        recorder.publish_batch("t", &events).await?.expect(202)?;
    }
    let mut deliveries = Vec::new();
    while deliveries.len() < 2_000 {
        deliveries
            .extend(recorder.poll("c", 1_000, 2_000).await?.into_iter().map(|delivery| delivery.delivery_id));
    }
    deliveries.shuffle(&mut seed.generator(0));
    let (acked, left) = deliveries.split_at(1_900);
    let mut tasks = JoinSet::new();
    for share in acked.chunks(acked.len().div_ceil(16)) {
        let (recorder, share) = (recorder.clone(), share.to_vec());
        tasks.spawn(async move {
            for delivery in share {
                let answer = recorder.ack(&delivery).await;
                assert!(matches!(answer, Ok(Some(mesh_tests::AckAnswer::Acked))), "{answer:?}");
            }
        });
    }
    let mut sampler = JoinSet::new();
    let samples = recorder.clone();
    sampler.spawn(async move {
        while samples.sample("t").await.is_ok() {
            pause(Duration::from_millis(10)).await;
        }
    });
    while let Some(task) = tasks.join_next().await {
        task.context("a task of acknowledgements")?;
    }
    recorder.sample("t").await?;
    server.kill9();
    sampler.shutdown().await;
    recorder.note("killed");

    let recorder = Recorder::new(server.start().await?, &history);
    recorder.sample("t").await?;
    assert_eq!(recorder.client.pending().await?, left.len() as u64);
    // The ids of before the kill are still good.
    for delivery in left {
        assert_eq!(recorder.ack(delivery).await?, Some(mesh_tests::AckAnswer::Acked));
    }
    recorder.drain(&["c"], SOON).await?;
    recorder.sample("t").await?;
    history.must_hold("parallel acks");
    Ok(())
}

#[tokio::test]
async fn offset_survives_process_restart() -> Result<()> {
    // proves: CV-1 ST-1 FM-2
    let mut server = one_partition()?;
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    client.published("t", (0..100).map(event)).await?;
    let got = client.receive("c", 100, SOON).await?;
    client.acked(&got).await?;
    let before = client.offsets("t").await?;
    assert_eq!(before["default#0"], got[99].offset() + 1);
    server.kill9();
    let client = server.start().await?;
    assert_eq!(client.offsets("t").await?, before);
    nothing_comes(&client, "c").await
}

#[tokio::test]
async fn in_a_new_incarnation_of_the_log_a_group_starts_at_its_beginning() -> Result<()> {
    // The log in memory is a new one after every start; groups are kept.
    let mut server = one_partition()?.key("eventmesh.storage.type", "memory");
    let client = server.start().await?;
    client.subscribed(&patient("c")).await?;
    client.published("t", (0..5).map(event)).await?;
    let got = client.receive("c", 5, SOON).await?;
    client.acked(&got[..4]).await?;
    server.kill9();
    let client = server.start().await?;
    client.published("t", (5..7).map(event)).await?;
    // Neither from offset 4 on, which would skip them, nor with what was in flight of the old log.
    let got = client.receive("c", 2, SOON).await?;
    let seen: Vec<_> =
        got.iter().map(|delivery| (delivery.id(), delivery.offset(), delivery.attempt)).collect();
    assert_eq!(seen, [("5".to_owned(), 0, 1), ("6".to_owned(), 1, 1)]);
    client.acked(&got).await?;
    nothing_comes(&client, "c").await
}
