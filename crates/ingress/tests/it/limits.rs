//! Slow, large and many: nobody holds the server up, and who is refused gets to read why.

use std::time::Duration;

use mesh_ingress::http::HttpEdgeSettings;
use mesh_server::BodyLimits;
use tokio::time::Instant;

use crate::{
    client::{Client, event},
    mesh::{Mesh, Wanted},
};

fn small(change: impl FnOnce(&mut Wanted)) -> Wanted {
    let body = BodyLimits { body_bytes: 100_000, timeout: Duration::from_millis(400), ..BodyLimits::DEFAULT };
    let mut wanted =
        Wanted { edge: HttpEdgeSettings { body, ..HttpEdgeSettings::default() }, ..Wanted::default() };
    wanted.server.patience.head = Duration::from_millis(500);
    wanted.server.patience.idle = Duration::from_millis(1_000);
    change(&mut wanted);
    wanted
}

#[tokio::test]
async fn slow_and_silent_clients_are_closed_in_time_and_others_are_served() {
    // covers: U176
    let mesh = Mesh::with(small(|_| ())).await;
    let start = Instant::now();
    let mut silent = Client::connect(mesh.address).await;
    let mut dripping = Client::connect(mesh.address).await;
    let mut idle = Client::connect(mesh.address).await;
    idle.publish("t", "0").await;
    let drip = async {
        for byte in b"POST /events/publish?topic=t HTTP/1.1\r\nHost: something-long".iter().cycle() {
            if !dripping.try_send(&[*byte]).await {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        start.elapsed()
    };
    let body = async {
        let mut slow = Client::connect(mesh.address).await;
        slow.send(b"POST /events/publish?topic=t HTTP/1.1\r\nHost: t\r\nContent-Length: 50\r\n\r\n{").await;
        let reply = slow.reply().await.expect("an answer");
        assert_eq!((reply.status, reply.error().as_str()), (408, "timeout"));
        assert_eq!(reply.headers["connection"], "close");
        assert!(slow.reply().await.is_none());
        start.elapsed()
    };
    let closed = async {
        assert!(silent.reply().await.is_none());
        let silent_for = start.elapsed();
        assert!(idle.reply().await.is_none());
        (silent_for, start.elapsed())
    };
    let served = async {
        let mut client = Client::connect(mesh.address).await;
        for id in 0..20 {
            client.publish("t", &id.to_string()).await;
        }
        start.elapsed()
    };
    let (drip, body, (silent, idle), served) = tokio::join!(drip, body, closed, served);
    let bound = Duration::from_secs(4);
    assert!(
        drip < bound && body < bound && silent < bound && idle < bound,
        "{drip:?} {body:?} {silent:?} {idle:?}"
    );
    assert!(
        silent >= Duration::from_millis(450) && idle >= Duration::from_millis(950),
        "{silent:?} {idle:?}"
    );
    assert!(served < bound, "{served:?}");
    mesh.shut_down().await;
}

#[tokio::test]
async fn a_body_over_the_limit_gets_a_readable_413_declared_or_chunked() {
    let mesh = Mesh::with(small(|_| ())).await;
    let large = vec![b' '; 3 << 20];
    let mut client = Client::connect(mesh.address).await;
    let reply =
        client.call("POST", "/events/publish?topic=t", "Content-Type: application/json\r\n", &large).await;
    assert_eq!((reply.status, reply.error().as_str()), (413, "too_large"));

    let mut client = Client::connect(mesh.address).await;
    client
        .send(b"POST /events/publish-batch?topic=t HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    for chunk in large.chunks(64 << 10) {
        client.send(format!("{:x}\r\n", chunk.len()).as_bytes()).await;
        client.send(chunk).await;
        client.send(b"\r\n").await;
    }
    client.send(b"0\r\n\r\n").await;
    let reply = client.reply().await.expect("an answer");
    assert_eq!((reply.status, reply.error().as_str()), (413, "too_large"));

    // A client that asks first is told before it sends anything.
    let mut client = Client::connect(mesh.address).await;
    client
        .send(b"POST /events/publish?topic=t HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 999999\r\n\r\n")
        .await;
    let reply = client.reply().await.expect("an answer");
    assert_eq!((reply.status, reply.headers["connection"].as_str()), (413, "close"));

    // One that is never finished gets the answer all the same.
    let mut client = Client::connect(mesh.address).await;
    client.send(b"POST /events/publish?topic=t HTTP/1.1\r\nHost: t\r\nContent-Length: 999999\r\n\r\n").await;
    let reply = client.reply().await.expect("an answer");
    assert_eq!((reply.status, reply.headers["connection"].as_str()), (413, "close"));
    mesh.shut_down().await;
}

#[tokio::test]
async fn connections_over_the_cap_wait_and_are_served_when_there_is_room() {
    // covers: U177
    let mesh = Mesh::with(small(|wanted| {
        wanted.server.max_connections = 2;
        wanted.server.patience.idle = Duration::from_secs(30);
    }))
    .await;
    let mut first = Client::connect(mesh.address).await;
    let mut second = Client::connect(mesh.address).await;
    first.publish("t", "1").await;
    second.publish("t", "2").await;
    let mut third = Client::connect(mesh.address).await;
    let body = event("3");
    let head = format!(
        "POST /events/publish?topic=t HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    third.send(head.as_bytes()).await;
    let early = tokio::time::timeout(Duration::from_millis(300), third.reply()).await;
    assert!(early.is_err(), "over the cap: {early:?}");
    first.publish("t", "4").await;
    drop(first);
    assert_eq!(third.reply().await.expect("an answer").status, 202);
    second.publish("t", "5").await;
    mesh.shut_down().await;
}

#[tokio::test]
async fn http_2_is_spoken_by_prior_knowledge() {
    use http_body_util::{BodyExt, Full};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let mesh = Mesh::start().await;
    let stream = tokio::net::TcpStream::connect(mesh.address).await.expect("a connection");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .expect("HTTP/2");
    let tasks = mesh_base::Tasks::new();
    tasks.spawn("client", async move { drop(connection.await) });
    let request = http::Request::post(format!("http://{}/events/publish?topic=t", mesh.address))
        .header("content-type", "application/cloudevents+json")
        .body(Full::new(bytes::Bytes::from(event("1"))))
        .expect("a request");
    let response = sender.send_request(request).await.expect("an answer");
    assert_eq!((response.status().as_u16(), response.version()), (202, http::Version::HTTP_2));
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    assert!(body.starts_with(b"{\"status\":\"accepted\""));
    // A HEAD is answered without a body here too, and says how long it would be.
    for (path, status) in [("/events/poll?clientId=c", 405), ("/nothing", 404)] {
        let request = http::Request::head(format!("http://{}{path}", mesh.address));
        let request = request.body(Full::new(bytes::Bytes::new())).expect("a request");
        let response = sender.send_request(request).await.expect("an answer");
        assert_eq!(response.status().as_u16(), status, "{path}");
        let length = response.headers()["content-length"].to_str().expect("text").parse::<u64>();
        assert!(length.is_ok_and(|length| length > 0), "{path}");
        let body = response.into_body().collect().await.expect("no body").to_bytes();
        assert!(body.is_empty(), "{path}: {body:?}");
    }
    drop(sender);
    mesh.shut_down().await;
}
