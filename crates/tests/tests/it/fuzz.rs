//! Every parser that a caller without a credential reaches, over HTTP/1 and HTTP/2 and on both ports: what is sent is broken
//! in every way that chance finds, and the server answers, or closes, and goes on.
//!
//! `FUZZ_SECONDS` sets for how long, `FUZZ_BYTES_SEED` replays the draws of a run.

use std::time::Duration;

use anyhow::{Result, ensure};
use mesh_tests::{Access, Raw, Seed, Server, event, rounds, token_of};
use rand::{RngExt, rngs::StdRng};
use tokio::time::Instant;

/// How long the answer to what is broken is waited for. Most of it is only half of a request.
const ANSWER: Duration = Duration::from_millis(30);

/// Requests that mean something, to be broken.
fn whole() -> Vec<Vec<u8>> {
    let structured = event(1).to_string();
    let batch = format!("[{structured},{structured}]");
    let subscribe = r#"{"clientId":"c","topic":"t","mode":"LOAD_BALANCE","filters":[{"any":[{"exact":{"type":"t"}}]}],
        "from":{"offsets":{"0":"1"}},"maxAttempts":3}"#;
    let token = token_of("A/ann");
    let post = |target: &str, kind: &str, more: &str, body: &str| {
        format!(
            "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n{more}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let signed = "Content-Digest: sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:\r\n\
                  Signature-Input: sig1=(\"@method\" \"@path\" \"@query\");created=1800000000;keyid=\"k\";nonce=\"n\"\r\n\
                  Signature: sig1=:AAAA:\r\n";
    let jwt = "Authorization: Bearer eyJhbGciOiJFUzI1NiIsImtpZCI6ImEifQ.eyJpc3MiOiJpIn0.AAAA\r\n";
    let cookies = "Origin: https://app.example\r\nSec-Fetch-Site: cross-site\r\n";
    let chunked = "POST /events/publish?topic=t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
                   Content-Type: application/json\r\n\r\n5\r\n{\"a\":\r\n2\r\n1}\r\n0\r\n\r\n";
    let mut all: Vec<String> = Vec::new();
    for more in ["", &bearer, signed, jwt, cookies] {
        all.push(post("/events/publish?topic=t", "application/cloudevents+json", more, &structured));
        all.push(post("/events/publish-batch?topic=t", "application/cloudevents-batch+json", more, &batch));
        all.push(post(
            "/events/publish?topic=t",
            "text/plain",
            &format!(
                "{more}ce-id: 1\r\nce-source: /s\r\nce-type: t\r\nce-specversion: 1.0\r\nce-a: %C3%BC\r\n"
            ),
            "text",
        ));
        all.push(post("/events/subscribe", "application/json", more, subscribe));
        all.push(post("/events/ack", "application/json", more, r#"{"deliveryId":["a","b"]}"#));
        all.push(post("/admin/dlq/replay?topic=t&dryRun=true", "application/json", more, r#"{"max":1}"#));
        all.push(format!(
            "GET /events/poll?clientId=c%20d&max=1&timeoutMs=0 HTTP/1.1\r\nHost: localhost\r\n{more}\r\n"
        ));
        all.push(format!(
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain;q=0.5, */*\r\n{more}\r\n"
        ));
    }
    all.push(chunked.to_owned());
    let mut all: Vec<Vec<u8>> = all.into_iter().map(String::into_bytes).collect();
    // A head that names headers in every way of HPACK, a body, a ping, settings, a window.
    let mut http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    for (kind, flags, stream, payload) in [
        (4_u8, 0_u8, 0_u32, &[0, 4, 0, 0, 0, 9][..]),
        (1, 4, 1, b"\x82\x86\x84\x41\x09localhost\x00\x04name\x05value\x40\x05other\x01x\xbe\x90\x5f\x03a/b"),
        (0, 1, 1, b"{\"a\":1}"),
        (6, 0, 0, b"12345678"),
        (8, 0, 0, &[0, 0, 1, 0]),
        (1, 1, 3, b"\x82\x86\x84"),
        (9, 4, 3, b"\x41\x01a"),
        (3, 0, 1, &[0, 0, 0, 8]),
    ] {
        http2.extend_from_slice(&[0, 0, u8::try_from(payload.len()).expect("short"), kind, flags]);
        http2.extend_from_slice(&stream.to_be_bytes());
        http2.extend_from_slice(payload);
    }
    all.push(http2.clone());
    all.push(http2);
    all
}

/// Breaks a request: changes, takes out, doubles and puts in, here and there.
fn broken(chance: &mut StdRng, whole: &[u8], others: &[Vec<u8>]) -> Vec<u8> {
    const TOKENS: [&[u8]; 14] = [
        b"\r\n",
        b"\0",
        b"%",
        b"%00",
        b"\xff",
        b"\"",
        b"{",
        b"}",
        b"[[[[",
        b":",
        b"99999999999999999999",
        b"-1",
        b"\\ud800",
        b"Content-Length: 5\r\n",
    ];
    let mut bytes = whole.to_vec();
    for _ in 0..chance.random_range(1..6) {
        let at = chance.random_range(0..=bytes.len());
        let to = (at + chance.random_range(0..40)).min(bytes.len());
        match chance.random_range(0..7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << chance.random_range(0..8),
            1 => drop(bytes.drain(at..to)),
            2 => {
                let part = bytes[at..to].to_vec();
                bytes.splice(at..at, part.repeat(chance.random_range(1..20)));
            }
            3 => bytes.truncate(at),
            4 => {
                let other = &others[chance.random_range(0..others.len())];
                let from = chance.random_range(0..=other.len());
                bytes.splice(at..to, other[from..].iter().copied());
            }
            5 if at < bytes.len() => bytes[at] = chance.random(),
            _ => {
                let token = TOKENS[chance.random_range(0..TOKENS.len())];
                bytes.splice(at..at, token.iter().copied());
            }
        }
    }
    bytes
}

#[tokio::test]
async fn whatever_a_stranger_sends_the_server_answers_or_closes_and_goes_on() -> Result<()> {
    let access = Access::new()?;
    access.tokens(&["A/ann"])?;
    access.rules(&[("ALLOW", "*", "ANY", "*")])?;
    let mut server = access.guard(Server::new()?, true);
    let ann = server.start().await?.with_token(&token_of("A/ann"));
    let seed = Seed::from_environment("FUZZ_BYTES_SEED");
    let whole = whole();
    let end = Instant::now() + Duration::from_secs(u64::from(rounds("FUZZ_SECONDS", 45)));
    let resident = server.resident_kib()?;
    let mut sent = 0_u64;
    while Instant::now() < end {
        let mut chance = seed.generator(sent);
        let request = &whole[chance.random_range(0..whole.len())];
        let bytes = broken(&mut chance, request, &whole);
        let port = if chance.random_bool(0.8) { server.traffic_port() } else { server.admin_port() };
        let mut raw = Raw::connect(port).await?;
        sent += 1;
        // In pieces, as a network may cut it.
        let cut = chance.random_range(0..=bytes.len());
        if raw.send(&bytes[..cut]).await.is_ok() {
            drop(raw.send(&bytes[cut..]).await);
        }
        let answer = raw.read_head(ANSWER).await;
        let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
        ensure!(
            status.is_none_or(|status| !matches!(status, "500" | "502" | "504")),
            "request {sent} was answered {answer}: {}",
            String::from_utf8_lossy(&bytes)
        );
    }
    ensure!(sent > 100, "only {sent} requests");
    ann.publish("t", &event("after")).await?.expect(202)?;
    let log = server.log();
    ensure!(!log.contains("panicked"), "{log}");
    let grown = server.resident_kib()?.saturating_sub(resident);
    ensure!(grown < 100 << 10, "{sent} broken requests left {grown} KiB behind");
    println!("{sent} broken requests, {grown} KiB more");
    Ok(())
}
