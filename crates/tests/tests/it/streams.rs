//! Open streams when the server goes away: killed, and stopped in order.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mesh_tests::{Raw, Server, Subscribe, event};
use tokio::time::Instant;

const SOON: Duration = Duration::from_secs(15);

async fn stream(server: &Server, client: &str) -> Result<Raw> {
    let mut raw = Raw::connect(server.traffic_port()).await?;
    let request = format!("GET /events/stream?clientId={client} HTTP/1.1\r\nHost: t\r\n\r\n");
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
    let mut raw = stream(&server, "c").await?;
    let start = Instant::now();
    server.stop().await?;
    ensure!(start.elapsed() < Duration::from_secs(5), "it took {:?}", start.elapsed());
    let text = raw.read_to_end(SOON).await.context("the stream ended")?;
    ensure!(text.contains(": the server is stopping\n\n") && text.ends_with("0\r\n\r\n"), "{text}");
    Ok(())
}
