//! Bad input on every route: always JSON with the exact code, the connection goes on, nothing is stored.

use crate::{
    client::{Client, event},
    mesh::{Mesh, Wanted},
};

/// Method, target, content type, body, status, code and a word of the message.
type Case = (&'static str, &'static str, &'static str, &'static [u8], u16, &'static str, &'static str);

const CE: &str = "application/cloudevents+json";
const JSON: &str = "application/json";
const BATCH: &str = "application/cloudevents-batch+json";
const PUBLISH: &str = "/events/publish?topic=t";
const PUBLISH_BATCH: &str = "/events/publish-batch?topic=t";
const EVENT: &[u8] = br#"{"specversion":"1.0","id":"1","source":"/t","type":"t"}"#;

const CASES: &[Case] = &[
    // covers: U27
    ("POST", PUBLISH, CE, br#"{"specversion":"1.0","source":"/t","type":"t"}"#, 400, "invalid_event", "`id`"),
    ("POST", PUBLISH, CE, br#"{"specversion":"1.0","id":"1","type":"t"}"#, 400, "invalid_event", "`source`"),
    ("POST", PUBLISH, CE, br#"{"specversion":"1.0","id":"1","source":"/t"}"#, 400, "invalid_event", "`type`"),
    ("POST", PUBLISH, CE, br#"{"id":"1","source":"/t","type":"t"}"#, 400, "invalid_event", "`specversion`"),
    (
        "POST",
        PUBLISH,
        CE,
        br#"{"specversion":"1.0","id":"","source":"/t","type":"t"}"#,
        400,
        "invalid_event",
        "`id`",
    ),
    (
        "POST",
        PUBLISH,
        CE,
        br#"{"specversion":"1.0","id":7,"source":"/t","type":"t"}"#,
        400,
        "invalid_event",
        "`id`",
    ),
    (
        "POST",
        PUBLISH,
        CE,
        br#"{"specversion":"0.3","id":"1","source":"/t","type":"t"}"#,
        400,
        "invalid_event",
        "1.0",
    ),
    ("POST", PUBLISH, CE, b"{}", 400, "invalid_event", "attribute"),
    ("POST", PUBLISH, CE, br#"{"specversion":"1.0","id""#, 400, "invalid_event", "JSON"),
    ("POST", PUBLISH, CE, b"{\"id\":\"\xff\"}", 400, "invalid_event", "UTF-8"),
    (
        "POST",
        PUBLISH,
        CE,
        br#"{"specversion":"1.0","id":"1","source":"/t","type":"t","emdltime":"x"}"#,
        400,
        "reserved_attribute",
        "emdltime",
    ),
    // covers: U26
    (
        "POST",
        PUBLISH,
        JSON,
        br#"{"jsonrpc":"2.0","method":"tools/call","id":1}"#,
        400,
        "invalid_event",
        "A2A",
    ),
    ("POST", PUBLISH, "text/plain", b"hello", 415, "unsupported_media_type", "cloudevents+json"),
    ("POST", PUBLISH, CE, b"", 400, "invalid_event", "empty"),
    ("POST", PUBLISH, "", b"", 415, "unsupported_media_type", "Content-Type"),
    // covers: U14
    ("POST", PUBLISH, JSON, br#"{"a":1}"#, 400, "invalid_event", "attribute"),
    (
        "POST",
        PUBLISH,
        "application/cloudevents+xml",
        b"<e/>",
        415,
        "unsupported_media_type",
        "cloudevents+json",
    ),
    // covers: U16
    ("POST", PUBLISH, CE, b"[{},{}]", 400, "invalid_event", "/events/publish-batch"),
    ("POST", PUBLISH, BATCH, b"[{},{}]", 400, "invalid_event", "/events/publish-batch"),
    ("POST", PUBLISH_BATCH, BATCH, EVENT, 400, "invalid_event", "/events/publish"),
    (
        "POST",
        PUBLISH_BATCH,
        BATCH,
        br#"[{"specversion":"1.0","id":"1","source":"/t","type":"t"},{}]"#,
        400,
        "invalid_event",
        "event 1",
    ),
    ("POST", PUBLISH_BATCH, BATCH, b"nope", 400, "invalid_event", "array"),
    // covers: U29
    ("POST", "/events/publish", CE, EVENT, 400, "missing_parameter", "`topic`"),
    ("POST", "/events/publish?topic", CE, EVENT, 400, "invalid_argument", "`topic`"),
    ("POST", "/events/publish?topic=a&topic=b", CE, EVENT, 400, "invalid_argument", "more than once"),
    ("POST", "/events/publish?topic=a%26b", CE, EVENT, 400, "invalid_argument", "'&'"),
    ("POST", "/events/publish?topic=a+b", CE, EVENT, 400, "invalid_argument", "' '"),
    ("POST", "/events/publish?topic=__x", CE, EVENT, 400, "invalid_argument", "__"),
    ("POST", "/events/publish?topic=t_DLQ", CE, EVENT, 403, "reserved_topic", "_DLQ"),
    ("POST", "/events/publish-batch", BATCH, b"[]", 400, "missing_parameter", "`topic`"),
    // covers: U32
    (
        "POST",
        "/events/subscribe",
        JSON,
        br#"{"clientId":"c","topic":"t","mode":"LOAD_BALANCE_STICKY"}"#,
        400,
        "invalid_argument",
        "MULTICAST",
    ),
    (
        "POST",
        "/events/subscribe",
        JSON,
        br#"{"clientId":"c","topic":"t","mode":"broadcast"}"#,
        400,
        "invalid_argument",
        "BROADCAST",
    ),
    (
        "POST",
        "/events/subscribe",
        JSON,
        br#"{"clientId":"c","topic":"t","mode":""}"#,
        400,
        "invalid_argument",
        "LOAD_BALANCE",
    ),
    (
        "POST",
        "/events/subscribe",
        JSON,
        br#"{"clientId":"c","topic":"t","mode":3}"#,
        400,
        "invalid_argument",
        "LOAD_BALANCE",
    ),
    (
        "POST",
        "/events/subscribe",
        JSON,
        br#"{"clientId":"c","topic":"t"}"#,
        400,
        "missing_parameter",
        "LOAD_BALANCE",
    ),
    ("POST", "/events/subscribe", JSON, b"[]", 400, "invalid_argument", "object"),
    ("POST", "/events/subscribe", JSON, b"null", 400, "invalid_argument", "object"),
    ("POST", "/events/subscribe", JSON, b"nope", 400, "invalid_argument", "JSON"),
    ("POST", "/events/subscribe", JSON, b"", 400, "invalid_argument", "empty"),
    (
        "POST",
        "/events/subscribe",
        JSON,
        br#"{"topic":"t","mode":"BROADCAST"}"#,
        400,
        "missing_parameter",
        "`clientId`",
    ),
    (
        "POST",
        "/events/subscribe",
        JSON,
        br#"{"clientId":7,"topic":"t","mode":"BROADCAST"}"#,
        400,
        "invalid_argument",
        "`clientId`",
    ),
    (
        "POST",
        "/events/subscribe",
        JSON,
        br#"{"clientId":"c","topic":"t_DLQ","mode":"BROADCAST"}"#,
        403,
        "reserved_topic",
        "`topic`",
    ),
    (
        "POST",
        "/events/subscribe",
        JSON,
        br#"{"clientId":"c","topic":"t","mode":"BROADCAST","maxInFlight":0}"#,
        400,
        "invalid_argument",
        "from 1 to 10000",
    ),
    (
        "POST",
        "/events/subscribe",
        JSON,
        br#"{"clientId":"c","topic":"t","mode":"BROADCAST","from":"soon"}"#,
        400,
        "invalid_argument",
        "`from`",
    ),
    ("POST", "/events/unsubscribe", JSON, b"{}", 400, "missing_parameter", "`clientId`"),
    (
        "POST",
        "/events/unsubscribe",
        JSON,
        br#"{"clientId":"c","deleteGroup":"yes"}"#,
        400,
        "invalid_argument",
        "`deleteGroup`",
    ),
    // covers: U130, U179
    ("GET", "/events/poll?clientId=never", "", b"", 404, "unknown_client", "subscription"),
    ("GET", "/events/poll", "", b"", 400, "missing_parameter", "`clientId`"),
    ("GET", "/events/poll?clientId=", "", b"", 400, "invalid_argument", "`clientId`"),
    ("GET", "/events/poll?clientId=c&max=abc", "", b"", 400, "invalid_argument", "`max`"),
    ("GET", "/events/poll?clientId=c&max=0", "", b"", 400, "invalid_argument", "`max`"),
    ("GET", "/events/poll?clientId=c&timeoutMs=-1", "", b"", 400, "invalid_argument", "`timeoutMs`"),
    (
        "GET",
        "/events/poll?clientId=never&timeoutMs=9000000000000000000",
        "",
        b"",
        404,
        "unknown_client",
        "subscription",
    ),
    ("GET", "/events/stream?clientId=never", "", b"", 404, "unknown_client", "subscription"),
    ("GET", "/events/stream", "", b"", 400, "missing_parameter", "`clientId`"),
    ("GET", "/events/stream?clientId=%00", "", b"", 400, "invalid_argument", "`clientId`"),
    ("POST", "/events/stream?clientId=c", JSON, b"{}", 405, "method_not_allowed", "GET"),
    ("POST", "/events/ack", JSON, b"{}", 400, "missing_parameter", "`deliveryId`"),
    ("POST", "/events/ack", JSON, br#"{"deliveryId":7}"#, 400, "invalid_argument", "`deliveryId`"),
    ("POST", "/events/ack", JSON, br#"{"deliveryId":["x",7]}"#, 400, "invalid_argument", "`deliveryId`"),
    ("POST", "/events/ack", JSON, br#"{"deliveryId":"x"}"#, 404, "unknown_delivery", "delivery"),
    ("POST", "/events/ack", JSON, br#"{"deliveryId":""}"#, 404, "unknown_delivery", "delivery"),
    // covers: U53
    ("POST", "/events/nack", JSON, b"{}", 400, "missing_parameter", "`deliveryId`"),
    ("POST", "/events/nack", JSON, br#"{"deliveryId":"x"}"#, 404, "unknown_delivery", "delivery"),
    (
        "POST",
        "/events/nack",
        JSON,
        br#"{"deliveryId":"x","delayMs":-1}"#,
        400,
        "invalid_argument",
        "`delayMs`",
    ),
    (
        "POST",
        "/events/nack",
        JSON,
        br#"{"deliveryId":"x","delayMs":43200001}"#,
        400,
        "invalid_argument",
        "from 0 to 43200000",
    ),
    ("POST", "/events/nack", JSON, br#"{"deliveryId":"x","reason":7}"#, 400, "invalid_argument", "`reason`"),
    ("POST", "/events/extend", JSON, br#"{"extendMs":1000}"#, 400, "missing_parameter", "`deliveryId`"),
    ("POST", "/events/extend", JSON, br#"{"deliveryId":"x"}"#, 400, "missing_parameter", "`extendMs`"),
    (
        "POST",
        "/events/extend",
        JSON,
        br#"{"deliveryId":"x","extendMs":999}"#,
        400,
        "invalid_argument",
        "from 1000 to 43200000",
    ),
    (
        "POST",
        "/events/extend",
        JSON,
        br#"{"deliveryId":"x","extendMs":1000}"#,
        404,
        "unknown_delivery",
        "delivery",
    ),
    ("POST", "/events/reject", JSON, b"[]", 400, "invalid_argument", "object"),
    ("POST", "/events/reject", JSON, br#"{"deliveryId":7}"#, 400, "invalid_argument", "`deliveryId`"),
    ("POST", "/events/reject", JSON, br#"{"deliveryId":"x"}"#, 404, "unknown_delivery", "delivery"),
    ("POST", "/events/drop", JSON, br#"{"deliveryId":"x"}"#, 404, "not_found", "route"),
    ("GET", "/events/nack", "", b"", 405, "method_not_allowed", "POST"),
    // Routes and methods.
    ("GET", "/nowhere", "", b"", 404, "not_found", "route"),
    ("POST", "/events/publishX?topic=t", CE, EVENT, 404, "not_found", "route"),
    ("POST", "/events/publish/?topic=t", CE, EVENT, 404, "not_found", "route"),
    ("GET", "/events/publish?topic=t", "", b"", 405, "method_not_allowed", "POST"),
    ("DELETE", "/events/ack", "", b"", 405, "method_not_allowed", "POST"),
    ("POST", "/events/poll?clientId=c", JSON, b"{}", 405, "method_not_allowed", "GET"),
];

#[tokio::test]
async fn bad_input_is_answered_with_its_code_and_stores_nothing() {
    let mesh = Mesh::start().await;
    // One connection for all of them: it stays usable.
    let mut client = Client::connect(mesh.address).await;
    for (method, target, content_type, body, status, code, word) in CASES {
        let shown = format!("{method} {target} {}", String::from_utf8_lossy(body));
        let headers =
            if content_type.is_empty() { String::new() } else { format!("Content-Type: {content_type}\r\n") };
        let reply = client.call(method, target, &headers, body).await;
        assert_eq!((reply.status, reply.error().as_str()), (*status, *code), "{shown}: {}", reply.body);
        let message = reply.json()["message"].as_str().expect("a text").to_owned();
        assert!(message.contains(word), "{shown}: {message}");
        assert_eq!(reply.headers["content-type"], "application/json", "{shown}");
        if *status == 405 {
            assert_eq!(reply.headers["allow"], *word, "{shown}");
        }
    }
    assert!(mesh.storage.topics().is_empty(), "{:?}", mesh.storage.topics());
    client.publish("t", "1").await;
    mesh.shut_down().await;
}

#[tokio::test]
async fn too_many_ids_two_credentials_and_a_head_request_are_refused() {
    let mesh = Mesh::start().await;
    let mut client = Client::connect(mesh.address).await;
    let ids = vec!["x"; 10_001];
    let many = serde_json::json!({ "deliveryId": ids, "extendMs": 1_000 }).to_string();
    for route in ["/events/ack", "/events/nack", "/events/extend", "/events/reject"] {
        let reply = client.post(route, &many).await;
        assert_eq!((reply.status, reply.error().as_str()), (400, "invalid_argument"), "{route}");
    }
    let two = "Authorization: Bearer a\r\nAuthorization: Bearer b\r\nContent-Type: application/json\r\n";
    let reply = client.call("POST", PUBLISH, two, event("1").as_bytes()).await;
    assert_eq!((reply.status, reply.error().as_str()), (400, "invalid_argument"));
    // covers: U174
    for coding in ["gzip", "deflate", "gzip, gzip", "nobody-knows"] {
        let headers = format!("Content-Encoding: {coding}\r\nContent-Type: application/json\r\n");
        let reply = client.call("POST", PUBLISH, &headers, event("1").as_bytes()).await;
        assert_eq!((reply.status, reply.error().as_str()), (415, "unsupported_media_type"), "{coding}");
    }
    client.send(b"HEAD /events/poll?clientId=c HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").await;
    let head = client.raw_head().await;
    assert!(head.starts_with("HTTP/1.1 405") && head.to_ascii_lowercase().contains("allow: get"), "{head}");
    mesh.shut_down().await;
}

#[tokio::test]
async fn an_unknown_topic_is_told_where_none_is_made() {
    let mesh = Mesh::with(Wanted { auto_create: false, ..Wanted::default() }).await;
    let mut client = Client::connect(mesh.address).await;
    let reply = client.post(PUBLISH, &event("1")).await;
    assert_eq!((reply.status, reply.error().as_str()), (404, "unknown_topic"), "{reply:?}");
    let body = r#"{"clientId":"c","topic":"t","mode":"BROADCAST"}"#;
    let reply = client.post("/events/subscribe", body).await;
    assert_eq!((reply.status, reply.error().as_str()), (404, "unknown_topic"), "{reply:?}");
    mesh.shut_down().await;
}

#[tokio::test]
async fn conflicts_and_quotas_of_subscriptions_have_their_codes() {
    let mesh = Mesh::start().await;
    let mut client = Client::connect(mesh.address).await;
    let subscribe = |client: &str, topic: &str, more: &str| {
        format!(r#"{{"clientId":"{client}","topic":"{topic}","mode":"LOAD_BALANCE"{more}}}"#)
    };
    for topic in ["a", "b", "c"] {
        client.subscribe("c1", topic).await;
    }
    let reply = client.post("/events/subscribe", &subscribe("c1", "d", "")).await;
    assert_eq!((reply.status, reply.error().as_str()), (429, "quota_exceeded"), "{reply:?}");
    client.subscribe("c2", "a").await;
    let reply = client.post("/events/subscribe", &subscribe("c2", "a", r#","maxAttempts":9"#)).await;
    assert_eq!((reply.status, reply.error().as_str()), (409, "group_conflict"), "{reply:?}");
    assert!(reply.body.contains("maxAttempts"), "{reply:?}");
    let reply =
        client.post("/events/subscribe", &subscribe("c3", "e", r#","from":{"offsets":{"7":"1"}}"#)).await;
    assert_eq!((reply.status, reply.error().as_str()), (400, "invalid_argument"), "{reply:?}");
    mesh.shut_down().await;
}
