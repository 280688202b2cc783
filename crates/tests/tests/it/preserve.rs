//! What is accepted comes back as it went in: attributes with their types, data byte for byte.

use anyhow::{Context, Result, ensure};
use mesh_tests::event;
use serde_json::{Value, json};

use crate::publish::{EVENT, SOON, next, nothing_was_stored, subscribed, through, with};

#[tokio::test]
async fn attribute_values_keep_their_type_and_others_are_refused() -> Result<()> {
    // covers: U21
    let (_server, client) = subscribed().await?;
    let kept = [
        json!(5),
        json!(true),
        json!(false),
        json!(-2_147_483_648_i64),
        json!(2_147_483_647),
        json!("5"),
        json!("true"),
    ];
    for value in kept {
        assert_eq!(through(&client, &with("ext", value.clone())).await?.event()["ext"], value);
    }
    let absent = through(&client, &with("ext", Value::Null)).await?;
    ensure!(absent.event().get("ext").is_none(), "null counts as absent: {}", absent.event.get());
    for value in [json!({"a": 1}), json!([1]), json!(2_147_483_648_i64), json!(1.5)] {
        let reply = client.publish("t", &with("ext", value)).await?.expect_error(400, "invalid_event")?;
        ensure!(reply.to_string().contains("ext"), "the attribute is not named: {reply}");
    }
    nothing_was_stored(&client).await
}

#[tokio::test]
async fn json_data_comes_back_byte_for_byte() -> Result<()> {
    // covers: U23
    let (_server, client) = subscribed().await?;
    let data = [
        r#""{\"a\":1}""#,
        r#"{"a":1}"#,
        r#""42""#,
        "42",
        "1.0",
        r#"{"z":1,"a":1e400}"#,
        "9007199254740993",
        "-0.0",
        "[]",
        r#"{"z":{"y":[1, 2,3]},"a":"Stra\u00dfe \ud83d\ude00"}"#,
        r#""""#,
        "false",
    ];
    for text in data {
        let body = format!(
            r#"{{"specversion":"1.0","id":"1","source":"/t","type":"t","datacontenttype":"application/json","data":{text}}}"#
        );
        client.publish_bytes("t", EVENT, body).await?.expect(202)?;
        assert_eq!(next(&client).await?.raw("data").as_deref(), Some(text));
    }
    let mut without = event(1);
    without.as_object_mut().context("an object")?.remove("data");
    ensure!(through(&client, &without).await?.raw("data").is_none(), "absent data came back as something");
    Ok(())
}

#[tokio::test]
async fn text_and_binary_data_of_every_label_come_back_unchanged() -> Result<()> {
    // covers: U31
    let (_server, client) = subscribed().await?;
    let cases = [
        ("application/xml", json!({"data": "<a/>"})),
        ("text/plain;charset=utf-8", json!({"data": "x \u{1F600}\n\t"})),
        ("text/plain", json!({"data": ""})),
        ("image/png", json!({"data_base64": "iVBORw0KGgo="})),
        ("application/octet-stream", json!({"data_base64": "AAECAwT//v0="})),
        ("application/json", json!({"data_base64": "eyJhIjoxfQ=="})),
        ("application/vnd.acme+json", json!({"data": {"a": 1}})),
        ("Application/XML; Charset=\"UTF-8\"", json!({"data": "<b/>"})),
        ("application/octet-stream", json!({"data_base64": ""})),
    ];
    for (label, data) in cases {
        let mut sent =
            json!({"specversion": "1.0", "id": "1", "source": "/t", "type": "t", "datacontenttype": label});
        sent.as_object_mut().context("an object")?.extend(data.as_object().context("an object")?.clone());
        assert_eq!(through(&client, &sent).await?.event(), sent);
    }
    Ok(())
}

#[tokio::test]
async fn binary_mode_keeps_the_bytes_of_its_body() -> Result<()> {
    let (_server, client) = subscribed().await?;
    let all: Vec<u8> = (0..=255).collect();
    let cases: [(&str, &[u8], &str, Value); 5] = [
        ("application/octet-stream", &[0, 1], "data_base64", json!("AAE=")),
        ("application/json", br#"{"z":1, "a":2}"#, "data", json!({"z": 1, "a": 2})),
        ("application/json", b"{not json", "data_base64", json!("e25vdCBqc29u")),
        ("text/plain", b"hello", "data", json!("hello")),
        ("text/plain", b"\xff", "data_base64", json!("/w==")),
    ];
    let headers = |kind| {
        [
            ("ce-specversion", "1.0"),
            ("ce-id", "b"),
            ("ce-source", "/t"),
            ("ce-type", "t"),
            ("ce-count", "5"),
            ("content-type", kind),
        ]
    };
    for (kind, body, member, value) in cases {
        client
            .call("POST", "/events/publish?topic=t", &headers(kind), body.to_vec(), SOON)
            .await?
            .expect(202)?;
        let event = next(&client).await?.event();
        assert_eq!(
            (&event[member], &event["datacontenttype"], &event["count"]),
            (&value, &json!(kind), &json!("5"))
        );
    }
    let kind = "application/octet-stream";
    client.call("POST", "/events/publish?topic=t", &headers(kind), all, SOON).await?.expect(202)?;
    let text = next(&client).await?.event()["data_base64"].as_str().context("base64")?.to_owned();
    ensure!(
        text.starts_with("AAECAwQF") && text.ends_with("/P3+/w==") && text.len() == 344,
        "256 bytes came as {text}"
    );
    Ok(())
}

#[tokio::test]
async fn header_values_are_decoded_exactly_once() -> Result<()> {
    // covers: U25
    let (_server, client) = subscribed().await?;
    let base = [
        ("ce-specversion", "1.0"),
        ("ce-id", "1"),
        ("ce-source", "/t"),
        ("ce-type", "t"),
        ("content-type", "text/plain"),
    ];
    for (sent, come) in
        [("a%20b", "a b"), ("%E2%82%AC", "\u{20AC}"), ("%41", "A"), ("%2541", "%41"), ("\"a b\"", "a b")]
    {
        let headers: Vec<_> = base.into_iter().chain([("ce-subject", sent)]).collect();
        client.call("POST", "/events/publish?topic=t", &headers, "x", SOON).await?.expect(202)?;
        assert_eq!(next(&client).await?.event()["subject"], come, "{sent}");
    }
    let headers: Vec<_> = base.into_iter().chain([("ce-subject", "%ff")]).collect();
    client
        .call("POST", "/events/publish?topic=t", &headers, "x", SOON)
        .await?
        .expect_error(400, "invalid_event")?;
    nothing_was_stored(&client).await
}
