//! Publishing over the wire: what is refused, and how.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mesh_tests::{Client, Delivery, Server, Subscribe, event};
use serde_json::{Value, json};

pub(crate) const EVENT: &str = "application/cloudevents+json";
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A started server with one subscriber `c` of topic `t`.
pub(crate) async fn subscribed() -> Result<(Server, Client)> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    client.subscribed(&Subscribe::broadcast("c", "t")).await?;
    Ok((server, client))
}

/// What comes out when an event goes in.
pub(crate) async fn through(client: &Client, event: &Value) -> Result<Delivery> {
    client.publish("t", event).await?.expect(202).with_context(|| format!("publishing {event}"))?;
    next(client).await
}

pub(crate) async fn next(client: &Client) -> Result<Delivery> {
    let delivery = client.receive("c", 1, SOON).await?.pop().context("one delivery")?;
    client.acked([&delivery]).await?;
    Ok(delivery)
}

pub(crate) async fn nothing_was_stored(client: &Client) -> Result<()> {
    let got = client.poll("c", 10, 0).await?;
    ensure!(
        got.is_empty(),
        "{:?} was delivered",
        got.iter().map(|delivery| delivery.event.get()).collect::<Vec<_>>()
    );
    Ok(())
}

pub(crate) fn with(name: &str, value: Value) -> Value {
    let mut event = event(1);
    event[name] = value;
    event
}

#[tokio::test]
async fn an_event_is_never_wrapped_into_a_second_envelope() -> Result<()> {
    // covers: U14
    let (_server, client) = subscribed().await?;
    let sent = with("time", json!("2026-01-02T03:04:05Z"));
    for content_type in [EVENT, "application/cloudevents+json; charset=utf-8", "application/json"] {
        client.publish_bytes("t", content_type, sent.to_string()).await?.expect(202)?;
        assert_eq!(next(&client).await?.event(), sent, "{content_type}");
    }
    let reply = client.publish_bytes("t", "application/json", r#"{"not":"an event"}"#).await?;
    ensure!(matches!(reply.status, 400 | 415), "{reply}");
    nothing_was_stored(&client).await
}

#[tokio::test]
async fn one_event_and_several_each_have_their_route() -> Result<()> {
    // covers: U16
    let (_server, client) = subscribed().await?;
    let array = json!([event(1), event(2)]).to_string();
    for content_type in [EVENT, "application/json"] {
        let reply = client.publish_bytes("t", content_type, array.clone()).await?.expect(400)?;
        ensure!(reply.to_string().contains("publish-batch"), "no hint to the other route: {reply}");
    }
    let batch = "/events/publish-batch?topic=t";
    for content_type in ["application/cloudevents-batch+json", "application/json"] {
        let headers = [("content-type", content_type)];
        let body = event(1).to_string();
        let reply = client.call("POST", batch, &headers, body, SOON).await?.expect(400)?;
        ensure!(reply.to_string().contains("/events/publish"), "no hint to the other route: {reply}");
    }
    nothing_was_stored(&client).await?;
    let empty = client.publish_batch("t", &[]).await?.expect(202)?.json()?;
    assert_eq!(empty, json!({"status": "accepted", "count": 0}));
    Ok(())
}

#[tokio::test]
async fn a_batch_is_stored_whole_or_not_at_all() -> Result<()> {
    let (_server, client) = subscribed().await?;
    let mut broken = event(3);
    broken["source"] = json!("");
    let reply = client.publish_batch("t", &[event(1), event(2), broken]).await?.expect(400)?;
    let message = reply.json()?["message"].to_string();
    ensure!(
        message.contains('2') && message.contains("source"),
        "index 2 and `source` are not named: {reply}"
    );
    nothing_was_stored(&client).await?;
    let events: Vec<Value> = (0..500).map(event).collect();
    let reply = client.publish_batch("t", &events).await?.expect(202)?.json()?;
    assert_eq!((&reply["status"], &reply["count"]), (&json!("accepted"), &json!(500)));
    let mut got: Vec<usize> = client
        .receive("c", 500, SOON)
        .await?
        .iter()
        .map(|delivery| delivery.id().parse())
        .collect::<Result<_, _>>()?;
    got.sort_unstable();
    assert_eq!(got, (0..500).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn an_accepted_publish_says_where_the_event_is() -> Result<()> {
    let (_server, client) = subscribed().await?;
    let reply = client.publish("t", &event(1)).await?.expect(202)?.json()?;
    let delivery = next(&client).await?;
    assert_eq!((&reply["status"], &reply["topic"]), (&json!("accepted"), &json!("t")));
    assert_eq!(reply["partition"], json!(delivery.partition));
    ensure!(
        reply["offset"] == json!(delivery.offset) || reply["offset"] == json!(delivery.offset()),
        "{reply} against offset {}",
        delivery.offset
    );
    Ok(())
}

#[tokio::test]
async fn attribute_names_are_lower_case_letters_and_digits_of_any_sensible_length() -> Result<()> {
    // covers: U20
    let (_server, client) = subscribed().await?;
    for name in ["my-ext", "MyExt", "my_ext", "dataContentType"] {
        let reply = client.publish("t", &with(name, json!("v"))).await?.expect_error(400, "invalid_event")?;
        ensure!(reply.to_string().contains(name), "{name} is not named in {reply}");
    }
    nothing_was_stored(&client).await?;
    let long = "abcdefghijklmnopqrstuvwxyz";
    assert_eq!(through(&client, &with(long, json!("v"))).await?.event()[long], json!("v"));
    Ok(())
}

#[tokio::test]
async fn relative_references_are_sources_and_the_empty_one_is_not() -> Result<()> {
    // covers: U24
    let (_server, client) = subscribed().await?;
    assert_eq!(
        through(&client, &with("source", json!("/subscriptions/5df"))).await?.event()["source"],
        "/subscriptions/5df"
    );
    client.publish("t", &with("source", json!(""))).await?.expect_error(400, "invalid_event")?;
    for (name, value) in [("source", "a b"), ("dataschema", "#"), ("dataschema", "https://x/y")] {
        let reply = client.publish("t", &with(name, json!(value))).await?;
        match reply.status {
            202 => assert_eq!(next(&client).await?.event()[name], value),
            400 => ensure!(reply.to_string().contains(name), "the attribute is not named: {reply}"),
            _ => anyhow::bail!("{name} {value:?} was answered {reply}"),
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_is_no_event_is_refused_with_a_code_and_a_hint() -> Result<()> {
    // covers: U26
    let (_server, client) = subscribed().await?;
    let call = json!({"jsonrpc": "2.0", "method": "tools/call", "id": 1}).to_string();
    let reply = client.publish_bytes("t", "application/json", call).await?.expect(400)?;
    ensure!(reply.to_string().to_lowercase().contains("a2a"), "no hint to the A2A gateway: {reply}");
    for (content_type, body) in
        [("text/plain", "hello"), ("application/json", ""), (EVENT, ""), ("application/xml", "<a/>")]
    {
        let reply = client.publish_bytes("t", content_type, body).await?;
        ensure!(matches!(reply.status, 400 | 415) && !reply.code().is_empty(), "{content_type}: {reply}");
    }
    nothing_was_stored(&client).await
}

#[tokio::test]
async fn a_wrong_required_attribute_is_named_and_the_connection_stays_usable() -> Result<()> {
    // covers: U27
    let (_server, client) = subscribed().await?;
    for name in ["id", "source", "type", "specversion"] {
        let mut missing = event(1);
        missing.as_object_mut().context("an object")?.remove(name);
        for broken in [missing, with(name, json!("")), with(name, json!(7))] {
            let reply = client.publish("t", &broken).await?.expect_error(400, "invalid_event")?;
            ensure!(reply.to_string().contains(name), "{name} is not named: {reply}");
        }
    }
    for version in ["0.3", "1", "2.0"] {
        client
            .publish("t", &with("specversion", json!(version)))
            .await?
            .expect_error(400, "invalid_event")?;
    }
    let broken: [&[u8]; 5] = [
        b"{}",
        br#"{"specversion":"1.0","id":"1""#,
        b"[",
        b"\"x\"",
        b"{\"specversion\":\"1.0\",\"id\":\"\xff\",\"source\":\"/t\",\"type\":\"t\"}",
    ];
    for body in broken {
        let reply = client.publish_bytes("t", EVENT, body.to_vec()).await?.expect(400)?;
        ensure!(!reply.code().is_empty(), "{reply}");
    }
    nothing_was_stored(&client).await?;
    through(&client, &event(2)).await?;
    Ok(())
}

#[tokio::test]
async fn the_topic_parameter_is_decoded_once_and_given_once() -> Result<()> {
    // covers: U29
    let (_server, client) = subscribed().await?;
    client.subscribed(&Subscribe::broadcast("dots", "a.b-c_d")).await?;
    let path = |query: &str| format!("/events/publish?{query}");
    let publish = async |query: &str| {
        client.call("POST", &path(query), &[("content-type", EVENT)], event(1).to_string(), SOON).await
    };
    publish("topic=a%2Eb%2dc_d").await?.expect(202)?;
    assert_eq!(client.receive("dots", 1, SOON).await?.len(), 1);
    for query in [
        "topic=t&topic=t",
        "topic",
        "topic=",
        "",
        "topic=%2574",
        "topic=a%2Bb",
        "topic=a%26b",
        "topic=a+b",
        "topic=%ff",
    ] {
        let reply = publish(query).await?;
        ensure!(reply.status == 400 && !reply.code().is_empty(), "{query:?} was answered {reply}");
    }
    // Names with such characters are none anywhere.
    for topic in ["a+b", "a&b"] {
        client
            .subscribe(&Subscribe::load_balance("x", topic))
            .await?
            .expect_error(400, "invalid_argument")?;
    }
    nothing_was_stored(&client).await
}

#[tokio::test]
async fn reserved_names_are_refused_and_oversized_events_too() -> Result<()> {
    let (_server, client) = subscribed().await?;
    client.publish("t_DLQ", &event(1)).await?.expect_error(403, "reserved_topic")?;
    client.publish("__t", &event(1)).await?.expect(400).map(drop).or_else(|error| {
        // Either is a refusal that names the matter.
        if error.to_string().contains("got 403") { Ok(()) } else { Err(error) }
    })?;
    client.publish("t", &with("emreplaygroup", json!("g"))).await?.expect_error(400, "reserved_attribute")?;
    client.publish("t", &with("emdlreason", json!("x"))).await?.expect_error(400, "reserved_attribute")?;
    client.publish("t", &with("big", json!("x".repeat(70_000)))).await?.expect(400)?;
    let data =
        json!({"specversion": "1.0", "id": "1", "source": "/t", "type": "t", "data": "x".repeat(9 << 20)});
    client.publish("t", &data).await?.expect_error(413, "too_large")?;
    nothing_was_stored(&client).await
}
