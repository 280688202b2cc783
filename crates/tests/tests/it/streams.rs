//! Open streams when the server goes away: killed, and stopped in order.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mesh_tests::{Raw, Server, Subscribe, event, until};
use tokio::time::Instant;

const SOON: Duration = Duration::from_secs(15);

async fn stream(server: &Server, client: &str) -> Result<Raw> {
    let mut raw = Raw::connect(server.traffic_port()).await?;
    let request = format!("GET /events/stream?clientId={client} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    raw.send(request.as_bytes()).await?;
    let head = raw.read_head(SOON).await;
    ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
    Ok(raw)
}

#[tokio::test]
async fn after_a_kill_what_was_streamed_is_due_at_once_and_what_was_polled_keeps_its_lock() -> Result<()> {
    // covers: U132
    let mut server = Server::new()?;
    let client = server.start().await?;
    for name in ["streams", "polls"] {
        client.subscribed(&Subscribe::load_balance(name, name).ack_timeout_ms(60_000)).await?;
        client.published(name, [event(1), event(2), event(3)]).await?;
    }
    let mut raw = stream(&server, "streams").await?;
    let text = raw.read_until("\ndata: ", 3, SOON).await;
    ensure!(text.matches("\ndata: ").count() == 3, "{text}");
    client.receive("polls", 3, SOON).await?;
    server.kill9();

    let client = server.start().await?;
    ensure!(client.pending().await? == 6, "{}", client.pending().await?);
    let again = client.receive("streams", 3, SOON).await?;
    ensure!(again.iter().all(|delivery| delivery.attempt == 2), "{again:?}");
    ensure!(client.poll("polls", 100, 300).await?.is_empty(), "it is still locked");
    client.acked(&again).await
}

#[tokio::test]
async fn an_orderly_stop_ends_idle_streams_with_a_word_and_does_not_wait_for_them() -> Result<()> {
    // covers: U121
    let mut server = Server::new()?;
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    client.subscribed(&Subscribe::load_balance("polls", "t")).await?;
    let mut raw = stream(&server, "c").await?;
    let mut polls = tokio::task::JoinSet::new();
    let waiting = client.clone();
    polls.spawn(async move { waiting.poll_reply("polls", 1, 60_000).await });
    until("the poll to wait", SOON, async || {
        let admitted = client.metric("eventmesh_gate_verdicts_total").await.ok()?;
        // Two subscribes, the stream, the poll.
        (admitted >= 4.0).then_some(())
    })
    .await?;
    let start = Instant::now();
    server.stop().await?;
    ensure!(start.elapsed() < Duration::from_secs(5), "it took {:?}", start.elapsed());
    let polled = polls.join_next().await.context("a poll")???.expect(200)?;
    ensure!(polled.body.as_ref() == b"[]\n", "{polled}");
    let text = raw.read_to_end(SOON).await.context("the stream ended")?;
    ensure!(text.contains(": the server is stopping\n\n") && text.ends_with("0\r\n\r\n"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_reader_that_stands_still_costs_bounded_memory_and_holds_nobody_up() -> Result<()> {
    // covers: U124
    const EVENTS: u32 = 10_000;
    let mut server = Server::new()?.key("eventmesh.storage.tailCacheBytes", "4MiB");
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("still", "t").group("still").max_in_flight(10_000)).await?;
    client.subscribed(&Subscribe::load_balance("reads", "t").group("reads").max_in_flight(10_000)).await?;
    let mut still = stream(&server, "still").await?;
    let mut read = 0;
    let mut after_a_third = 0;
    let mut slowest = Duration::ZERO;
    for round in 0..20 {
        let events: Vec<_> = (0..EVENTS / 20).map(|number| large(round * 1_000 + number)).collect();
        client.publish_batch("t", &events).await?.expect(202)?;
        let start = Instant::now();
        let mut got = client.receive("reads", events.len(), SOON).await?;
        slowest = slowest.max(start.elapsed());
        read += got.len();
        let ids: Vec<String> = got.drain(..).map(|delivery| delivery.delivery_id).collect();
        client.ack_many(&ids).await?.expect(200)?;
        if round == 6 {
            after_a_third = server.resident_kib()?;
        }
    }
    ensure!(read == EVENTS as usize, "{read}");
    ensure!(slowest < Duration::from_secs(5), "the other client waited {slowest:?}");
    let grown = server.resident_kib()?.saturating_sub(after_a_third);
    ensure!(grown < 64 << 10, "the server grew by {grown} KiB while one reader stood still");
    // What it was not given is there; what it was given comes again.
    drop(still.read_until("\ndata: ", 1, SOON).await);
    drop(still);
    let mut ids = std::collections::BTreeSet::new();
    until("everything to come to it", Duration::from_secs(60), async || {
        let got = client.poll("still", 1_000, 500).await.ok()?;
        ids.extend(got.iter().map(|delivery| delivery.id()));
        let done: Vec<String> = got.into_iter().map(|delivery| delivery.delivery_id).collect();
        client.ack_many(&done).await.ok()?;
        (ids.len() == EVENTS as usize).then_some(())
    })
    .await
}

/// An event of two kilobytes.
fn large(n: u32) -> serde_json::Value {
    let mut event = event(n);
    event["data"] = "x".repeat(2_000).into();
    event
}
