//! What one client can do to the others: slow, large, many, extreme, silent.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mesh_tests::{Client, Raw, Server, Subscribe, event, pause};
use serde_json::json;
use tokio::time::Instant;

const SOON: Duration = Duration::from_secs(10);
const EVENT: &str = "application/cloudevents+json";

async fn it_still_works(client: &Client) -> Result<()> {
    let start = Instant::now();
    client.publish("works", &event(1)).await?.expect(202)?;
    ensure!(start.elapsed() < Duration::from_secs(3), "a normal publish took {:?}", start.elapsed());
    Ok(())
}

#[tokio::test]
async fn compressed_bodies_are_refused_before_they_are_unpacked() -> Result<()> {
    // covers: U174
    let mut server = Server::new()?;
    let client = server.start().await?;
    for coding in ["gzip", "deflate", "zstd", "gzip, gzip", "br", "unknown"] {
        let headers = [("content-type", EVENT), ("content-encoding", coding)];
        let reply =
            client.call("POST", "/events/publish?topic=t", &headers, vec![0x1f, 0x8b, 8, 0], SOON).await?;
        reply.expect_error(415, "unsupported_media_type").with_context(|| format!("coding {coding}"))?;
    }
    let headers = [("content-type", EVENT), ("content-encoding", "identity")];
    client
        .call("POST", "/events/publish?topic=t", &headers, event(1).to_string(), SOON)
        .await?
        .expect(202)?;
    Ok(())
}

#[tokio::test]
async fn silent_and_slow_connections_are_closed_and_disturb_nobody() -> Result<()> {
    // covers: U176
    let mut server = Server::new()?
        .key("eventmesh.http.headerTimeout", "1s")
        .key("eventmesh.http.bodyTimeout", "1s")
        .key("eventmesh.http.idleTimeout", "1s");
    server.start().await?;
    let mut slow = Vec::new();
    for port in [server.traffic_port(), server.admin_port()] {
        for _ in 0..40 {
            slow.push(("silent", Raw::connect(port).await?));
            let mut head = Raw::connect(port).await?;
            head.send(b"GET /events/poll HTTP/1.1\r\nhost:").await?;
            slow.push(("half a head", head));
        }
    }
    for _ in 0..20 {
        let mut body = Raw::connect(server.traffic_port()).await?;
        let head = b"POST /events/publish?topic=t HTTP/1.1\r\nHost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
        body.send(head).await?;
        slow.push(("half a body", body));
        let mut idle = Raw::connect(server.traffic_port()).await?;
        idle.send(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        slow.push(("idle", idle));
    }
    // Over a connection of its own: one that was kept may be closed as idle while it is used.
    it_still_works(&server.client()).await?;
    let start = Instant::now();
    for (kind, mut connection) in slow {
        let left = Duration::from_secs(6).saturating_sub(start.elapsed()).max(Duration::from_millis(1));
        let came = connection
            .read_to_end(left)
            .await
            .with_context(|| format!("a connection ({kind}) was not closed in 6 s"))?;
        if kind == "half a body" {
            ensure!(came.starts_with("HTTP/1.1 408"), "a slow body is told so: {came:?}");
        }
    }
    it_still_works(&server.client()).await
}

#[tokio::test]
async fn running_out_of_file_handles_passes_with_the_connections_that_took_them() -> Result<()> {
    // covers: U177
    let mut server = Server::new()?.open_files(256);
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    let mut open = Vec::new();
    for _ in 0..400 {
        // The backlog of the listener takes what is not accepted; a refusal is fine too.
        if let Ok(connection) = Raw::connect(server.traffic_port()).await {
            open.push(connection);
        }
    }
    // This connection was there before; the log keeps the handles it needs.
    client
        .publish("t", &event(1))
        .await?
        .expect(202)
        .context("an existing connection while handles are scarce")?;
    drop(open);
    let fresh = server.client();
    let reply = mesh_tests::until("new connections to be served", SOON, async || {
        fresh.publish("t", &event(2)).await.ok()
    });
    reply.await?.expect(202)?;
    let got = fresh.receive("c", 2, SOON).await?;
    fresh.acked(&got).await
}

#[tokio::test]
async fn extreme_parameters_are_clamped_or_refused() -> Result<()> {
    // covers: U179
    let mut server = Server::new()?.key("eventmesh.topic.max", 20).key("eventmesh.subscription.perClient", 5);
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    for query in
        ["timeoutMs=9000000000000000000", "timeoutMs=1&max=1000000", "timeoutMs=99999999999999999999999999"]
    {
        client.published("t", [event(1)]).await?;
        let reply = client.get(&format!("/events/poll?clientId=c&{query}")).await.context(query)?;
        ensure!(matches!(reply.status, 200 | 400), "{query}: {reply}");
    }
    for query in ["timeoutMs=-1", "timeoutMs=x", "max=0", "max=-1", "max=1.5", "max=", "max=1&max=2"] {
        let reply = client.get(&format!("/events/poll?clientId=c&{query}")).await.context(query)?;
        ensure!(reply.status == 400 && !reply.code().is_empty(), "{query}: {reply}");
    }
    let long = "x".repeat(1 << 20);
    let subscribe = client.subscribe(&Subscribe::load_balance(&long, "t")).await?;
    ensure!(matches!(subscribe.status, 400 | 413), "a client id of 1 MiB: {subscribe}");
    let mut raw = Raw::connect(server.traffic_port()).await?;
    // The server may close before it has read all of it.
    drop(
        raw.send(format!("GET /events/poll?clientId={long} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
            .await,
    );
    let head = raw.read_head(SOON).await;
    ensure!(
        ["400", "414", "431"].iter().any(|status| head.contains(&format!(" {status} "))),
        "1 MiB of URI: {head:?}"
    );
    let topic = "x".repeat(252);
    client.publish(&topic, &event(1)).await?.expect_error(400, "invalid_argument")?;

    let mut refused = 0;
    for number in 0..30 {
        match client.publish(&format!("topic-{number}"), &event(1)).await? {
            reply if reply.status == 202 => {}
            reply => {
                reply.expect_error(429, "quota_exceeded")?;
                refused += 1;
            }
        }
    }
    ensure!((10..=12).contains(&refused), "20 topics may exist, and {refused} of 31 were refused");
    let mut answers = Vec::new();
    for number in 0..7 {
        answers.push(
            client.subscribe(&Subscribe::load_balance("many", &format!("topic-{number}"))).await?.status,
        );
    }
    assert_eq!(answers, [200, 200, 200, 200, 200, 429, 429]);
    Ok(())
}

#[tokio::test]
async fn many_parallel_polls_of_one_client_leave_the_others_alone() -> Result<()> {
    // covers: U179
    let mut server = Server::new()?;
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("greedy", "quiet")).await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    let mut polls = tokio::task::JoinSet::new();
    for _ in 0..400 {
        let client = client.clone();
        polls.spawn(async move { client.poll_reply("greedy", 10, 30_000).await.map(|reply| reply.status) });
    }
    pause(Duration::from_millis(500)).await;
    client.published("t", [event(1)]).await?;
    let got = client.receive("c", 1, Duration::from_secs(3)).await?;
    client.acked(&got).await?;
    client.published("quiet", [event(2)]).await?;
    // One of them gets it; those that were too many have been told so.
    loop {
        match polls.join_next().await.context("no poll got the event")??? {
            200 => break,
            429 | 503 => {}
            other => anyhow::bail!("a poll ended with {other}"),
        }
    }
    // The other clients' connections end with the test: a poll whose connection is gone takes nothing.
    polls.shutdown().await;
    pause(Duration::from_millis(300)).await;
    client.published("quiet", [event(3)]).await?;
    let got = client.receive("greedy", 1, SOON).await?;
    assert_eq!((got[0].id(), got[0].attempt), ("3".to_owned(), 1));
    Ok(())
}

#[tokio::test]
async fn a_client_that_never_acknowledges_is_bounded_and_alone() -> Result<()> {
    // covers: U180
    let mut server = Server::new()?
        .key("eventmesh.delivery.maxOutstanding", 1_500)
        .key("eventmesh.storage.tailCacheBytes", "4MiB");
    let client = server.start().await?;
    let hoarder = Subscribe::load_balance("hoarder", "t").group("hoarders").max_in_flight(1_000);
    client.subscribed(&hoarder).await?;
    client.subscribed(&Subscribe::load_balance("worker", "t").group("workers")).await?;
    let mut held = 0;
    let mut worked = 0;
    let mut after_a_third = 0;
    for round in 0..30 {
        let events: Vec<_> = (0..500).map(|number| event(round * 500 + number)).collect();
        client.publish_batch("t", &events).await?.expect(202)?;
        held += client.poll("hoarder", 1_000, 0).await?.len();
        while worked < (round + 1) * 500 {
            let got = client.poll("worker", 1_000, 5_000).await?;
            ensure!(!got.is_empty(), "the worker stands at {worked} of {}", (round + 1) * 500);
            worked += got.len();
            let ids: Vec<String> = got.into_iter().map(|delivery| delivery.delivery_id).collect();
            client.ack_many(&ids).await?.expect(200)?;
        }
        if round == 10 {
            after_a_third = server.resident_kib()?;
        }
    }
    assert_eq!((held, worked), (1_000, 15_000));
    assert_eq!(client.pending().await?, 1_000);
    let grown = server.resident_kib()?.saturating_sub(after_a_third);
    ensure!(grown < 64 << 10, "the server grew by {grown} KiB while one client held 1,000 deliveries");
    Ok(())
}

#[tokio::test]
async fn an_oversized_body_is_answered_413_that_the_client_can_read() -> Result<()> {
    let mut server = Server::new()?.key("eventmesh.http.maxBodyBytes", "64KiB");
    let client = server.start().await?;
    let head = "POST /events/publish?topic=t HTTP/1.1\r\nHost: localhost\r\ncontent-type: application/cloudevents+json\r\n";
    // Declared, and sent all the same before anything is read.
    let mut declared = Raw::connect(server.traffic_port()).await?;
    let body = "x".repeat(1 << 20);
    declared
        .send(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes())
        .await
        .context("declared")?;
    let came = declared.read_head(SOON).await;
    ensure!(came.starts_with("HTTP/1.1 413"), "declared: {came:?}");
    // In chunks, whose sum nobody declared.
    let mut chunked = Raw::connect(server.traffic_port()).await?;
    chunked.send(format!("{head}connection: close\r\ntransfer-encoding: chunked\r\n\r\n").as_bytes()).await?;
    let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
    for number in 0..64 {
        chunked.send(chunk.as_bytes()).await.with_context(|| format!("chunk {number}"))?;
    }
    chunked.send(b"0\r\n\r\n").await?;
    let came = chunked.read_to_end(SOON).await.context("the connection was not closed")?;
    ensure!(came.starts_with("HTTP/1.1 413") && came.contains("too_large"), "chunked: {came:?}");
    it_still_works(&client).await?;
    let fits =
        json!({"specversion": "1.0", "id": "1", "source": "/t", "type": "t", "data": "x".repeat(60_000)});
    client.publish("t", &fits).await?.expect(202)?;
    Ok(())
}
