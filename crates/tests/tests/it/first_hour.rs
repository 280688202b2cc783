//! What somebody meets who has only the documents: answers that say what happened, and errors that say what to do.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mesh_tests::{Reply, Server, Subscribe, event};
use serde_json::json;

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn every_answer_ends_in_a_line_break() -> Result<()> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    let line = |what: &str, reply: Reply| {
        ensure!(reply.body.ends_with(b"\n") && !reply.body.ends_with(b"\n\n"), "{what}: {reply}");
        Ok(())
    };
    line("subscribe", client.subscribe(&Subscribe::load_balance("c", "t")).await?)?;
    line("an empty poll", client.poll_reply("c", 1, 0).await?)?;
    line("publish", client.publish("t", &event("1")).await?)?;
    line("a batch", client.publish_batch("t", &[event("2")]).await?)?;
    let reply = client.poll_reply("c", 10, 5_000).await?.expect(200)?;
    let id = reply.json()?[0]["deliveryId"].as_str().context("an id")?.to_owned();
    line("a poll", reply)?;
    line("ack", client.post("/events/ack", &json!({"deliveryId": [id, "x"]})).await?)?;
    line("an error", client.post("/events/ack", &json!({"deliveryId": "x"})).await?)?;
    line("no route", client.get("/").await?)?;
    line("the document", client.get("/openapi.json").await?)?;
    line("unsubscribe", client.unsubscribe("c", "t").await?)?;
    for path in [
        "/admin/health",
        "/admin/ready",
        "/admin/topics",
        "/admin/groups",
        "/metrics",
        "/admin/metrics",
        "/admin/no",
    ] {
        line(path, client.admin(path).await?)?;
    }
    line("a topic", client.administer("POST", "/admin/topics", &json!({"topic": "u"})).await?.expect(201)?)?;
    Ok(())
}

#[tokio::test]
async fn a_subscribe_says_whether_the_group_is_new() -> Result<()> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    client.published("t", [event("1")]).await?;
    let first = client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    ensure!(first["created"] == true, "{first}");
    // `from` does nothing for a group that exists, and that is said.
    for again in [
        Subscribe::load_balance("c", "t").from("earliest"),
        Subscribe::load_balance("d", "t").from("earliest"),
    ] {
        let answer = client.subscribed(&again).await?;
        ensure!(answer["created"] == false && answer["start"] == first["start"], "{answer}");
    }
    ensure!(client.subscribed(&Subscribe::broadcast("b", "t")).await?["created"] == true);
    ensure!(client.subscribed(&Subscribe::load_balance("c", "t").group("other")).await?["created"] == true);
    // A group outlives its members, and a restart.
    client.unsubscribe("c", "t").await?.expect(200)?;
    client.unsubscribe("d", "t").await?.expect(200)?;
    server.stop().await?;
    let client = server.start().await?;
    ensure!(client.subscribed(&Subscribe::load_balance("e", "t")).await?["created"] == false);
    Ok(())
}

#[tokio::test]
async fn a_poll_beside_the_clients_own_stream_says_that_the_stream_is_open() -> Result<()> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    client.subscribed(&Subscribe::load_balance("other", "u")).await?;
    let says = async |name: &str| -> Result<Option<String>> {
        let reply = client.poll_reply(name, 10, 0).await?.expect(200)?;
        Ok(reply.header("em-stream-open").map(str::to_owned))
    };
    ensure!(says("c").await?.is_none());
    let stream = client.stream("c").await?;
    client.published("t", [event("1")]).await?;
    ensure!(says("c").await?.as_deref() == Some("true"));
    ensure!(says("other").await?.is_none(), "it is not the other client's stream");
    drop(stream);
    mesh_tests::until("the stream to be gone", SOON, async || says("c").await.ok()?.is_none().then_some(()))
        .await?;
    Ok(())
}

#[tokio::test]
async fn the_longest_backoff_alone_is_held_against_the_first_ones_default() -> Result<()> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    let alone = Subscribe::load_balance("c", "t").set("maxBackoffMs", 500);
    let told = client.subscribe(&alone).await?.expect_error(400, "invalid_argument")?;
    let message = told.json()?["message"].to_string();
    ensure!(message.contains("maxBackoffMs") && message.contains("1000"), "{message}");
    client.subscribed(&alone.set("backoffMs", 500)).await?;
    client.subscribed(&Subscribe::load_balance("d", "u").set("maxBackoffMs", 1_000)).await?;
    Ok(())
}

#[tokio::test]
async fn who_knocks_at_the_wrong_port_is_told_of_the_right_one() -> Result<()> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    let port = server.admin_port().to_string();
    for path in ["/", "/admin/topics", "/admin/health", "/metrics"] {
        let told = client.get(path).await?.expect_error(404, "not_found")?.json()?["message"].to_string();
        ensure!(told.contains(&port) && told.contains("/openapi.json"), "{path}: {told}");
    }
    for path in ["/events/publish?topic=t", "/openapi.json", "/"] {
        let told = client.admin(path).await?.expect_error(404, "not_found")?.json()?["message"].to_string();
        ensure!(told.contains("traffic port"), "{path}: {told}");
    }
    Ok(())
}
