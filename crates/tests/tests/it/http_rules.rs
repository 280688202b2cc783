//! What RFC 9110, 9112 and 9113 say a server must do and the HTTP library leaves out: `docs/decisions/` has the list.

use std::{future::poll_fn, time::Duration};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use http::{Request, StatusCode};
use mesh_tests::{Raw, Server, Subscribe, event};
use tokio::{net::TcpStream, task::JoinSet, time::timeout};

const SOON: Duration = Duration::from_secs(20);

/// A connection of HTTP/2 without TLS, and the task that drives it.
async fn http2(port: u16) -> Result<(SendRequest<Bytes>, JoinSet<()>)> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let (sender, connection) = h2::client::handshake(stream).await?;
    let mut driver = JoinSet::new();
    driver.spawn(async move { drop(connection.await) });
    Ok((sender, driver))
}

/// A publish that waits to be asked for its body.
fn waiting(port: u16, length: usize) -> Result<Request<()>> {
    Ok(Request::post(format!("http://127.0.0.1:{port}/events/publish?topic=t"))
        .header("content-type", "application/cloudevents+json")
        .header("content-length", length)
        .header("expect", "100-continue")
        .body(())?)
}

/// The next status that is not final, if one comes.
async fn interim(response: &mut ResponseFuture, most: Duration) -> Option<StatusCode> {
    let next = timeout(most, poll_fn(|cx| response.poll_informational(cx))).await.ok()??;
    Some(next.ok()?.status())
}

#[tokio::test]
async fn a_client_of_http2_that_waits_to_be_asked_for_its_body_is_asked() -> Result<()> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    let port = server.traffic_port();
    let (sender, _driver) = http2(port).await?;
    let mut large = event("large");
    large["data"] = "x".repeat(2 << 20).into();
    let body = Bytes::from(large.to_string());

    let mut sender = sender.ready().await?;
    let (mut response, mut stream) = sender.send_request(waiting(port, body.len())?, false)?;
    // Without this nothing of the body would ever come.
    ensure!(interim(&mut response, SOON).await == Some(StatusCode::CONTINUE), "no 100 Continue");
    let mut rest = body;
    while !rest.is_empty() {
        stream.reserve_capacity(rest.len());
        let room = timeout(SOON, poll_fn(|cx| stream.poll_capacity(cx))).await?.context("room")??;
        let part = rest.split_to(room.min(rest.len()));
        stream.send_data(part, rest.is_empty())?;
    }
    let answer = timeout(SOON, response).await??;
    ensure!(answer.status() == 202 && answer.headers().contains_key("date"), "{answer:?}");
    client.subscribed(&Subscribe::load_balance("c", "t").from("earliest")).await?;
    ensure!(client.receive("c", 1, SOON).await?.len() == 1);

    // What is refused by its head is refused at once, and its body never asked for.
    let mut sender = sender.ready().await?;
    let (response, _stream) = sender.send_request(waiting(port, 99 << 20)?, false)?;
    ensure!(timeout(SOON, response).await??.status() == 413);

    // Who sends the body without waiting gets the answer all the same.
    let mut sender = sender.ready().await?;
    let small = Bytes::from(event("small").to_string());
    let (response, mut stream) = sender.send_request(waiting(port, small.len())?, false)?;
    stream.send_data(small, true)?;
    ensure!(timeout(SOON, response).await??.status() == 202);
    Ok(())
}

#[tokio::test]
async fn a_client_of_http1_that_waits_to_be_asked_for_its_body_is_asked() -> Result<()> {
    let mut server = Server::new()?;
    server.start().await?;
    let mut raw = Raw::connect(server.traffic_port()).await?;
    let body = event("1").to_string();
    let head = |length: usize| {
        format!(
            "POST /events/publish?topic=t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/cloudevents+json\r\n\
             Content-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
        )
    };
    raw.send(head(body.len()).as_bytes()).await?;
    ensure!(raw.read_head(SOON).await.starts_with("HTTP/1.1 100 "), "no 100 Continue");
    raw.send(body.as_bytes()).await?;
    ensure!(raw.read_head(SOON).await.starts_with("HTTP/1.1 202 "));
    let mut raw = Raw::connect(server.traffic_port()).await?;
    raw.send(head(99 << 20).as_bytes()).await?;
    ensure!(raw.read_head(SOON).await.starts_with("HTTP/1.1 413 "));
    Ok(())
}

#[tokio::test]
async fn what_a_head_alone_makes_wrong_is_refused_and_every_answer_is_dated() -> Result<()> {
    let mut server = Server::new()?;
    server.start().await?;
    let length = |answer: &str| {
        let line = answer
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        line.unwrap_or(0_usize)
    };
    for (request, status) in [
        ("GET /openapi.json HTTP/1.1\r\n", "200"),
        ("HEAD /openapi.json HTTP/1.1\r\n", "200"),
        ("HEAD /events/poll?clientId=c HTTP/1.1\r\n", "405"),
        ("POST /events/ack HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n", "415"),
        ("POST /events/ack HTTP/1.1\r\nTransfer-Encoding: gzip\r\n", "400"),
        ("POST /events/ack HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n", "400"),
        ("GET /openapi.json HTTP/1.1\r\nfolded: a\r\n b\r\n", "400"),
        ("GET /openapi.json HTTP/1.1\r\nspaced : a\r\n", "400"),
        ("BREW /openapi.json HTTP/1.1\r\n", "405"),
    ] {
        let mut raw = Raw::connect(server.traffic_port()).await?;
        raw.send(format!("{request}Host: localhost\r\nConnection: close\r\n\r\n").as_bytes()).await?;
        let answer = raw.read_to_end(SOON).await.with_context(|| format!("{request:?} is not answered"))?;
        ensure!(answer.split(' ').nth(1) == Some(status), "{request:?}: {answer}");
        ensure!(answer.to_ascii_lowercase().contains("\r\ndate: "), "{request:?} has no date: {answer}");
        let (_, body) = answer.split_once("\r\n\r\n").context("a head")?;
        match request.starts_with("HEAD") {
            true => ensure!(body.is_empty() && length(&answer) > 0, "{request:?}: {answer}"),
            false => ensure!(body.len() == length(&answer), "{request:?}: {answer}"),
        }
    }
    Ok(())
}
