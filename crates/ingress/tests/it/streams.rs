//! Server-sent events over a real socket.

use std::time::Duration;

use mesh_frame::{ClientId, TenantId};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    client::{Client, event},
    mesh::{Mesh, Wanted},
    sse::{Block, Sse},
};

fn names(ids: std::ops::Range<u32>) -> Vec<String> {
    ids.map(|id| id.to_string()).collect()
}

#[tokio::test]
async fn a_stream_has_its_headers_at_once_and_each_delivery_on_one_line() {
    let mesh = Mesh::start().await;
    let mut client = Client::connect(mesh.address).await;
    client.subscribe("c", "t").await;
    let mut sse = Sse::open(mesh.address, "c").await;
    let head = sse.head.to_ascii_lowercase();
    for line in [
        "http/1.1 200 ok",
        "content-type: text/event-stream",
        "cache-control: no-cache",
        "x-accel-buffering: no",
    ] {
        assert!(head.contains(&format!("{line}\r\n")), "{head}");
    }
    let pretty = "{\n \"specversion\":\"1.0\",\r\n \"id\":\"1\",\"source\":\"/t\",\"type\":\"t.e\",\n\"data\":{\n\"n\":\r[1,\n2],\"s\":\"a\\nb\"}}";
    let headers = "Content-Type: application/cloudevents+json\r\n";
    let reply = client.call("POST", "/events/publish?topic=t", headers, pretty.as_bytes()).await;
    assert_eq!(reply.status, 202, "{reply:?}");
    let delivery = sse.delivery().await;
    assert_eq!(delivery["event"]["data"], json!({"n":[1,2],"s":"a\nb"}));
    assert_eq!(
        (&delivery["attempt"], &delivery["topic"], &delivery["group"], &delivery["partition"]),
        (&json!(1), &json!("t"), &json!("default"), &json!(0))
    );
    assert_eq!((&delivery["offset"], &delivery["epoch"]), (&json!("0"), &json!("1")));
    let ack = json!({ "deliveryId": delivery["deliveryId"] }).to_string();
    assert_eq!(client.post("/events/ack", &ack).await.status, 200);
    for id in 2..50 {
        client.publish("t", &id.to_string()).await;
    }
    assert_eq!(sse.events(48).await, names(2..50));
    assert!(mesh.signals.text().contains("eventmesh_streams 1"));
    drop(sse);
    mesh.shows("eventmesh_streams 0").await;
    mesh.shut_down().await;
}

#[tokio::test]
async fn silence_is_broken_by_comments_and_errors_come_before_the_headers() {
    // covers: U130
    let mut wanted = Wanted::default();
    wanted.edge.stream_keep_alive = Duration::from_millis(150);
    let mesh = Mesh::with(wanted).await;
    let mut client = Client::connect(mesh.address).await;
    client.subscribe("c", "t").await;
    let mut sse = Sse::open(mesh.address, "c").await;
    let start = Instant::now();
    for _ in 0..3 {
        assert_eq!(sse.next().await, Block::Comment("keep-alive".to_owned()));
    }
    let silence = start.elapsed();
    assert!((400..2_000).contains(&silence.as_millis()), "{silence:?}");
    client.publish("t", "1").await;
    assert_eq!(sse.events(1).await, ["1"]);

    let (tenant, name) = (TenantId::new("default").expect("legal"), ClientId::new("c").expect("legal"));
    assert_eq!(mesh.groups.reject(&tenant, &name).await.expect("evicted"), 1);
    let last = sse.rest().await.pop();
    assert!(matches!(&last, Some(Block::Comment(why)) if why.contains("no subscription")), "{last:?}");
    let reply = client.get("/events/stream?clientId=c").await;
    assert_eq!((reply.status, reply.error().as_str()), (410, "subscription_expired"));
    let reply = client.get("/events/stream?clientId=never").await;
    assert_eq!((reply.status, reply.error().as_str()), (404, "unknown_client"));
    mesh.shut_down().await;
}

#[tokio::test]
async fn a_client_that_comes_back_gets_what_it_has_not_settled_whatever_it_says_it_saw() {
    // covers: U132
    for last_seen in ["", "Last-Event-ID: d\r\n", "seventh"] {
        let mesh = Mesh::start().await;
        let mut client = Client::connect(mesh.address).await;
        client.subscribe("c", "t").await;
        for id in 0..100 {
            client.publish("t", &id.to_string()).await;
        }
        let mut sse = Sse::open(mesh.address, "c").await;
        let mut first = Vec::new();
        for _ in 0..10 {
            first.push(sse.delivery().await["deliveryId"].as_str().expect("an id").to_owned());
        }
        let acked = client.post("/events/ack", &json!({ "deliveryId": first[..5] }).to_string()).await;
        assert!(!acked.body.contains("error"), "{acked:?}");
        drop(sse);
        let header = match last_seen {
            "seventh" => format!("Last-Event-ID: {}\r\n", first[6]),
            other => other.to_owned(),
        };
        let mut sse = Sse::open_with(mesh.address, "c", &header, None).await;
        let mut again = sse.events(95).await;
        again.sort_by_key(|id| id.parse::<u32>().expect("a number"));
        assert_eq!(again, names(5..100));
        assert_eq!(sse.next_within(Duration::from_millis(200)).await, None);
        mesh.shut_down().await;
    }
}

#[tokio::test]
async fn a_second_stream_ends_the_first_with_a_word_and_shares_with_polls() {
    // covers: U131
    let mesh = Mesh::start().await;
    let mut client = Client::connect(mesh.address).await;
    client.subscribe("c", "t").await;
    let mut first = Sse::open(mesh.address, "c").await;
    for id in 0..20 {
        client.publish("t", &id.to_string()).await;
    }
    assert_eq!(first.events(20).await, names(0..20));
    let mut second = Sse::open(mesh.address, "c").await;
    let last = first.rest().await.pop();
    assert!(matches!(&last, Some(Block::Comment(why)) if why.contains("took over")), "{last:?}");
    assert_eq!(second.events(20).await, names(0..20), "they were not settled");
    drop(first);
    for id in 20..40 {
        client.publish("t", &id.to_string()).await;
    }
    assert_eq!(second.events(20).await, names(20..40));
    assert!(client.poll("c", "&timeoutMs=50").await.is_empty(), "the stream has everything");
    mesh.shows("eventmesh_streams 1").await;
    mesh.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_is_cut_and_gets_the_rest_when_it_is_back() {
    // covers: U124
    let mut wanted = Wanted::default();
    wanted.server.patience.write = Duration::from_millis(600);
    let mesh = Mesh::with(wanted).await;
    let mut client = Client::connect(mesh.address).await;
    for (name, mode) in [("stalled", "BROADCAST"), ("reads", "BROADCAST")] {
        let body =
            json!({"clientId":name,"topic":"t","mode":mode,"maxInFlight":10_000,"ackTimeoutMs":60_000});
        assert_eq!(client.post("/events/subscribe", &body.to_string()).await.status, 200);
    }
    let stalled = Sse::open_with(mesh.address, "stalled", "", Some(4_096)).await;
    let mut reads = Sse::open(mesh.address, "reads").await;
    let filler = "x".repeat(16 << 10);
    let mut slowest = Duration::ZERO;
    for id in 0..800 {
        let large = event(&id.to_string()).replace("\"n\":1", &format!("\"n\":\"{filler}\""));
        let published = client.post("/events/publish?topic=t", &large).await;
        assert_eq!(published.status, 202);
        let start = Instant::now();
        assert_eq!(reads.events(1).await, [id.to_string()]);
        slowest = slowest.max(start.elapsed());
    }
    assert!(slowest < Duration::from_millis(500), "the one that reads is held up: {slowest:?}");
    mesh.shows("eventmesh_streams 1").await;
    drop(stalled);
    let mut back = Sse::open(mesh.address, "stalled").await;
    let mut ids = back.events(800).await;
    ids.sort_by_key(|id| id.parse::<u32>().expect("a number"));
    assert_eq!(ids, names(0..800), "all of them, once");
    mesh.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_reaches_ten_streams_whole_and_in_order_though_one_is_slow() {
    // covers: U126
    const EVENTS: u32 = 1_000;
    let mesh = Mesh::start().await;
    let mut client = Client::connect(mesh.address).await;
    let mut streams = Vec::new();
    for place in 0..10 {
        let body =
            json!({"clientId":format!("c{place}"),"topic":"t","mode":"BROADCAST","maxInFlight":10_000});
        assert_eq!(client.post("/events/subscribe", &body.to_string()).await.status, 200);
        streams.push(Sse::open(mesh.address, &format!("c{place}")).await);
    }
    let batch: Vec<String> = (0..EVENTS).map(|id| event(&id.to_string())).collect();
    let headers = "Content-Type: application/cloudevents-batch+json\r\n";
    let batch = format!("[{}]", batch.join(","));
    let publish = client.call("POST", "/events/publish-batch?topic=t", headers, batch.as_bytes());
    let read = streams.iter_mut().enumerate().map(async |(place, sse)| {
        let mut ids = Vec::new();
        for _ in 0..10 {
            if place == 0 {
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            ids.extend(sse.events(EVENTS as usize / 10).await);
        }
        ids
    });
    let (reply, all) = tokio::join!(publish, futures_util::future::join_all(read));
    assert_eq!(reply.status, 202);
    for ids in all {
        assert_eq!(ids, names(0..EVENTS));
    }
    mesh.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_streams_with_a_word_and_does_not_wait_for_who_does_not_read() {
    // covers: U121
    let mut wanted = Wanted::default();
    wanted.server.drain_timeout = Duration::from_secs(1);
    let mesh = Mesh::with(wanted).await;
    let mut client = Client::connect(mesh.address).await;
    for name in ["idle", "stalled"] {
        let body = json!({"clientId":name,"topic":name,"mode":"BROADCAST","maxInFlight":10_000}).to_string();
        assert_eq!(client.post("/events/subscribe", &body).await.status, 200);
    }
    let mut idle = Sse::open(mesh.address, "idle").await;
    let stalled = Sse::open_with(mesh.address, "stalled", "", Some(4_096)).await;
    let filler = "x".repeat(64 << 10);
    for id in 0..200 {
        let large = event(&id.to_string()).replace("\"n\":1", &format!("\"n\":\"{filler}\""));
        assert_eq!(client.post("/events/publish?topic=stalled", &large).await.status, 202);
    }
    let mut waiting = Client::connect(mesh.address).await;
    waiting.send(b"GET /events/poll?clientId=idle&timeoutMs=60000 HTTP/1.1\r\nHost: t\r\n\r\n").await;
    // Two subscribes, two streams, the events and the poll.
    mesh.admitted(205).await;
    let start = Instant::now();
    mesh.shut_down().await;
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    let last = idle.rest().await.pop();
    assert_eq!(last, Some(Block::Comment("the server is stopping".to_owned())));
    assert_eq!(waiting.reply().await.expect("an answer").body, "[]\n");
    drop(stalled);
}

#[tokio::test]
async fn a_stream_over_http_2_has_its_events_too_and_ends_when_its_client_resets_it() {
    use http_body_util::{BodyExt, Empty};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let mesh = Mesh::start().await;
    let mut client = Client::connect(mesh.address).await;
    client.subscribe("c", "t").await;
    let socket = tokio::net::TcpStream::connect(mesh.address).await.expect("a connection");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
            .await
            .expect("HTTP/2");
    let tasks = mesh_base::Tasks::new();
    tasks.spawn("client", async move { drop(connection.await) });
    let request = http::Request::get(format!("http://{}/events/stream?clientId=c", mesh.address))
        .body(Empty::<bytes::Bytes>::new())
        .expect("a request");
    let mut response = sender.send_request(request).await.expect("headers at once");
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    client.publish("t", "1").await;
    let frame = response.frame().await.expect("a frame").expect("data").into_data().expect("data");
    let text = String::from_utf8(frame.to_vec()).expect("UTF-8");
    assert!(text.starts_with("id: ") && text.contains("\ndata: {") && text.ends_with("\n\n"), "{text}");
    drop(response);
    mesh.shows("eventmesh_streams 0").await;
    // It is due at once, for a poll too.
    let again = client.poll("c", "&timeoutMs=5000").await;
    assert_eq!(again[0]["attempt"], 2);
    mesh.shut_down().await;
}
