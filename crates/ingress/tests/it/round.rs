//! Publish, subscribe, poll, ack, unsubscribe: what a client sees.

use std::time::Duration;

use mesh_base::BackendErrorKind;
use mesh_storage::faulty::Fault;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    client::{Client, event},
    mesh::{Mesh, Wanted},
};

#[tokio::test]
async fn an_event_goes_the_whole_way_round() {
    // proves: IN-1, IN-2
    let mesh = Mesh::start().await;
    let mut client = Client::connect(mesh.address).await;
    let body = r#"{"clientId":"c","topic":"t","mode":"LOAD_BALANCE"}"#;
    let subscribed = client.post("/events/subscribe", body).await;
    let answer = subscribed.json();
    assert!(answer["subscriptionId"].as_str().is_some_and(|id| !id.is_empty()), "{subscribed:?}");
    assert_eq!(
        (&answer["instanceUrl"], &answer["group"], &answer["mode"], &answer["start"]),
        (&json!(""), &json!("default"), &json!("LOAD_BALANCE"), &json!({"0":"0"}))
    );

    let published = client.post("/events/publish?topic=t", &event("1")).await;
    assert_eq!(published.status, 202);
    assert_eq!(published.body.trim_end(), r#"{"status":"accepted","topic":"t","partition":0,"offset":"0"}"#);
    let batch = format!("[{},{}]", event("2"), event("3"));
    let headers = "Content-Type: application/cloudevents-batch+json\r\n";
    let published = client.call("POST", "/events/publish-batch?topic=t", headers, batch.as_bytes()).await;
    assert_eq!((published.status, published.body.trim_end()), (202, r#"{"status":"accepted","count":2}"#));
    let headers = "ce-specversion: 1.0\r\nce-id: 4\r\nce-source: /t\r\nce-type: t.e\r\n\
                   Content-Type: application/octet-stream\r\n";
    let published = client.call("POST", "/events/publish?topic=t", headers, b"\0\x01").await;
    assert_eq!(published.status, 202, "{published:?}");

    let reply = client.get("/events/poll?clientId=c").await;
    let order =
        ["deliveryId", "event", "attempt", "topic", "group", "partition", "offset", "epoch", "lockedUntil"];
    let places: Vec<_> = order.iter().map(|name| reply.body.find(&format!("\"{name}\":"))).collect();
    assert!(places.is_sorted() && places[0].is_some(), "{}", reply.body);
    let deliveries = reply.json();
    let deliveries = deliveries.as_array().expect("an array");
    let ids: Vec<&str> = deliveries.iter().filter_map(|delivery| delivery["event"]["id"].as_str()).collect();
    assert_eq!(ids, ["1", "2", "3", "4"]);
    assert_eq!(deliveries[3]["event"]["data_base64"], "AAE=");
    assert_eq!(
        (
            &deliveries[1]["attempt"],
            &deliveries[1]["offset"],
            &deliveries[1]["group"],
            &deliveries[1]["epoch"]
        ),
        (&json!(1), &json!("1"), &json!("default"), &json!("1"))
    );
    assert!(deliveries[0]["lockedUntil"].as_str().is_some_and(|time| time.ends_with('Z')));

    let id = |place: usize| deliveries[place]["deliveryId"].clone();
    let acked = client.post("/events/ack", &json!({"deliveryId": id(0)}).to_string()).await;
    assert_eq!((acked.status, acked.body.trim_end()), (200, r#"{"status":"acked"}"#));
    let again = client.post("/events/ack", &json!({"deliveryId": id(0)}).to_string()).await;
    assert_eq!((again.status, again.error().as_str()), (404, "unknown_delivery"));
    let many =
        client.post("/events/ack", &json!({"deliveryId": [id(1), id(2), "x", id(3)]}).to_string()).await;
    let results = many.json()["results"].clone();
    assert_eq!(results[0], json!({"deliveryId": id(1), "status": "acked"}));
    assert_eq!(results[2], json!({"deliveryId": "x", "error": "unknown_delivery"}));
    assert_eq!(results[3]["status"], "acked");
    let none = client.post("/events/ack", r#"{"deliveryId":[]}"#).await;
    assert_eq!((none.status, none.body.trim_end()), (200, r#"{"results":[]}"#));

    for expected in [r#"{"removed":true}"#, r#"{"removed":false}"#] {
        let reply = client.post("/events/unsubscribe", r#"{"clientId":"c","topic":"t"}"#).await;
        assert_eq!((reply.status, reply.body.trim_end()), (200, expected));
    }
    let text = mesh.signals.text();
    assert!(text.contains("eventmesh_publish_total 4"), "{text}");
    mesh.shut_down().await;
}

#[tokio::test]
async fn exactly_one_of_many_parallel_acks_is_told_acked() {
    // covers: U57
    let mesh = Mesh::start().await;
    let mut client = Client::connect(mesh.address).await;
    client.subscribe("c", "t").await;
    client.publish("t", "1").await;
    let id = client.poll("c", "").await[0]["deliveryId"].to_string();
    let acks = (0..50).map(|_| async {
        let mut client = Client::connect(mesh.address).await;
        client.post("/events/ack", &format!(r#"{{"deliveryId":{id}}}"#)).await.status
    });
    let mut statuses = futures_util::future::join_all(acks).await;
    statuses.sort_unstable();
    assert_eq!((statuses[0], statuses[1], statuses[49]), (200, 404, 404), "{statuses:?}");
    assert!(mesh.signals.text().contains("eventmesh_acked_total 1"));
    mesh.shut_down().await;
}

#[tokio::test]
async fn a_poll_lasts_as_long_as_there_is_nothing_and_no_longer() {
    // covers: U129
    let mesh = Mesh::start().await;
    let mut client = Client::connect(mesh.address).await;
    client.subscribe("c", "t").await;
    let start = Instant::now();
    assert!(client.poll("c", "&timeoutMs=0").await.is_empty());
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    let start = Instant::now();
    assert!(client.poll("c", "&timeoutMs=600").await.is_empty());
    assert!((600..1_100).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());

    for id in 0..10 {
        client.publish("t", &id.to_string()).await;
    }
    assert_eq!(client.poll("c", "&max=3").await.len(), 3);
    assert_eq!(client.poll("c", "&max=1000000").await.len(), 7);

    // Two polls wait; one event wakes one of them, the other waits on.
    let poll = async || {
        let mut client = Client::connect(mesh.address).await;
        let start = Instant::now();
        let deliveries = client.poll("c", "&timeoutMs=1500").await.len();
        (deliveries, start.elapsed())
    };
    let publish = async {
        // Subscribe, ten events, four polls, and these two.
        mesh.admitted(17).await;
        client.publish("t", "late").await;
    };
    let (one, other, ()) = tokio::join!(poll(), poll(), publish);
    let (got, waited) = if one.0 == 1 { (one, other) } else { (other, one) };
    assert_eq!((got.0, waited.0), (1, 0));
    assert!(
        got.1 < Duration::from_millis(1_000) && waited.1 >= Duration::from_millis(1_500),
        "{got:?} {waited:?}"
    );
    mesh.shut_down().await;
}

#[tokio::test]
async fn an_answer_that_is_not_taken_comes_back() {
    let mesh = Mesh::start().await;
    let mut client = Client::connect(mesh.address).await;
    client.subscribe("c", "t").await;
    // The client of this poll goes away while it waits; nothing is handed to it.
    let mut gone = Client::connect(mesh.address).await;
    gone.send(b"GET /events/poll?clientId=c&timeoutMs=20000 HTTP/1.1\r\nHost: t\r\n\r\n").await;
    drop(gone);
    client.publish("t", "1").await;
    let deliveries = client.poll("c", "&timeoutMs=5000").await;
    assert_eq!((deliveries.len(), &deliveries[0]["attempt"]), (1, &json!(1)));
    mesh.shut_down().await;
}

#[tokio::test]
async fn a_stop_ends_waiting_polls_with_an_empty_answer_and_idle_connections() {
    // covers: U63
    let mesh = Mesh::start().await;
    let mut client = Client::connect(mesh.address).await;
    client.subscribe("c", "t").await;
    let mut waiting = Client::connect(mesh.address).await;
    waiting.send(b"GET /events/poll?clientId=c&timeoutMs=60000 HTTP/1.1\r\nHost: t\r\n\r\n").await;
    mesh.admitted(2).await;
    mesh.readiness.close();
    let refused = client.post("/events/publish?topic=t", &event("1")).await;
    assert_eq!((refused.status, refused.error().as_str()), (503, "not_ready"));
    assert!(refused.headers.contains_key("retry-after"));
    mesh.readiness.open();
    let mut half = Client::connect(mesh.address).await;
    half.send(b"POST /events/publish?topic=t HTTP/1.1\r\nHo").await;
    client.publish("other", "1").await;
    let start = Instant::now();
    mesh.shut_down().await;
    let reply = waiting.reply().await.expect("an answer");
    assert_eq!((reply.status, reply.body.as_str()), (200, "[]\n"));
    assert!(client.reply().await.is_none(), "idle connections are closed");
    assert!(half.reply().await.is_none(), "so are those that wait for the rest of a head");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_request_that_panics_is_answered_500_and_takes_nobody_with_it() {
    let mesh = Mesh::start().await;
    let mut client = Client::connect(mesh.address).await;
    mesh.log.fail_appends([Fault::Panic]);
    let reply = client.post("/events/publish?topic=t", &event("1")).await;
    assert_eq!((reply.status, reply.json()["error"].as_str()), (500, Some("internal")), "{reply:?}");
    let document = client.get("/openapi.json").await.json();
    let listed = &document["paths"]["/events/publish"]["post"]["responses"]["500"];
    let codes = &listed["content"]["application/json"]["schema"]["properties"]["error"]["enum"];
    assert_eq!(codes, &serde_json::json!(["internal"]));
    assert_eq!(client.post("/events/publish?topic=t", &event("2")).await.status, 202, "the same connection");
    mesh.shut_down().await;
}

#[tokio::test]
async fn what_the_log_did_not_take_is_never_answered_202() {
    // covers: U30
    let wanted = Wanted { publish_timeout: Duration::from_millis(200), ..Wanted::default() };
    let mesh = Mesh::with(wanted).await;
    let mut client = Client::connect(mesh.address).await;
    let body = r#"{"clientId":"c","topic":"t","mode":"LOAD_BALANCE"}"#;
    assert_eq!(client.post("/events/subscribe", body).await.status, 200);
    mesh.log.fail_appends([
        Fault::Fail(BackendErrorKind::Unavailable),
        Fault::Fail(BackendErrorKind::Full),
        Fault::Hang,
    ]);
    for (id, status, code) in
        [("1", 503, "storage_unavailable"), ("2", 507, "storage_full"), ("3", 503, "storage_unavailable")]
    {
        let reply = client.post("/events/publish?topic=t", &event(id)).await;
        assert_eq!((reply.status, reply.json()["error"].as_str()), (status, Some(code)), "{reply:?}");
    }
    assert_eq!(client.post("/events/publish?topic=t", &event("4")).await.status, 202);
    let deliveries = client.get("/events/poll?clientId=c").await.json();
    let ids: Vec<&str> = deliveries
        .as_array()
        .expect("an array")
        .iter()
        .filter_map(|found| found["event"]["id"].as_str())
        .collect();
    assert_eq!(ids, ["4"]);
}
