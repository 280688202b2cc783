//! Dead letters explain themselves: why the last attempt failed, how often and when it was handed out.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mesh_tests::{Client, Raw, Server, Subscribe, event, until};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);

/// The only dead letter of a topic.
async fn letter(client: &Client, topic: &str) -> Result<Value> {
    until(&format!("the dead letter of {topic}"), SOON, async || {
        client.dead_letters(topic).await.ok()?.into_iter().next()
    })
    .await
}

fn once(topic: &str) -> Subscribe {
    Subscribe::load_balance(topic, topic).max_attempts(1)
}

/// An RFC 3339 time with milliseconds.
fn is_time(value: &Value) -> bool {
    value.as_str().is_some_and(|text| {
        text.len() == "2026-11-30T14:22:30.158Z".len() && text.ends_with('Z') && text.as_bytes()[19] == b'.'
    })
}

#[tokio::test]
async fn a_dead_letter_says_why_its_last_attempt_failed_and_when_it_was_handed_out() -> Result<()> {
    let mut server = Server::new()?.key("eventmesh.storage.partitions", 1);
    let client = server.start().await?;
    let long = "x\u{7}".repeat(1_000);
    let said = format!("{}x…", "x\\u{7}".repeat(42));
    // The verb, the reason, and what the dead letter says.
    for (topic, verb, reason, expected) in [
        ("a", "nack", json!("out of\npaper"), "out of\\npaper"),
        ("b", "nack", Value::Null, "nacked"),
        ("c", "reject", json!("no such customer"), "no such customer"),
        ("d", "reject", Value::Null, "rejected"),
        ("e", "reject", json!(long), said.as_str()),
    ] {
        client.subscribed(&once(topic)).await?;
        client.published(topic, [event(1)]).await?;
        let got = client.receive(topic, 1, SOON).await?;
        let body = json!({"deliveryId": got[0].delivery_id, "reason": reason});
        client.post(&format!("/events/{verb}"), &body).await?.expect(200)?;
        let letter = letter(&client, topic).await?;
        assert_eq!(letter["lastError"], expected, "{letter}");
        let how = if verb == "nack" { "attempts_exhausted" } else { "rejected" };
        assert_eq!((&letter["reason"], &letter["attempts"]), (&json!(how), &json!(1)), "{letter}");
        assert_eq!(letter["group"], "default");
        ensure!(letter["event"]["emdlreason"] == how, "{letter}");
        let extra =
            letter["event"].as_object().context("an event")?.keys().filter(|key| key.starts_with("emdl"));
        assert_eq!(extra.count(), 4, "the attributes of a dead letter are a closed list: {letter}");
        for time in ["firstHandOut", "lastHandOut", "deadAt"] {
            ensure!(is_time(&letter[time]), "{time}: {letter}");
        }
        ensure!(letter["firstHandOut"] == letter["lastHandOut"], "{letter}");
    }
    // Two attempts, of which time ended the second: the last error is the last one's.
    client
        .subscribed(&Subscribe::load_balance("f", "f").max_attempts(2).ack_timeout_ms(300).backoff_ms(0, 0))
        .await?;
    client.published("f", [event(1)]).await?;
    let got = client.receive("f", 1, SOON).await?;
    let body = json!({"deliveryId": got[0].delivery_id, "reason": "the first"});
    client.post("/events/nack", &body).await?.expect(200)?;
    client.receive("f", 1, SOON).await?;
    let timed_out = letter(&client, "f").await?;
    assert_eq!((&timed_out["lastError"], &timed_out["attempts"]), (&json!("ack deadline passed"), &json!(2)));
    ensure!(timed_out["firstHandOut"].as_str() <= timed_out["lastHandOut"].as_str(), "{timed_out}");
    // A client that leaves while the group stays.
    client.subscribed(&once("g").set("clientId", "other")).await?;
    client.subscribed(&once("g")).await?;
    client.published("g", [event(1)]).await?;
    client.receive("g", 1, SOON).await?;
    client.unsubscribe("g", "g").await?.expect(200)?;
    assert_eq!(letter(&client, "g").await?["lastError"], "client left");
    // A stream that ends with what it was given.
    client.subscribed(&once("h")).await?;
    client.published("h", [event(1)]).await?;
    let mut stream = Raw::connect(server.traffic_port()).await?;
    stream.send(b"GET /events/stream?clientId=h HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    let text = stream.read_until("\ndata: ", 1, SOON).await;
    ensure!(text.contains("\ndata: "), "{text}");
    drop(stream);
    assert_eq!(letter(&client, "h").await?["lastError"], "stream closed");
    Ok(())
}

#[tokio::test]
async fn a_long_reason_becomes_one_printable_line_and_the_event_stays_what_it_was() -> Result<()> {
    // covers: U54
    let mut server = Server::new()?;
    let client = server.start().await?;
    client.subscribed(&once("t")).await?;
    let mut sent = event(1);
    sent["data"] = json!({"z": 1.0, "a": "ü\n"});
    client.published("t", [sent.clone()]).await?;
    let got = client.receive("t", 1, SOON).await?;
    let page = "<html>\r\n<body>Größe nicht erlaubt \u{7}\u{0}</body>\r\n".repeat(400);
    let body = json!({"deliveryId": got[0].delivery_id, "reason": page});
    client.post("/events/nack", &body).await?.expect(200)?;
    let letter = letter(&client, "t").await?;
    let said = letter["lastError"].as_str().context("a text")?;
    ensure!(said.len() <= 256 && said.starts_with("<html>\\r\\n<body>Größe"), "{said}");
    ensure!(!said.chars().any(char::is_control), "{said:?}");
    for name in ["id", "source", "type", "data"] {
        ensure!(letter["event"][name] == sent[name], "{name}: {letter}");
    }
    Ok(())
}

#[tokio::test]
async fn one_client_of_a_broadcast_that_fails_or_leaves_changes_nothing_for_the_other() -> Result<()> {
    // covers: U56
    let mut server = Server::new()?.key("eventmesh.storage.partitions", 1);
    let client = server.start().await?;
    for (topic, end) in [("dies", "dies"), ("leaves", "leaves"), ("out", "out")] {
        let (one, other) = (format!("{topic}-1"), format!("{topic}-2"));
        client.subscribed(&Subscribe::broadcast(&one, topic)).await?;
        client.subscribed(&Subscribe::broadcast(&other, topic).max_attempts(1)).await?;
        client.published(topic, [event(1)]).await?;
        let done = client.receive(&one, 1, SOON).await?;
        client.acked(&done).await?;
        let held = client.receive(&other, 1, SOON).await?;
        ensure!(client.pending().await? == 1, "the other one has it");
        match end {
            "dies" => {
                client
                    .post("/events/nack", &json!({"deliveryId": held[0].delivery_id}))
                    .await?
                    .expect(200)?;
                assert_eq!(letter(&client, topic).await?["group"], other.as_str());
            }
            "leaves" => drop(client.unsubscribe(&other, topic).await?.expect(200)?),
            _ => {
                let path = format!("/admin/client/reject?clientId={other}");
                client.administer("POST", &path, &json!({})).await?.expect(200)?;
            }
        }
        until("nothing to be pending", SOON, async || (client.pending().await.ok()? == 0).then_some(()))
            .await?;
        ensure!(client.poll(&one, 10, 200).await?.is_empty(), "{end}: it came again");
        let offsets = client.offsets(topic).await?;
        ensure!(offsets.iter().all(|(_, floor)| *floor == 1), "{end}: {offsets:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_reason_survives_a_kill_before_its_dead_letter_could_be_stored() -> Result<()> {
    // There is no room for the dead-letter topic: the reject is kept, and finished by a later start.
    let mut server = Server::new()?.key("eventmesh.topic.max", 2);
    let client = server.start().await?;
    for topic in ["t", "u"] {
        client.subscribed(&once(topic)).await?;
        client.published(topic, [event(1)]).await?;
    }
    let rejected = client.receive("t", 1, SOON).await?;
    let nacked = client.receive("u", 1, SOON).await?;
    let body = json!({"deliveryId": rejected[0].delivery_id, "reason": "no such customer"});
    client.post("/events/reject", &body).await?.expect_error(503, "ledger_unavailable")?;
    let body = json!({"deliveryId": nacked[0].delivery_id, "reason": "broken"});
    client.post("/events/nack", &body).await?.expect(200)?;
    ensure!(client.dead_letters("t").await?.is_empty());
    server.kill9();
    let mut server = server.key("eventmesh.topic.max", 10);
    let client = server.start().await?;
    let letter_of = async |topic: &str| {
        let letter = letter(&client, topic).await?;
        anyhow::Ok((letter["lastError"].clone(), letter["reason"].clone()))
    };
    assert_eq!(letter_of("t").await?, (json!("no such customer"), json!("rejected")));
    assert_eq!(letter_of("u").await?, (json!("broken"), json!("attempts_exhausted")));
    Ok(())
}
