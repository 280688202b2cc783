//! Attributes with a type of their own are held to it in every mode that an event can come in.

use std::time::Duration;

use anyhow::{Result, ensure};
use mesh_tests::{Client, Reply, Server, Subscribe, event};
use serde_json::json;

const SOON: Duration = Duration::from_secs(20);

/// An event with an attribute, in structured mode, in a batch, and in binary mode.
async fn in_every_mode(client: &Client, name: &str, value: &str) -> Result<[Reply; 3]> {
    let mut structured = event("1");
    structured[name] = json!(value);
    let batch = json!([event("0"), structured]);
    let mut headers: Vec<(String, String)> = ["specversion=1.0", "id=1", "source=/t", "type=t"]
        .iter()
        .filter_map(|pair| pair.split_once('='))
        .filter(|(attribute, _)| *attribute != name)
        .map(|(attribute, value)| (format!("ce-{attribute}"), value.to_owned()))
        .collect();
    headers.push(match name {
        "datacontenttype" => ("content-type".to_owned(), value.to_owned()),
        name => (format!("ce-{name}"), value.replace('%', "%25").replace(' ', "%20")),
    });
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    Ok([
        client.publish("t", &structured).await?,
        client
            .call(
                "POST",
                "/events/publish-batch?topic=t",
                &[("content-type", "application/cloudevents-batch+json")],
                batch.to_string(),
                SOON,
            )
            .await?,
        client.call("POST", "/events/publish?topic=t", &headers, "x", SOON).await?,
    ])
}

#[tokio::test]
async fn attributes_with_a_type_of_their_own_are_held_to_it_in_every_mode() -> Result<()> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    for (name, good, bad) in [
        ("datacontenttype", "text/plain;charset=utf-8", &["xyz", "a/b/c", "text/plain; charset"][..]),
        ("dataschema", "https://a.example/s", &["/s", "https://a b"]),
        ("source", "urn:shop:1", &["a%2", "%zz", "a#b#c"]),
        ("time", "2026-12-01T00:00:00Z", &["today", "2026-12-01"]),
        ("expirytime", "2036-12-01T00:00:00Z", &["tomorrow", "5s"]),
        ("emttl", "60000", &["5s", "-1", "1.5", "soon"]),
        ("dataref", "https://a.example/1", &["%zz"]),
    ] {
        for reply in in_every_mode(&client, name, good).await? {
            reply.expect(202)?;
        }
        for value in bad {
            for reply in in_every_mode(&client, name, value).await? {
                let reply = reply.expect_error(400, "invalid_event")?;
                ensure!(reply.json()?["message"].to_string().contains(name), "{name} {value}: {reply}");
            }
        }
    }
    // An Integer is read too.
    let mut typed = event("2");
    typed["emttl"] = json!(60_000);
    client.publish("t", &typed).await?.expect(202)?;
    typed["emttl"] = json!(-1);
    client.publish("t", &typed).await?.expect_error(400, "invalid_event")?;
    Ok(())
}

#[tokio::test]
async fn what_is_wrong_with_a_text_is_called_what_it_is() -> Result<()> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    let post = async |path: &str, kind: &str, body: &str| -> Result<String> {
        let reply = client.call("POST", path, &[("content-type", kind)], body.to_owned(), SOON).await?;
        Ok(reply.expect(400)?.json()?["message"].as_str().unwrap_or_default().to_owned())
    };
    let json = "application/json";
    for (path, kind, body, word) in [
        (
            "/events/subscribe",
            json,
            r#"{"clientId":"\ud800","topic":"t","mode":"LOAD_BALANCE"}"#,
            "is no character",
        ),
        ("/events/ack", json, r#"{"deliveryId":["\udc00"]}"#, "is no character"),
        ("/events/ack", json, "\u{feff}{}", "byte order mark"),
        ("/events/publish?topic=t", "application/cloudevents+json", "\u{feff}{}", "byte order mark"),
        (
            "/events/publish-batch?topic=t",
            "application/cloudevents-batch+json",
            "\u{feff}[]",
            "byte order mark",
        ),
        (
            "/events/publish?topic=t",
            "application/cloudevents+json",
            r#"{"specversion":"1.0","id":"\ud800","source":"/t","type":"t"}"#,
            "not a character",
        ),
    ] {
        let told = post(path, kind, body).await?;
        ensure!(told.contains(word), "{path} {body}: {told}");
    }
    Ok(())
}
