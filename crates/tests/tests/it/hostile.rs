//! Clients that mean harm: each attack here worked once, and hurts nobody else now.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mesh_tests::{Access, Client, Raw, RawHttp2, Server, Subscribe, event, run_to_end, token_of, until};
use serde_json::json;
use tokio::time::Instant;

const SOON: Duration = Duration::from_secs(20);
/// The patience with a client that does not read is 30 s.
const AFTER_PATIENCE: Duration = Duration::from_secs(45);

/// A closed gate; the tenants A and B may do everything.
fn guarded(access: &Access) -> Result<Server> {
    access.tokens(&["A/ann", "B/bob"])?;
    access.rules(&[("ALLOW", "*", "ANY", "*")])?;
    Ok(access.guard(Server::new()?, true))
}

fn of(client: &Client, name: &str) -> Client {
    client.with_token(&token_of(name))
}

fn large(id: u32, bytes: usize) -> serde_json::Value {
    let mut event = event(id);
    event["data"] = "x".repeat(bytes).into();
    event
}

#[tokio::test]
async fn answers_that_one_tenant_does_not_read_hold_up_no_other_and_end_with_their_stream() -> Result<()> {
    let access = Access::new()?;
    let mut server = guarded(&access)?
        .key("eventmesh.http.maxBodyBytes", "1MiB")
        .key("eventmesh.http.maxInFlightPollBytes", "1MiB");
    let client = server.start().await?;
    let (ann, bob) = (of(&client, "A/ann"), of(&client, "B/bob"));
    for number in 0..16 {
        ann.subscribed(&Subscribe::broadcast(&format!("hog-{number}"), "t")).await?;
    }
    bob.subscribed(&Subscribe::broadcast("quiet", "t")).await?;
    ann.published("t", [large(1, 100 << 10)]).await?;

    let mut hog = RawHttp2::connect(server.traffic_port(), 0).await?;
    let bearer = format!("Bearer {}", token_of("A/ann"));
    for number in 0..16 {
        let target = format!("/events/poll?clientId=hog-{number}&timeoutMs=1000");
        hog.get(&target, &[("authorization", &bearer)]).await?;
    }
    ensure!(hog.listen(SOON, |heard| heard.answered.len() == 16).await, "{:?}", hog.heard);
    let got = bob.receive("quiet", 1, SOON).await?;
    bob.acked(&got).await?;

    // A caller without a credential that reads nothing either.
    let mut stranger = RawHttp2::connect(server.traffic_port(), 0).await?;
    stranger.get("/openapi.json", &[]).await?;
    let ended = stranger.listen(AFTER_PATIENCE, |heard| !heard.reset.is_empty() || heard.goaway);
    let (ended, cut) = tokio::join!(
        ended,
        // What has a body stands still until its stream is reset; what was refused has one too.
        hog.listen(AFTER_PATIENCE, |heard| heard.reset.len() == 16)
    );
    ensure!(ended && cut, "{:?} {:?}", stranger.heard, hog.heard);
    // The connection goes on, and what was not read comes again.
    let again = hog.get("/events/subscribe", &[("authorization", &bearer)]).await?;
    ensure!(hog.listen(SOON, |heard| heard.answered.contains(&again)).await, "{:?}", hog.heard);
    let got = ann.receive("hog-0", 1, SOON).await?;
    ann.acked(&got).await
}

#[tokio::test]
async fn a_head_has_128_fields_and_96_kibibytes_in_both_versions_of_http() -> Result<()> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    let fields = |count: usize, bytes: usize| -> Vec<(String, String)> {
        (0..count).map(|number| (format!("x-{number}"), "v".repeat(bytes))).collect()
    };
    // `Host` is one of them.
    for (count, bytes, fits) in [
        (100, 10, true),
        (127, 10, true),
        (128, 10, false),
        (200, 10, false),
        (9, 10_000, true),
        (10, 10_000, false),
    ] {
        let mut raw = Raw::connect(server.traffic_port()).await?;
        let headers: String =
            fields(count, bytes).iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        raw.send(format!("GET /events/poll HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes()).await?;
        let answer = raw.read_until("}", 1, SOON).await;
        let expected =
            if fits { ["HTTP/1.1 400", "missing_parameter"] } else { ["HTTP/1.1 431", "structured mode"] };
        ensure!(expected.iter().all(|part| answer.contains(part)), "{count} of {bytes}: {answer}");
    }
    let mut raw = Raw::connect(server.traffic_port()).await?;
    raw.send(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n").await?;
    // More than the parser takes: it has no words of its own, and the rest is not read.
    for _ in 0..400 {
        if raw.send(b"x-more: y\r\n").await.is_err() {
            break;
        }
    }
    drop(raw.send(b"\r\n").await);
    let answer = raw.read_head(SOON).await;
    ensure!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");

    for (count, fits) in [(100, true), (140, false)] {
        let mut http2 = RawHttp2::connect(server.traffic_port(), 1 << 20).await?;
        let fields = fields(count, 10);
        let fields: Vec<(&str, &str)> =
            fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let stream = http2.get("/events/poll", &fields).await?;
        let told =
            |heard: &mesh_tests::Heard| heard.bodies.get(&stream).is_some_and(|body| body.ends_with(b"}\n"));
        ensure!(http2.listen(SOON, told).await, "{count}: {:?}", http2.heard);
        let body = String::from_utf8_lossy(&http2.heard.bodies[&stream]).into_owned();
        let expected = if fits { "missing_parameter" } else { "head_too_large" };
        ensure!(body.contains(expected), "{count}: {body}");
    }
    client.publish("t", &event(1)).await?.expect(202)?;
    Ok(())
}

#[tokio::test]
async fn heads_of_strangers_take_little_memory_and_give_it_back() -> Result<()> {
    let access = Access::new()?;
    let mut server = guarded(&access)?;
    let client = of(&server.start().await?, "A/ann");
    client.published("t", [event(1)]).await?;
    let before = server.resident_kib()?;
    let mut open = Vec::new();
    let mut most = before;
    for _ in 0..10 {
        let mut http2 = RawHttp2::connect(server.traffic_port(), 1 << 20).await?;
        for _ in 0..250 {
            if http2.get_with_references("/events/poll", 15_500).await.is_err() {
                break;
            }
        }
        http2.listen(Duration::from_millis(200), |_| false).await;
        open.push(http2);
        most = most.max(server.resident_kib()?);
    }
    client.publish("t", &event(2)).await?.expect(202)?;
    drop(open);
    ensure!(most - before < 200 << 10, "38 MB of heads took {} KiB", most - before);
    until("the connections to be gone", SOON, async || {
        (client.metric("eventmesh_http_connections").await.ok()? <= 2.0).then_some(())
    })
    .await
}

#[tokio::test]
async fn connections_that_never_say_who_they_are_keep_nobody_out() -> Result<()> {
    let access = Access::new()?;
    let mut server =
        guarded(&access)?.key("eventmesh.http.maxConnections", 20).key("eventmesh.http.headerTimeout", "3s");
    let ann = of(&server.start().await?, "A/ann");
    let opened = Instant::now();
    let mut strangers = Vec::new();
    for _ in 0..19 {
        let mut raw = Raw::connect(server.traffic_port()).await?;
        raw.send(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        ensure!(raw.read_head(SOON).await.starts_with("HTTP/1.1 200"));
        strangers.push(raw);
    }
    let mut refused = RawHttp2::connect(server.traffic_port(), 1 << 20).await?;
    refused.get("/events/poll?clientId=c", &[]).await?;
    ensure!(refused.listen(SOON, |heard| !heard.answered.is_empty()).await, "{:?}", refused.heard);
    // There is no place left, and somebody with a credential gets one.
    ann.publish("t", &event(1)).await?.expect(202)?;
    ensure!(opened.elapsed() < Duration::from_secs(60), "after {:?}", opened.elapsed());
    ensure!(refused.listen(SOON, |heard| heard.goaway || heard.ended).await, "{:?}", refused.heard);
    ensure!(refused.heard.goaway, "{:?}", refused.heard);
    for mut stranger in strangers {
        stranger.read_to_end(SOON).await.context("a stranger keeps its connection")?;
    }
    // Who is known keeps its connection.
    let mut known = Raw::connect(server.traffic_port()).await?;
    let bearer = token_of("A/ann");
    let poll = format!(
        "GET /events/poll?clientId=nobody HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {bearer}\r\n\r\n"
    );
    known.send(poll.as_bytes()).await?;
    ensure!(known.read_until("}", 1, SOON).await.contains("unknown_client"));
    ensure!(known.read_to_end(Duration::from_secs(5)).await.is_none(), "it was closed");
    Ok(())
}

#[tokio::test]
async fn bytes_count_as_they_are_stored_whatever_they_came_as() -> Result<()> {
    let access = Access::new()?;
    let mut server = guarded(&access)?.key("eventmesh.security.gate.quota.bytesPerSecond", 10_000);
    let client = server.start().await?;
    let (ann, bob) = (of(&client, "A/ann"), of(&client, "B/bob"));
    let value = "v".repeat(1_000);
    let names: Vec<String> = (0..60).map(|number| format!("ce-a{number}")).collect();
    let mut headers = vec![("ce-specversion", "1.0"), ("ce-source", "/s"), ("ce-type", "t"), ("ce-id", "1")];
    headers.extend(names.iter().map(|name| (name.as_str(), value.as_str())));
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(ann.call("POST", "/events/publish?topic=t", &headers, "", SOON).await?.status);
    }
    assert_eq!(answers, [202, 429, 429], "60 kB of attributes and no body");

    let filters: Vec<_> = (0..60).map(|_| json!({"suffix": {"subject": value}})).collect();
    let subscribe = |name: &str| Subscribe::broadcast(name, "t").set("filters", filters.clone());
    bob.subscribed(&subscribe("c1")).await?;
    bob.subscribe(&subscribe("c2")).await?.expect_error(429, "rate_limited")?;
    let over = Subscribe::broadcast("c3", "t")
        .set("filters", vec![json!({"suffix": {"subject": "x".repeat(70_000)}})]);
    let refused = bob.subscribe(&over).await?;
    ensure!(refused.to_string().contains("65536 bytes"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn secrets_inside_urls_are_shown_nowhere() -> Result<()> {
    let home = tempfile::tempdir()?;
    let key = "eventmesh.security.gate.token.jwt.jwks.url";
    let other = [
        "-Deventmesh.security.gate.token.jwt.issuer=i".to_owned(),
        "-Deventmesh.security.gate.token.jwt.audience=a".to_owned(),
    ];
    let run = async |command: &[&str], url: &str| {
        let url = format!("-D{key}={url}");
        let mut arguments = command.to_vec();
        arguments.extend([url.as_str(), &other[0], &other[1]]);
        run_to_end(&arguments, &[], home.path(), SOON).await
    };
    // Both say that it cannot be used, and neither what is in it.
    for command in [&["config", "check", "--standalone"][..], &["standalone"]] {
        let output = run(command, "https://user:PASS@host.example/x?apikey=KEY").await?;
        ensure!(output.code == Some(64) && output.text.contains(key), "{:?}: {}", output.code, output.text);
        ensure!(!output.text.contains("PASS") && !output.text.contains("KEY"), "{}", output.text);
    }
    for url in ["https://host.example/x?apikey=KEY", "https://user:PASS@host.example/x?apikey=KEY"] {
        let output = run(&["config", "show", "--standalone"], url).await?;
        ensure!(output.text.contains("host.example"), "{}", output.text);
        ensure!(!output.text.contains("PASS") && !output.text.contains("KEY"), "{}", output.text);
    }
    // Nobody listens there: fetching fails, again and again, and the log says so.
    let mut server = Server::new()?
        .key(key, format!("http://localhost:{}/x?apikey=KEY", mesh_tests::free_port()))
        .key("eventmesh.security.gate.token.jwt.issuer", "i")
        .key("eventmesh.security.gate.token.jwt.audience", "a");
    server.spawn()?;
    until("the failure in the log", SOON, async || server.log().contains("cannot be fetched").then_some(()))
        .await?;
    ensure!(!server.log().contains("KEY"), "{}", server.log());
    server.kill9();
    Ok(())
}
