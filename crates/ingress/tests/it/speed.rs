//! How fast a publish is answered, next to a bare axum server. Run it optimised:
//! `cargo test --release -p mesh-ingress --test it speed -- --ignored --nocapture`.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, routing::post};
use bytes::Bytes;
use mesh_base::Tasks;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::Instant,
};

use crate::{client::event, mesh::Mesh};

const CONNECTIONS: usize = 64;
const TIME: Duration = Duration::from_secs(4);

/// Requests a second that 64 connections get answered.
async fn rate(address: SocketAddr) -> f64 {
    let body = event("1");
    let head =
        "POST /events/publish?topic=t HTTP/1.1\r\nHost: t\r\nContent-Type: application/cloudevents+json\r\n";
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes();
    let until = Instant::now() + TIME;
    let (tasks, (counts, mut counted)) = (Tasks::new(), tokio::sync::mpsc::unbounded_channel());
    for _ in 0..CONNECTIONS {
        let (request, counts) = (request.clone(), counts.clone());
        tasks.spawn("client", async move {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            stream.set_nodelay(true).expect("a socket");
            let (mut count, mut buffer) = (0_u32, [0; 1_024]);
            while Instant::now() < until {
                stream.write_all(&request).await.expect("the server reads");
                let read = stream.read(&mut buffer).await.expect("an answer");
                assert!(
                    buffer[..read].starts_with(b"HTTP/1.1 202"),
                    "{}",
                    String::from_utf8_lossy(&buffer[..read])
                );
                count += 1;
            }
            counts.send(count).expect("somebody counts");
        });
    }
    drop(counts);
    let mut all = 0;
    while let Some(count) = counted.recv().await {
        all += count;
    }
    f64::from(all) / TIME.as_secs_f64()
}

#[ignore = "measures; run it optimised and alone"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishing_is_at_least_two_thirds_as_fast_as_a_bare_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let bare = listener.local_addr().expect("an address");
    let answer = |_body: Bytes| async { (http::StatusCode::ACCEPTED, "{\"status\":\"accepted\"}") };
    let router = Router::new().route("/events/publish", post(answer));
    let tasks = Tasks::new();
    tasks.spawn("bare", async move { axum::serve(listener, router).await.expect("it serves") });
    let mesh = Mesh::start().await;
    let mut shares = Vec::new();
    for _ in 0..3 {
        let (bare, ours) = (rate(bare).await, rate(mesh.address).await);
        shares.push(ours / bare);
        println!("bare {bare:.0}/s, publish {ours:.0}/s: {:.0} %", 100.0 * ours / bare);
    }
    shares.sort_by(f64::total_cmp);
    assert!(shares[1] >= 0.65, "{shares:?}");
    mesh.shut_down().await;
}
