//! The audit through the binary: what is kept, that nobody changes it unseen, what a kill and a full disk leave of it,
//! and the topic.

use std::{fs, path::Path, time::Duration};

use anyhow::{Result, ensure};
use mesh_tests::{Client, Output, Reply, Server, Subscribe, event, pause, run_to_end, until};
use serde_json::{Value, json};

use crate::disk_full::SmallDisk;

const SOON: Duration = Duration::from_secs(20);
const WRITER: &str = "token-of-the-writer-0123456789";
const AUDITOR: &str = "token-of-the-auditor-0123456789";

const TOKENS: &str = r#"
[[token]]
name = "writer"
value = "token-of-the-writer-0123456789"
tenant = "shop"
principal = "writer"

[[token]]
name = "auditor"
value = "token-of-the-auditor-0123456789"
tenant = "security"
principal = "auditor"
"#;

const RULES: &str = r#"
[[rule]]
tenant = "shop"
resource = "*"
action = "ANY"
effect = "ALLOW"

[[rule]]
tenant = "*"
resource = "audit"
action = "ANY"
effect = "DENY"
priority = 100

[[rule]]
tenant = "security"
principal = "auditor"
resource = "audit"
action = "SUBSCRIBE"
effect = "ALLOW"
priority = 200
"#;

/// A closed server with a writer and an auditor.
fn closed() -> Result<Server> {
    let server = Server::new()?;
    let path = |name: &str| server.home().join(name);
    fs::write(path("tokens.toml"), TOKENS)?;
    fs::write(path("rules.toml"), RULES)?;
    let files = ["tokens.toml", "rules.toml"].map(|name| path(name).display().to_string());
    Ok(server
        .key("eventmesh.security.gate.failClosed", true)
        .key("eventmesh.security.gate.token.file", &files[0])
        .key("eventmesh.security.gate.acl.file", &files[1]))
}

async fn call(client: &Client, method: &str, path: &str, token: &str, body: &Value) -> Result<Reply> {
    let token = format!("Bearer {token}");
    let headers = [("content-type", "application/json"), ("authorization", token.as_str())];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    client.call(method, path, &headers, body, SOON).await
}

async fn publish(client: &Client, topic: &str, token: &str) -> Result<Reply> {
    call(client, "POST", &format!("/events/publish?topic={topic}"), token, &event(1)).await
}

async fn verify(server: &Server, file: &Path) -> Result<Output> {
    let file = file.display().to_string();
    run_to_end(&["audit", "verify", &file], &[], server.home(), SOON).await
}

async fn holds(server: &Server, file: &Path) -> Result<String> {
    let output = verify(server, file).await?;
    ensure!(output.code == Some(0), "{output:?}");
    Ok(output.text)
}

/// The lines of the audit file, once it has `count` that `wanted` picks.
async fn records(file: &Path, count: usize, wanted: impl Fn(&Value) -> bool) -> Result<Vec<Value>> {
    until("records in the audit file", SOON, async || {
        let text = fs::read_to_string(file).ok()?;
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found: Vec<Value> = lines.filter(|line| wanted(line)).collect();
        (found.len() >= count).then_some(found)
    })
    .await
}

#[tokio::test]
async fn denials_and_administration_are_kept_and_nobody_changes_them_unseen() -> Result<()> {
    // proves: SG-1
    let server = closed()?;
    let file = server.home().join("audit.jsonl");
    let mut server = server.key("eventmesh.security.gate.audit.file", file.display());
    let client = server.start().await?;
    publish(&client, "orders", WRITER).await?.expect(202)?;
    publish(&client, "orders", AUDITOR).await?.expect_error(403, "forbidden")?;
    publish(&client, "orders", "nobodys-token-0123456789").await?.expect_error(401, "unauthenticated")?;
    client.administer("POST", "/admin/topics", &json!({"topic": "made"})).await?.expect(201)?;
    client.admin_with("GET", "/admin/topics", &[]).await?.expect_error(401, "unauthenticated")?;
    let all = records(&file, 4, |line| line["kind"] == "decision").await?;
    let short: Vec<[&str; 5]> = all
        .iter()
        .map(|line| {
            ["outcome", "filter", "operation", "resource", "principal"]
                .map(|name| line[name].as_str().unwrap_or_default())
        })
        .collect();
    let expected = [
        ["denied", "acl", "PUBLISH", "topic:orders", "auditor"],
        ["denied", "token", "PUBLISH", "", ""],
        ["allowed", "", "ADMIN", "POST /admin/topics", "eventmesh.admin.token"],
        ["denied", "admin", "ADMIN", "GET /admin/topics", ""],
    ];
    ensure!(short == expected, "{short:?}");
    // While it is written, and after the stop.
    holds(&server, &file).await?;
    server.stop().await?;
    let said = holds(&server, &file).await?;
    ensure!(said.contains("4 lines in 1 files, number 1 to 4"), "{said}");

    let text = fs::read_to_string(&file)?;
    let lines: Vec<&str> = text.lines().collect();
    let joined = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let swapped = {
        let mut lines = lines.clone();
        lines.swap(1, 2);
        joined(&lines)
    };
    let changed = [
        ("edited", text.replacen("auditor", "nobody", 1), ":1: "),
        ("one cut out", joined(&[&lines[..1], &lines[2..]].concat()), ":2: "),
        ("the last cut off", joined(&lines[..lines.len() - 1]), "missing at the end"),
        ("the first cut off", joined(&lines[1..]), ""),
        ("reordered", swapped, ":2: "),
        ("one twice", joined(&[&lines[..2], &lines[1..]].concat()), ":3: "),
        ("one added", text.clone() + "{\"seq\":5,\"kind\":\"decision\"}\n", ":5: "),
    ];
    for (what, changed, said) in changed {
        fs::write(&file, changed)?;
        let output = verify(&server, &file).await?;
        if what == "the first cut off" {
            // Older files go by themselves; the report says where the log begins.
            ensure!(output.code == Some(0) && output.text.contains("number 2 to 4"), "{what}: {output:?}");
            continue;
        }
        ensure!(output.code == Some(1), "{what}: {output:?}");
        ensure!(output.text.contains(said), "{what}: no {said:?} in {output:?}");
    }
    fs::write(&file, &text)?;
    holds(&server, &file).await?;
    Ok(())
}

#[tokio::test]
async fn a_kill_in_the_middle_leaves_a_log_that_holds_and_goes_on() -> Result<()> {
    let server = closed()?;
    let file = server.home().join("audit.jsonl");
    let mut server = server.key("eventmesh.security.gate.audit.file", file.display());
    for round in 0..3 {
        let client = server.start().await?;
        let mut denied = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let client = client.clone();
            denied.spawn(async move { while publish(&client, "orders", AUDITOR).await.is_ok() {} });
        }
        let wanted = (round + 1) * 50;
        records(&file, wanted, |line| line["outcome"] == "denied").await?;
        server.kill9();
        denied.abort_all();
        holds(&server, &file).await?;
    }
    // A line that the kill cut in two, as it can.
    let mut text = fs::read(&file)?;
    text.extend_from_slice(b"{\"seq\":99999,\"at\":\"2026-01-01T00:00:00Z\",\"kind\":\"deci");
    fs::write(&file, text)?;
    let client = server.start().await?;
    publish(&client, "orders", AUDITOR).await?.expect(403)?;
    let recovered = records(&file, 1, |line| line["kind"] == "recovered").await?;
    ensure!(recovered.len() == 1, "{recovered:?}");
    server.stop().await?;
    holds(&server, &file).await?;
    Ok(())
}

#[tokio::test]
async fn a_full_disk_costs_records_that_are_counted_and_no_request() -> Result<()> {
    // covers: U110  proves: SG-5
    let disk = SmallDisk::mount(1)?;
    let file = disk.path().join("audit.jsonl");
    let mut server = closed()?.key("eventmesh.security.gate.audit.file", file.display());
    let client = server.start().await?;
    let ballast = disk.ballast("ballast", 2 << 20)?;
    let full = async || {
        publish(&client, "orders", AUDITOR).await?.expect_error(403, "forbidden")?;
        publish(&client, "orders", WRITER).await?.expect(202)?;
        client.metric("eventmesh_audit_failures_total").await
    };
    let begun = tokio::time::Instant::now();
    while full().await.unwrap_or_default() < 20.0 {
        ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "the disk took every record:\n{}",
            server.log_end(20)
        );
    }
    until("the failure to be told", SOON, async || {
        let log = server.log();
        let told = log.lines().filter(|line| line.contains("ERROR") && line.contains("audit"));
        (told.count() >= 1).then_some(())
    })
    .await?;
    let told = server.log().lines().filter(|line| line.contains("ERROR")).count();
    ensure!(told <= 10, "{told} errors for one full disk:\n{}", server.log_end(20));

    fs::remove_file(ballast)?;
    let lost = records(&file, 1, |line| line["kind"] == "lost").await?;
    ensure!(lost[0]["records"].as_u64().is_some_and(|lost| lost >= 20), "{lost:?}");
    publish(&client, "orders", AUDITOR).await?.expect(403)?;
    server.stop().await?;
    holds(&server, &file).await?;
    Ok(())
}

#[tokio::test]
async fn an_audit_file_that_cannot_be_written_or_is_none_stops_the_start() -> Result<()> {
    let home = tempfile::tempdir()?;
    let other = home.path().join("notes.txt");
    fs::write(&other, "these are notes\n")?;
    let missing = home.path().join("no/such/folder/audit.jsonl");
    for file in [&other, &missing] {
        let flag = format!("-Deventmesh.security.gate.audit.file={}", file.display());
        let data = format!("-Deventmesh.data.dir={}", home.path().join("data").display());
        let ports = ["-Deventmesh.http.port=0", "-Deventmesh.admin.port=0"];
        let output =
            run_to_end(&["standalone", &flag, &data, ports[0], ports[1]], &[], home.path(), SOON).await?;
        ensure!(output.code == Some(1), "{output:?}");
        ensure!(output.text.contains(&file.display().to_string()), "{output:?}");
    }
    ensure!(fs::read_to_string(&other)? == "these are notes\n", "it was written to");
    Ok(())
}

#[tokio::test]
async fn the_audit_topic_is_read_by_who_may_and_reading_it_makes_no_events() -> Result<()> {
    // proves: SG-1
    let mut server = closed()?
        .key("eventmesh.security.gate.audit.topic", "audit")
        .key("eventmesh.security.gate.audit.topic.records", "everything")
        .key("eventmesh.storage.partitions", 1);
    let client = server.start().await?;
    let subscribe = |name: &str| Subscribe::load_balance(name, "audit").group(name).from("earliest").body();
    let path = "/events/subscribe";
    call(&client, "POST", path, AUDITOR, &subscribe("auditor")).await?.expect(200)?;
    // Others may neither read it nor write to it: the rules say so, as for any topic.
    call(&client, "POST", path, WRITER, &subscribe("writer")).await?.expect_error(403, "forbidden")?;
    publish(&client, "audit", WRITER).await?.expect_error(403, "forbidden")?;
    publish(&client, "audit", AUDITOR).await?.expect_error(403, "forbidden")?;
    publish(&client, "orders", WRITER).await?.expect(202)?;
    publish(&client, "orders", AUDITOR).await?.expect_error(403, "forbidden")?;

    let mut got = Vec::new();
    let begun = tokio::time::Instant::now();
    let poll = async |wait: u32| -> Result<Vec<Value>> {
        let path = format!("/events/poll?clientId=auditor&timeoutMs={wait}");
        let reply = call(&client, "GET", &path, AUDITOR, &Value::Null).await?.expect(200)?;
        let deliveries: Vec<Value> = reply.read()?;
        for delivery in &deliveries {
            let ack = json!({"deliveryId": delivery["deliveryId"]});
            call(&client, "POST", "/events/ack", AUDITOR, &ack).await?.expect(200)?;
        }
        Ok(deliveries.into_iter().map(|mut delivery| delivery["event"].take()).collect())
    };
    while got.len() < 2 {
        ensure!(begun.elapsed() < SOON, "only {got:?} came");
        got.extend(poll(1_000).await?);
    }
    let short: Vec<[&Value; 4]> = got
        .iter()
        .map(|event| ["outcome", "operation", "resource", "principal"].map(|name| &event["data"][name]))
        .collect();
    let expected =
        [["allowed", "PUBLISH", "topic:orders", "writer"], ["denied", "PUBLISH", "topic:orders", "auditor"]];
    ensure!(short == expected, "{short:?}");
    ensure!(got.iter().all(|event| event["type"] == "eventmesh.audit"), "{got:?}");
    // Reading, acknowledging and being refused the topic itself has made none, and does not.
    for _ in 0..5 {
        let more = poll(100).await?;
        ensure!(more.is_empty(), "reading the audit made {more:?}");
    }
    pause(Duration::from_millis(300)).await;
    let more = poll(0).await?;
    ensure!(more.is_empty(), "reading the audit made {more:?}");
    Ok(())
}
