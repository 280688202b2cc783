//! What tenants and topics may use, from outside: limits that are reached, told truly, and given back on every way
//! out.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mesh_tests::{Access, Client, Delivery, Raw, Reply, Server, Subscribe, event, pause, token_of, until};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

const SOON: Duration = Duration::from_secs(20);

/// A closed gate whose tenants A and B may do everything, within `limits` each.
fn server(access: &Access, limits: &[(&str, &str)]) -> Result<Server> {
    access.tokens(&["A/ann", "A/bob", "B/cat"])?;
    access.rules(&[("ALLOW", "*", "ANY", "*")])?;
    Ok(limits.iter().fold(access.guard(Server::new()?, true), |server, (name, value)| {
        server.key(&format!("eventmesh.security.gate.quota.{name}"), value)
    }))
}

fn of(client: &Client, name: &str) -> Client {
    client.with_token(&token_of(name))
}

/// The `Retry-After` of a refusal with that code.
fn wait_told(reply: Reply, code: &str) -> Result<Duration> {
    let reply = reply.expect_error(429, code)?;
    let seconds: u64 = reply.header("retry-after").context("no Retry-After")?.parse()?;
    ensure!(seconds >= 1, "Retry-After: {seconds}");
    Ok(Duration::from_secs(seconds))
}

fn head(name: &str, target: &str) -> String {
    let token = token_of(name);
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n")
}

/// A connection with one answered request; the head of the answer.
async fn connect(server: &Server, name: &str) -> Result<(Raw, String)> {
    let mut raw = Raw::connect(server.traffic_port()).await?;
    raw.send(head(name, "/events/poll?clientId=nobody&timeoutMs=0").as_bytes()).await?;
    let answer = raw.read_head(SOON).await;
    Ok((raw, answer))
}

/// Opens as many connections of a tenant as it may have, waiting for units to come back, and sees one more refused.
async fn all_connections(server: &Server, name: &str, most: usize) -> Result<Vec<Raw>> {
    let mut open = Vec::new();
    while open.len() < most {
        let what = format!("connection {} of {most}", open.len() + 1);
        let connected = until(&what, SOON, async || {
            connect(server, name).await.ok().filter(|(_, answer)| answer.starts_with("HTTP/1.1 404"))
        });
        open.push(connected.await?.0);
    }
    let (mut over, answer) = connect(server, name).await?;
    ensure!(answer.starts_with("HTTP/1.1 429"), "one more than {most}: {answer}");
    let answer = answer.to_lowercase();
    ensure!(answer.contains("retry-after: ") && answer.contains("connection: close"), "{answer}");
    let rest = over.read_to_end(SOON).await.context("a connection over the limit stays open")?;
    ensure!(rest.contains("quota_exceeded"), "{rest}");
    Ok(open)
}

#[tokio::test]
async fn the_unit_of_a_connection_comes_back_however_the_connection_ends() -> Result<()> {
    // shows: eventmesh.security.gate.quota.connections
    // covers: U105 U109  proves: SG-6
    let access = Access::new()?;
    let mut server = server(&access, &[("connections", "3")])?;
    let client = server.start().await?;
    let (ann, cat) = (of(&client, "A/ann"), of(&client, "B/cat"));
    ann.subscribed(&Subscribe::load_balance("c", "t")).await?;
    drop(ann);
    let port = server.traffic_port();
    for way in ["closed", "reset", "reset in a body", "reset in a poll", "reset in a stream", "no keep-alive"]
    {
        let mut open = all_connections(&server, "A/ann", 3).await.context(way)?;
        let mut ends = open.pop().context("three are open")?;
        match way {
            "closed" => drop(ends),
            "reset" => ends.reset()?,
            "reset in a body" => {
                let token = token_of("A/ann");
                let part = format!(
                    "POST /events/publish?topic=t HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: 1000\r\n\r\n{{"
                );
                ends.send(part.as_bytes()).await?;
                ends.reset()?;
            }
            "reset in a poll" => {
                ends.send(head("A/ann", "/events/poll?clientId=c&timeoutMs=60000").as_bytes()).await?;
                ends.reset()?;
            }
            "reset in a stream" => {
                // What is left of the answer before comes first.
                ends.send(head("A/ann", "/events/stream?clientId=c").as_bytes()).await?;
                let answer = ends.read_until("text/event-stream", 1, SOON).await;
                ensure!(answer.contains("text/event-stream"), "{answer}");
                ends.reset()?;
            }
            _ => {
                let request = head("A/ann", "/events/poll?clientId=nobody&timeoutMs=0");
                ends.send(request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").as_bytes()).await?;
                ends.read_to_end(SOON).await.context("asked to close")?;
            }
        }
        // The other tenant has its own.
        cat.poll_reply("nobody", 1, 0).await?.expect_error(404, "unknown_client")?;
        // Exactly one is free again: three in all, and no fourth.
        let (again, answer) = until(&format!("the unit of one that was {way}"), SOON, async || {
            connect(&server, "A/ann").await.ok().filter(|(_, answer)| answer.starts_with("HTTP/1.1 404"))
        })
        .await?;
        ensure!(answer.starts_with("HTTP/1.1 404"), "{answer}");
        let (_, answer) = connect(&server, "A/ann").await?;
        ensure!(answer.starts_with("HTTP/1.1 429"), "{way} gave back too much: {answer}");
        drop((open, again));
    }
    // A credential that is wrong costs the tenant nothing, and who has none is nobody's connection.
    let mut strangers = Vec::new();
    for _ in 0..20 {
        let mut raw = Raw::connect(port).await?;
        raw.send(b"GET /events/poll?clientId=c HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong-0123456789\r\n\r\n")
            .await?;
        ensure!(raw.read_head(SOON).await.starts_with("HTTP/1.1 401"), "a wrong token");
        strangers.push(raw);
    }
    drop(all_connections(&server, "A/ann", 3).await?);
    Ok(())
}

#[tokio::test]
async fn the_unit_of_a_subscription_comes_back_with_its_end_and_a_restart_counts_them_again() -> Result<()> {
    // shows: eventmesh.security.gate.quota.subscriptions
    // covers: U105 U109  proves: SG-6
    let access = Access::new()?;
    let mut server = server(&access, &[("subscriptions", "2")])?;
    let client = server.start().await?;
    let (ann, bob) = (of(&client, "A/ann"), of(&client, "A/bob"));
    let on = |client: &str| Subscribe::load_balance(client, "t");
    ann.subscribed(&on("c1")).await?;
    // One that fails after the check takes nothing.
    for _ in 0..3 {
        let from = json!({"offsets": {"99": "0"}});
        ann.subscribe(&Subscribe::broadcast("c2", "t").from(from))
            .await?
            .expect_error(400, "invalid_argument")?;
    }
    bob.subscribed(&on("c2")).await?;
    let full = async |by: &Client, name: &str| wait_told(by.subscribe(&on(name)).await?, "quota_exceeded");
    full(&ann, "c3").await?;
    full(&bob, "c3").await.context("they are the tenant's, not the principal's")?;
    // The same again is no other one.
    ann.subscribed(&on("c1")).await?;
    of(&client, "B/cat").subscribed(&on("c3")).await.context("the other tenant has its own")?;

    ann.unsubscribe("c1", "t").await?.expect(200)?;
    let again = ann.unsubscribe("c1", "t").await?;
    again.expect_error(404, "unknown_client").context("ended twice, it comes back once")?;
    ann.subscribed(&on("c3")).await.context("after an unsubscribe")?;
    full(&ann, "c4").await?;
    let path = "/admin/client/reject?clientId=c2&tenant=A";
    client.administer("POST", path, &Value::Null).await?.expect(200)?;
    ann.subscribed(&on("c4")).await.context("after a rejection")?;
    full(&ann, "c5").await?;

    server.kill9();
    let client = server.start().await?;
    let ann = of(&client, "A/ann");
    full(&ann, "c5").await.context("after a kill")?;
    client.administer("DELETE", "/admin/groups/t/default?tenant=A", &Value::Null).await?.expect(200)?;
    ann.subscribed(&on("c5")).await.context("after the group was removed")?;
    ann.subscribed(&on("c6")).await?;
    full(&ann, "c7").await?;
    client.administer("DELETE", "/admin/topics/t?force=true", &Value::Null).await?.expect(200)?;
    ann.subscribed(&Subscribe::load_balance("c7", "u")).await.context("after the topic was deleted")?;
    Ok(())
}

/// Publishes until it is refused; how long it is told to wait.
async fn until_refused(by: &Client, topic: &str) -> Result<Duration> {
    until("the rate to be reached", SOON, async || {
        let reply = by.publish(topic, &event("x")).await.ok()?;
        (reply.status != 202).then(|| wait_told(reply, "rate_limited"))
    })
    .await?
}

#[tokio::test]
async fn who_is_over_a_rate_is_told_the_truth_about_when_to_come_again() -> Result<()> {
    // shows: eventmesh.security.gate.quota.eventsPerSecond eventmesh.security.gate.quota.bytesPerSecond
    // covers: U109  proves: SG-6
    let access = Access::new()?;
    let mut server = server(&access, &[("eventsPerSecond", "4"), ("bytesPerSecond", "20000")])?;
    let client = server.start().await?;
    let (ann, bob, cat) = (of(&client, "A/ann"), of(&client, "A/bob"), of(&client, "B/cat"));
    let wait = until_refused(&ann, "t").await?;
    let told = Instant::now();
    let limited = client.number("rateLimited").await?;
    // Refused again and again, also as another principal of the tenant: that costs nothing.
    let mut refused = 0;
    while refused < 20 && told.elapsed() < wait / 2 {
        refused += u64::from(bob.publish("t", &event("x")).await?.status == 429);
    }
    cat.publish("t", &event(1)).await?.expect(202).context("the other tenant has its own rate")?;
    pause(wait.saturating_sub(told.elapsed())).await;
    ann.publish("t", &event(1)).await?.expect(202).context("after the wait that was told")?;
    ensure!(client.number("rateLimited").await? >= limited + refused, "the counter of refusals grows");

    // A batch larger than the bucket passes when it is full, and is paid for afterwards.
    let events: Vec<Value> = (0..16).map(event).collect();
    let accepted = until("the batch to be taken", SOON, async || {
        ann.publish_batch("t", &events).await.ok().filter(|reply| reply.status == 202)
    });
    accepted.await?;
    let wait = wait_told(ann.publish("t", &event(1)).await?, "rate_limited")?;
    ensure!(wait > Duration::from_secs(1) && wait <= Duration::from_secs(5), "told to wait {wait:?}");
    let told = Instant::now();
    pause(wait.saturating_sub(told.elapsed())).await;
    ann.publish("t", &event(1)).await?.expect(202).context("after the debt")?;

    // Bytes have a bucket of their own.
    let mut large = event("large");
    large["data"] = "x".repeat(50_000).into();
    let taken = until("the large event to be taken", SOON, async || {
        cat.publish("t", &large).await.ok().filter(|reply| reply.status == 202)
    });
    taken.await?;
    let wait = wait_told(cat.publish("t", &large).await?, "rate_limited")?;
    pause(wait).await;
    cat.publish("t", &large).await?.expect(202).context("after the bytes came back")?;
    Ok(())
}

#[tokio::test]
async fn a_flood_of_one_tenant_leaves_a_quiet_one_all_of_its_own() -> Result<()> {
    // proves: SG-6
    const RATE: u64 = 40;
    let access = Access::new()?;
    let mut server = server(&access, &[("eventsPerSecond", &RATE.to_string())])?;
    let client = server.start().await?;
    let start = Instant::now();
    let mut flood = JoinSet::new();
    for _ in 0..8 {
        let by = of(&client, "A/ann");
        flood.spawn(async move {
            let (mut accepted, mut refused) = (0_u64, 0_u64);
            // Eight of them, fifty times a second each: ten times the rate.
            while start.elapsed() < Duration::from_secs(4) {
                let next = Instant::now() + Duration::from_millis(20);
                let reply = by.publish("flood", &event("x")).await?;
                match reply.status {
                    202 => accepted += 1,
                    429 => refused += 1,
                    _ => anyhow::bail!("{reply}"),
                }
                tokio::time::sleep_until(next).await;
            }
            Ok((accepted, refused))
        });
    }
    let cat = of(&client, "B/cat");
    let mut quiet = 0;
    while start.elapsed() < Duration::from_secs(4) {
        let next = Instant::now() + Duration::from_millis(50);
        cat.publish("quiet", &event(quiet)).await?.expect(202).context("the quiet tenant is refused")?;
        quiet += 1;
        tokio::time::sleep_until(next).await;
    }
    let (mut accepted, mut refused) = (0, 0);
    while let Some(counts) = flood.join_next().await {
        let (more, no) = counts??;
        accepted += more;
        refused += no;
    }
    let most = RATE + RATE * u64::try_from(start.elapsed().as_millis())? / 1_000 + 1;
    ensure!(accepted <= most, "{accepted} of the flood were accepted, {most} at most may be");
    ensure!(quiet > 10 && refused > 0, "quiet {quiet}, refused {refused}, accepted {accepted}");
    Ok(())
}

#[tokio::test]
async fn callers_without_a_credential_do_not_starve_those_who_have_one() -> Result<()> {
    // covers: U107 U176
    let access = Access::new()?;
    let mut server = server(&access, &[("connections", "20")])?;
    let client = server.start().await?;
    let port = server.traffic_port();
    let ann = of(&client, "A/ann");
    ann.subscribed(&Subscribe::load_balance("c", "t")).await?;
    let mut slow = Vec::new();
    for number in 0..300 {
        let mut raw = Raw::connect(port).await?;
        // Heads that never end, and bodies that are promised with a wrong token and never come.
        if number % 2 == 0 {
            raw.send(b"POST /events/publish?topic=t HTTP/1.1\r\nHost:").await?;
        } else {
            raw.send(b"POST /events/publish?topic=t HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong-0123456789\r\nContent-Length: 9000000\r\n\r\n").await?;
        }
        slow.push(raw);
    }
    let mut flood = JoinSet::new();
    for number in 0..20 {
        let stranger = client.with_token(&format!("made-up-token-{number}-0123456789"));
        flood.spawn(async move {
            let mut refused = 0;
            loop {
                // Another tenant, client and address each time, none of which is remembered.
                let headers = [("x-forwarded-for", "192.0.2.1"), ("content-type", "application/json")];
                let path = format!("/events/publish?topic=t{refused}-{number}");
                let reply = stranger.call("POST", &path, &headers, event(refused).to_string(), SOON).await;
                match reply {
                    Ok(reply) if reply.status == 401 => refused += 1,
                    other => return (refused, other.map(|reply| reply.to_string()).unwrap_or_default()),
                }
            }
        });
    }
    let start = Instant::now();
    for number in 0..50 {
        ann.publish("t", &event(number)).await?.expect(202)?;
    }
    let got = ann.receive("c", 50, SOON).await?;
    ann.acked(&got).await?;
    ensure!(start.elapsed() < Duration::from_secs(30), "50 events took {:?}", start.elapsed());
    if let Some(ended) = flood.try_join_next() {
        anyhow::bail!("somebody unknown was answered something else than 401: {:?}", ended?);
    }
    flood.shutdown().await;
    // Each of the promised bodies was refused without being waited for as long as bodies are.
    for (number, raw) in slow.iter_mut().enumerate().filter(|(number, _)| number % 2 == 1).take(20) {
        let answer = raw.read_head(SOON).await;
        ensure!(answer.starts_with("HTTP/1.1 401"), "{number}: {answer:?}");
    }
    let topics = client.admin("/admin/topics").await?.json()?;
    ensure!(!topics.to_string().contains("t0-"), "a stranger made a topic: {topics}");
    Ok(())
}

/// Polls until the tenant may have no more; what came.
async fn fill(by: &Client, name: &str, most: usize) -> Result<Vec<Delivery>> {
    let got = by.receive(name, most, SOON).await?;
    let more = by.poll(name, 100, 0).await?;
    ensure!(more.is_empty(), "{} over the limit of {most}", more.len());
    Ok(got)
}

#[tokio::test]
async fn the_unit_of_a_delivery_comes_back_with_its_end() -> Result<()> {
    // shows: eventmesh.security.gate.quota.backlog
    // covers: U105  proves: SG-6
    const MOST: usize = 4;
    let access = Access::new()?;
    let mut server = server(&access, &[("backlog", "4")])?;
    let client = server.start().await?;
    let (ann, bob, cat) = (of(&client, "A/ann"), of(&client, "A/bob"), of(&client, "B/cat"));
    let never = 600_000;
    let long = |name: &str, topic: &str| Subscribe::load_balance(name, topic).ack_timeout_ms(never);
    ann.subscribed(&long("c", "t")).await?;
    bob.subscribed(&long("d", "u")).await?;
    cat.subscribed(&long("c", "t")).await?;
    for topic in ["t", "u"] {
        let events: Vec<Value> = (0..30).map(event).collect();
        ann.publish_batch(topic, &events).await?.expect(202)?;
    }
    let mut held = fill(&ann, "c", MOST).await?;
    // The limit is the tenant's, over all its clients and groups, and nobody else's.
    ensure!(bob.poll("d", 10, 0).await?.is_empty(), "bob is of the same tenant");
    let of_cat = cat.receive("c", MOST, SOON).await?;
    ensure!(of_cat.len() == MOST, "cat is of another one");

    let settle = async |held: &mut Vec<Delivery>, path: &str, more: Value| -> Result<()> {
        let mut body = more;
        body["deliveryId"] = held.pop().context("one is held")?.delivery_id.into();
        ann.post(&format!("/events/{path}"), &body).await?.expect(200).map(drop)
    };
    // One ends, exactly one more is handed out.
    settle(&mut held, "ack", json!({})).await?;
    held.extend(fill(&ann, "c", 1).await.context("after an ack")?);
    settle(&mut held, "nack", json!({"delayMs": never})).await?;
    held.extend(fill(&ann, "c", 1).await.context("after a nack")?);
    settle(&mut held, "reject", json!({})).await?;
    held.extend(fill(&ann, "c", 1).await.context("after a reject")?);
    // A stream waits while it is full, and gets one for one.
    let mut stream = Raw::connect(server.traffic_port()).await?;
    stream.send(head("A/ann", "/events/stream?clientId=c").as_bytes()).await?;
    ensure!(stream.read_head(SOON).await.starts_with("HTTP/1.1 200"), "the stream opens");
    let early = stream.read_until("\ndata: ", 1, Duration::from_secs(1)).await;
    ensure!(!early.contains("\ndata: "), "over the limit: {early}");
    settle(&mut held, "ack", json!({})).await?;
    let one = stream.read_until("\ndata: ", 1, SOON).await;
    ensure!(one.matches("\ndata: ").count() == 1, "{one}");
    let no_more = stream.read_until("\ndata: ", 1, Duration::from_millis(500)).await;
    ensure!(!no_more.contains("\ndata: "), "over the limit: {no_more}");
    // The client is gone: what it was streamed goes back.
    stream.reset()?;
    let back = until("the unit of a stream that is gone", SOON, async || {
        bob.poll("d", 1, 0).await.ok().filter(|got| !got.is_empty())
    });
    bob.acked(&back.await?).await?;
    // All of a client's, when it leaves.
    ann.unsubscribe("c", "t").await?.expect(200)?;
    let of_bob = fill(&bob, "d", MOST).await.context("after an unsubscribe")?;
    bob.acked(&of_bob).await?;

    // Locks that run out, and dead letters.
    bob.subscribed(&Subscribe::load_balance("d", "u").ack_timeout_ms(3_000).backoff_ms(never, never)).await?;
    fill(&bob, "d", MOST).await?;
    let expired = until("the locks to run out", SOON, async || {
        bob.poll("d", 10, 0).await.ok().filter(|got| !got.is_empty())
    });
    let after = expired.await?;
    bob.acked(&after).await?;
    bob.subscribed(&Subscribe::load_balance("d", "u").ack_timeout_ms(never).max_attempts(1)).await?;
    let last = until("all units", SOON, async || {
        let got = bob.poll("d", 4, 0).await.ok()?;
        if got.len() == MOST {
            return Some(got);
        }
        bob.acked(&got).await.ok()?;
        None
    });
    for delivery in last.await? {
        let body = json!({"deliveryId": delivery.delivery_id});
        bob.post("/events/nack", &body).await?.expect(200)?;
    }
    let dead = until("the last attempts to be dead letters", SOON, async || {
        client.dead_letters("u").await.ok().filter(|dead| dead.len() >= MOST)
    });
    dead.await?;
    let again = fill(&bob, "d", MOST).await.context("after dead letters")?;

    // A restart counts what is still held.
    server.kill9();
    let client = server.start().await?;
    let (ann, bob) = (of(&client, "A/ann"), of(&client, "A/bob"));
    ensure!(bob.poll("d", 10, 0).await?.is_empty(), "they are still handed out");
    bob.acked(&again[..1]).await?;
    ensure!(bob.poll("d", 10, 0).await?.len() == 1, "one for one after a restart");
    ann.subscribed(&long("c", "t")).await?;
    ensure!(ann.poll("c", 10, 0).await?.is_empty(), "and for the tenant's other clients");
    Ok(())
}

#[tokio::test]
async fn a_rate_of_a_topic_is_kept_told_and_taken_away() -> Result<()> {
    // covers: U109 U119
    let mut server = Server::new()?;
    let client = server.start().await?;
    let path = "/admin/ratelimit";
    let wrong = [
        (json!({"topic": "t", "capacity": 0, "rate": 1}), "1…1000000000"),
        (json!({"topic": "t", "capacity": -1, "rate": 1}), "capacity"),
        (json!({"topic": "t", "capacity": 1e308, "rate": 1}), "capacity"),
        (json!({"topic": "t", "capacity": 1.5, "rate": 1}), "capacity"),
        (json!({"topic": "t", "capacity": "many", "rate": 1}), "capacity"),
        (json!({"topic": "t", "capacity": null, "rate": 1}), "capacity"),
        (json!({"topic": "t", "rate": 1}), "capacity"),
        (json!({"topic": "t", "capacity": 1}), "rate"),
        (json!({"topic": "t", "capacity": 1, "rate": 0}), "0.001…1000000000"),
        (json!({"topic": "t", "capacity": 1, "rate": -1}), "0.001…1000000000"),
        (json!({"topic": "t", "capacity": 1, "rate": 1e308}), "0.001…1000000000"),
        (json!({"topic": "t", "capacity": 1, "rate": "NaN"}), "rate"),
        (json!({"capacity": 1, "rate": 1}), "topic"),
        (json!({"topic": "", "capacity": 1, "rate": 1}), "topic"),
        (json!({"topic": "a b", "capacity": 1, "rate": 1}), "topic"),
    ];
    for method in ["PUT", "POST"] {
        for (body, named) in &wrong {
            let reply = client.administer(method, path, body).await?;
            ensure!(reply.status == 400 && !reply.code().is_empty(), "{method} {body}: {reply}");
            let text = String::from_utf8_lossy(&reply.body).into_owned();
            ensure!(text.contains(named), "{method} {body} does not name {named}: {text}");
        }
        let headers = [("authorization", format!("Bearer {}", mesh_tests::TOKEN))];
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let no_number = r#"{"topic":"t","capacity":1,"rate":NaN}"#;
        ensure!(client.admin_call(method, path, &headers, no_number).await?.status == 400, "{method} NaN");
    }
    ensure!(client.admin(path).await?.json()? == json!([]), "nothing of that is kept");
    client.publish("t", &event(1)).await?.expect(202)?;

    client.administer("PUT", path, &json!({"topic": "t", "capacity": 2, "rate": 0.5})).await?.expect(200)?;
    client.administer("POST", path, &json!({"topic": "u", "capacity": 7, "rate": 3})).await?.expect(200)?;
    let kept = client.admin(path).await?.json()?;
    let wait = until_refused(&client, "t").await?;
    ensure!(wait <= Duration::from_secs(2), "told to wait {wait:?}");
    pause(wait).await;
    client.publish("t", &event(2)).await?.expect(202).context("after the wait that was told")?;
    let before = client.number("rateLimited").await?;
    let events: Vec<Value> = (0..5).map(event).collect();
    wait_told(client.publish_batch("t", &events).await?, "rate_limited")?;
    ensure!(client.number("rateLimited").await? == before + 1, "a refusal is counted");
    client.publish("other", &event(1)).await?.expect(202)?;

    server.kill9();
    let client = server.start().await?;
    ensure!(client.admin(path).await?.json()? == kept, "kept over a kill: {kept}");
    until_refused(&client, "t").await.context("in force after a kill")?;
    let gone = client.administer("DELETE", "/admin/ratelimit?topic=t", &Value::Null).await?.expect(200)?;
    ensure!(gone.json()?["removed"] == true, "{gone}");
    let gone = client.administer("DELETE", "/admin/ratelimit?topic=t", &Value::Null).await?.expect(200)?;
    ensure!(gone.json()?["removed"] == false, "{gone}");
    client.published("t", (0..20).map(event)).await.context("without a rate")?;
    server.kill9();
    let client = server.start().await?;
    let kept = client.admin(path).await?.json()?;
    ensure!(kept.as_array().is_some_and(|rates| rates.len() == 1 && rates[0]["topic"] == "u"), "{kept}");
    Ok(())
}
