//! Every error code of the closed list, provoked in a running server and held against the document: the status,
//! the code among those of that operation, and the shape of the answer.
//!
//! The list is read from the document that the server shows, so that a code which is added there and provoked
//! nowhere fails here.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use mesh_tests::{Client, Raw, Reply, Server, Subscribe, document, event, operations, sized, until};
use serde_json::{Value, json};

use crate::disk_full::{SmallDisk, server_on};

const SOON: Duration = Duration::from_secs(30);
const EVENT: &str = "application/cloudevents+json";

/// Codes of doors that are not built yet, each with what it belongs to. What builds it moves its line to where it
/// provokes it.
const LATER: &[(&str, &str)] =
    &[("wrong_instance", "several instances on one Meta store: alone an instance holds everything")];

/// Codes that no healthy process gives from outside, with the file and the test that provokes each by a fault put
/// into the log's place.
const IN_PROCESS: &[(&str, &str, &str)] = &[(
    "internal",
    "../ingress/tests/it/round.rs",
    "a_request_that_panics_is_answered_500_and_takes_nobody_with_it",
)];

/// An answer, with the operation it is of; without one it is of a path or method that no operation has.
struct Seen {
    operation: Option<&'static str>,
    code: &'static str,
    reply: Reply,
}

fn seen(operation: &'static str, code: &'static str, reply: Reply) -> Seen {
    Seen { operation: Some(operation), code, reply }
}

#[tokio::test]
async fn every_code_of_the_document_is_provoked_and_answered_as_the_document_says() -> Result<()> {
    let mut server = Server::new()?
        .key("eventmesh.storage.partitions", 2)
        .key("eventmesh.topic.autoCreate", false)
        .key("eventmesh.topic.max", 3)
        .key("eventmesh.http.maxBodyBytes", "64KiB");
    let client = server.start().await?;
    let document = document(&client).await?;
    let groups = tokio::try_join!(
        bad_requests(&client),
        behind_the_gate(),
        too_slow_and_too_much(),
        not_ready(),
        locked(),
        damaged_files(),
        no_room_for_the_dead(),
        little_space(),
        no_space(),
    )?;
    let (a, b, c, d, e, f, g, h, i) = groups;
    let mut provoked: BTreeMap<&str, &str> = BTreeMap::new();
    for Seen { operation, code, reply } in [a, b, c, d, e, f, g, h, i].into_iter().flatten() {
        let reply = reply.clone();
        let status = reply.status;
        let reply = reply.expect_error(status, code)?;
        check(&document, operation, &reply)?;
        // Waiting opens no admin port that has no token.
        if status == 503 && code != "admin_locked" {
            let wait = reply.header("retry-after").context("503 says when to try again")?;
            ensure!(wait.parse::<u64>().is_ok_and(|seconds| seconds > 0), "{wait}: {reply}");
        }
        provoked.insert(code, "here");
    }
    for (code, file, test) in IN_PROCESS {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file))?;
        ensure!(text.contains(&format!("async fn {test}()")), "{file} has no test {test}");
        ensure!(text.contains(code), "{file} does not speak of {code}");
        ensure!(provoked.insert(code, "in process").is_none(), "{code} is provoked here");
    }
    for (code, belongs_to) in LATER {
        ensure!(
            provoked.insert(code, "later").is_none(),
            "{code} is provoked: it is not only of {belongs_to}"
        );
    }
    let listed = &document["components"]["schemas"]["Error"]["properties"]["error"]["enum"];
    let listed = listed.as_array().context("the closed list")?;
    let missing: Vec<&str> =
        listed.iter().filter_map(Value::as_str).filter(|code| !provoked.contains_key(code)).collect();
    ensure!(missing.is_empty(), "nothing provokes {missing:?}");
    let unlisted: Vec<&&str> = provoked.keys().filter(|code| !listed.contains(&json!(code))).collect();
    ensure!(unlisted.is_empty(), "not in the document: {unlisted:?}");
    Ok(())
}

/// Holds an answer against what the document says of its operation, or of every path.
fn check(document: &Value, operation: Option<&str>, reply: &Reply) -> Result<()> {
    let Some(id) = operation else {
        let response = &document["components"]["responses"][format!("Error{}", reply.status)];
        let codes = &response["content"]["application/json"]["schema"]["properties"]["error"]["enum"];
        let listed = codes.as_array().is_some_and(|codes| codes.contains(&json!(reply.code())));
        ensure!(listed, "{reply} is not in {response}");
        return Ok(());
    };
    let operations = operations(document)?;
    let operation = operations.iter().find(|operation| operation.described["operationId"] == id);
    operation.with_context(|| format!("there is no {id}"))?.check(document, reply, id)
}

/// What a client does wrong, and what an operator does at the wrong time.
async fn bad_requests(client: &Client) -> Result<Vec<Seen>> {
    let publish = async |topic: &str, event: &Value| client.publish(topic, event).await;
    let operate = async |method, path, body: Value| client.administer(method, path, &body).await;
    let mut all = Vec::new();
    let mut take = |operation, code, reply| all.push(seen(operation, code, reply));

    operate("POST", "/admin/topics", json!({"topic": "t", "partitions": 2})).await?.expect(201)?;
    take("publish", "unknown_topic", publish("none", &event(1)).await?);
    take("publish", "invalid_event", publish("t", &json!({})).await?);
    take("publish", "reserved_topic", publish("t_DLQ", &event(1)).await?);
    let mut reserved = event(1);
    reserved["emreplaygroup"] = json!("default/lb/g");
    take("publish", "reserved_attribute", publish("t", &reserved).await?);
    let mut large = event(1);
    large["data"] = sized("1", 100 << 10);
    take("publish", "too_large", publish("t", &large).await?);
    let names: Vec<String> = (0..130).map(|number| format!("ce-a{number}")).collect();
    let headers: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();
    let headed = client.call("POST", "/events/publish?topic=t", &headers, "", SOON).await?;
    take("publish", "head_too_large", headed);
    let headers = [("content-type", EVENT), ("content-encoding", "gzip")];
    let packed = client.call("POST", "/events/publish?topic=t", &headers, "x", SOON).await?;
    take("publish", "unsupported_media_type", packed);
    take("poll", "missing_parameter", client.get("/events/poll").await?);
    take("poll", "invalid_argument", client.get("/events/poll?clientId=c&timeoutMs=soon").await?);
    take("poll", "unknown_client", client.get("/events/poll?clientId=nobody").await?);
    take("ack", "unknown_delivery", client.ack("none").await?);

    client.subscribed(&Subscribe::load_balance("c", "t").max_attempts(1).ack_timeout_ms(100)).await?;
    let other = Subscribe::load_balance("d", "t").max_attempts(2);
    take("subscribe", "group_conflict", client.subscribe(&other).await?);
    let fewer = json!({"topic": "t", "partitions": 1});
    take("makeTopic", "topic_conflict", operate("POST", "/admin/topics", fewer).await?);
    take("deleteTopic", "groups_exist", operate("DELETE", "/admin/topics/t", json!({})).await?);
    take("deleteGroup", "not_found", operate("DELETE", "/admin/groups/t/none", json!({})).await?);
    take("topics", "unauthenticated", client.admin_with("GET", "/admin/topics", &[]).await?);

    publish("t", &event(1)).await?.expect(202)?;
    client.receive("c", 1, SOON).await?;
    until("the dead letter", SOON, async || {
        client.dead_letters("t").await.ok().filter(|letters| letters.len() == 1)
    })
    .await?;
    client.subscribed(&Subscribe::broadcast("gone", "t")).await?;
    operate("POST", "/admin/client/reject?clientId=gone", json!({})).await?.expect(200)?;
    take("poll", "subscription_expired", client.poll_reply("gone", 1, 0).await?);
    operate("DELETE", "/admin/groups/t/default", json!({})).await?.expect(200)?;
    let replay = operate("POST", "/admin/dlq/replay?topic=t", json!({})).await?;
    take("replayDeadLetters", "group_gone", replay);
    // `t`, its dead-letter topic, and one more are all there may be.
    operate("POST", "/admin/topics", json!({"topic": "u"})).await?.expect(201)?;
    let many = operate("POST", "/admin/topics", json!({"topic": "v"})).await?;
    take("makeTopic", "quota_exceeded", many);

    let wrong = client.call("DELETE", "/events/publish", &[], "", SOON).await?;
    ensure!(wrong.header("allow").is_some(), "405 says what there is: {wrong}");
    all.push(Seen { operation: None, code: "method_not_allowed", reply: wrong });
    all.push(Seen { operation: None, code: "not_found", reply: client.get("/events/none").await? });
    Ok(all)
}

/// A publish whose body stops before its end.
async fn half_a_publish(server: &Server, declared: usize, sent: usize) -> Result<Raw> {
    let mut slow = Raw::connect(server.traffic_port()).await?;
    let head = format!(
        "POST /events/publish?topic=t HTTP/1.1\r\nHost: localhost\r\ncontent-type: {EVENT}\r\ncontent-length: {declared}\r\n\r\n"
    );
    slow.send(head.as_bytes()).await?;
    slow.send(&vec![b' '; sent]).await?;
    Ok(slow)
}

/// An answer as it came over a bare connection that was closed behind it.
fn read(text: &str) -> Result<Reply> {
    let (head, body) = text.split_once("\r\n\r\n").with_context(|| format!("no answer: {text:?}"))?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("a status")?;
    let mut headers = HeaderMap::new();
    let kind = head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
    headers.insert(CONTENT_TYPE, HeaderValue::from_str(kind)?);
    Ok(Reply { status, headers, body: Bytes::copy_from_slice(body.as_bytes()) })
}

/// One body takes nearly all the memory that bodies may, and does not end.
async fn too_slow_and_too_much() -> Result<Vec<Seen>> {
    let mut server = Server::new()?
        .key("eventmesh.http.bodyTimeout", "5s")
        .key("eventmesh.http.maxBodyBytes", "1MiB")
        .key("eventmesh.http.maxInFlightBodyBytes", "1MiB");
    let client = server.start().await?;
    let mut large = event(1);
    large["data"] = sized("1", 500 << 10);
    // A slow body that meets a large one may be the one that is refused: then another is begun.
    let mut slow = Vec::new();
    let overloaded = loop {
        ensure!(slow.len() < 20, "the budget of bodies is never used up");
        slow.push(half_a_publish(&server, 1_000_000, 600_000).await?);
        let reply = client.publish("t", &large).await?;
        if reply.status != 202 {
            break reply;
        }
    };
    let mut slowest = None;
    for mut slow in slow {
        let reply = read(&slow.read_to_end(SOON).await.context("a slow body is answered")?)?;
        slowest = slowest.or(Some(reply).filter(|reply| reply.status != 503));
    }
    client.publish("t", &large).await?.expect(202)?;
    let timeout = slowest.context("the body that used up the budget was not too slow")?;
    Ok(vec![seen("publish", "overloaded", overloaded), seen("publish", "timeout", timeout)])
}

/// A stop that waits for a request which does not end.
async fn not_ready() -> Result<Vec<Seen>> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    let _slow = half_a_publish(&server, 100, 1).await?;
    client.publish("t", &event(1)).await?.expect(202)?;
    server.terminate()?;
    let reply = until("the stop to be seen", SOON, async || {
        client.admin_with("GET", "/admin/ready", &[]).await.ok().filter(|reply| reply.status != 200)
    })
    .await?;
    Ok(vec![seen("ready", "not_ready", reply)])
}

/// Two principals of a tenant, of which one may not do everything, behind a closed gate.
async fn behind_the_gate() -> Result<Vec<Seen>> {
    let tokens = ["alice", "bob"].map(|name| {
        format!(
            "[[token]]\nname = \"{name}\"\nvalue = \"token-of-{name}-0123456789\"\ntenant = \"T\"\n\
             principal = \"{name}\"\n"
        )
    });
    let rule = "[[rule]]\ntenant = \"T\"\nresource = \"t\"\naction = \"ANY\"\neffect = \"ALLOW\"\n";
    let server = Server::new()?;
    let path = |name: &str| server.home().join(name);
    std::fs::write(path("tokens.toml"), tokens.concat())?;
    std::fs::write(path("rules.toml"), rule)?;
    let files = ["tokens.toml", "rules.toml"].map(|name| path(name).display().to_string());
    let mut server = server
        .key("eventmesh.security.gate.failClosed", true)
        .key("eventmesh.security.gate.token.file", &files[0])
        .key("eventmesh.security.gate.acl.file", &files[1])
        .key("eventmesh.security.gate.quota.eventsPerSecond", 1);
    let client = server.start().await?;
    let call = async |who: &str, path: &str, body: &Value| {
        let credential = format!("Bearer token-of-{who}-0123456789");
        let headers = [("content-type", EVENT), ("authorization", credential.as_str())];
        client.call("POST", path, &headers, body.to_string(), SOON).await
    };
    let subscribe = json!({"clientId": "c", "topic": "t", "mode": "LOAD_BALANCE"});
    call("alice", "/events/subscribe", &subscribe).await?.expect(200)?;
    let conflict = call("bob", "/events/subscribe", &subscribe).await?;
    let forbidden = call("bob", "/events/publish?topic=other", &event(1)).await?;
    let batch = json!([event(1), event(2), event(3)]);
    call("bob", "/events/publish-batch?topic=t", &batch).await?.expect(202)?;
    // The bucket was full; the batch leaves a debt of two seconds.
    let limited = call("bob", "/events/publish?topic=t", &event(4)).await?;
    ensure!(limited.header("retry-after").is_some(), "429 says when to try again: {limited}");
    Ok(vec![
        seen("subscribe", "client_conflict", conflict),
        seen("publish", "forbidden", forbidden),
        seen("publish", "rate_limited", limited),
    ])
}

async fn locked() -> Result<Vec<Seen>> {
    let mut server = Server::new()?.without_admin_token().key("eventmesh.admin.host", "0.0.0.0");
    let client = server.start().await?;
    let reply = client.admin_with("GET", "/admin/topics", &[]).await?;
    Ok(vec![seen("topics", "admin_locked", reply)])
}

/// Files of the log and of Meta that were damaged while the server was down.
async fn damaged_files() -> Result<Vec<Seen>> {
    let mut server = Server::new()?.key("eventmesh.storage.partitions", 1);
    let mut client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t").max_attempts(1).ack_timeout_ms(60_000)).await?;
    let events: Vec<Value> = (0..200).map(event).collect();
    client.publish_batch("t", &events).await?.expect(202)?;
    let got = client.receive("c", 100, SOON).await?;
    let ids: Vec<&str> = got.iter().map(|delivery| delivery.delivery_id.as_str()).collect();
    client.post("/events/reject", &json!({"deliveryId": ids})).await?.expect(200)?;
    // What the log of writes brings back is put into files of its own at the next start.
    server.stop().await?;
    client = server.start().await?;
    let letters = client.dead_letters("t").await?.len();
    server.stop().await?;
    let damaged = damage(&server.data_directory().join("log"), "blob")?
        + damage(&server.data_directory().join("meta"), "sst")?;
    client = server.start().await?;
    let by_time = Subscribe::load_balance("d", "t").group("new").from("2020-01-01T00:00:00Z");
    let found = client.subscribe(&by_time).await?;
    let browsed = client.admin("/admin/dlq/browse?topic=t&max=1000").await?;
    ensure!(letters == 100 && damaged >= 2, "{letters} letters, {damaged} files");
    Ok(vec![
        seen("subscribe", "storage_unavailable", found),
        seen("browseDeadLetters", "meta_unavailable", browsed),
    ])
}

/// Damages every file with that ending and more than 8 KiB from its second to its fourth tenth, a byte in each 256:
/// there are data; an open reads what is behind them, and lists begin in front. How many files there were.
fn damage(folder: &Path, ending: &str) -> Result<usize> {
    let mut files = 0;
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        if path.extension().is_some_and(|found| found == ending) {
            let mut bytes = std::fs::read(&path)?;
            if bytes.len() <= 8 << 10 {
                continue;
            }
            let (from, to) = (bytes.len() / 5, bytes.len() * 2 / 5);
            for byte in bytes[from..to].iter_mut().step_by(256) {
                *byte ^= 0x55;
            }
            std::fs::write(&path, bytes)?;
            files += 1;
        }
    }
    Ok(files)
}

/// A dead letter that finds no topic to be stored in: the reject is kept, but it is not done.
async fn no_room_for_the_dead() -> Result<Vec<Seen>> {
    let mut server = Server::new()?.key("eventmesh.topic.max", 1);
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    client.published("t", [event(1)]).await?;
    let got = client.receive("c", 1, SOON).await?;
    let reject = client.post("/events/reject", &json!({"deliveryId": got[0].delivery_id})).await?;
    Ok(vec![seen("reject", "ledger_unavailable", reject)])
}

async fn little_space() -> Result<Vec<Seen>> {
    let mut server = Server::new()?.key("eventmesh.storage.lowWatermark", 1_u64 << 60);
    let client = server.start().await?;
    Ok(vec![seen("publish", "storage_low", client.publish("t", &event(1)).await?)])
}

async fn no_space() -> Result<Vec<Seen>> {
    let disk = SmallDisk::mount(96)?;
    let mut server = server_on(&disk)?;
    let client = server.start().await?;
    client.publish("t", &event(1)).await?.expect(202)?;
    let _ballast = disk.ballast("ballast", 200 << 20)?;
    let mut large = event(1);
    large["data"] = sized("1", 1 << 20);
    let full = until("the log to have used up what it had reserved", SOON, async || {
        client.publish("t", &large).await.ok().filter(|reply| reply.status != 202)
    })
    .await?;
    Ok(vec![seen("publish", "storage_full", full)])
}
