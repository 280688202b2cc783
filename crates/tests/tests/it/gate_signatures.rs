//! Signed requests over HTTP: accepted once and as they were signed, refused in every other form.

use std::{fs, time::Duration};

use anyhow::{Context, Result, ensure};
use mesh_tests::{
    Authority, Client, Raw, Reply, SecureClient, Server, Signer, Speaks, Subscribe, ToSign, event,
};
use serde_json::json;

const SOON: Duration = Duration::from_secs(20);
const EVENT: &str = "application/cloudevents+json";
const JSON: &str = "application/json";
const PUBLISH: &str = "/events/publish?topic=orders";
const OF_ORDERS: &str = "token-of-orders-0123456789";
const OF_STOCK: &str = "token-of-stock-0123456789";

/// A closed server that knows two signers, and two tokens of the same principals.
fn signed(orders: &Signer, stock: &Signer) -> Result<Server> {
    let server = Server::new()?;
    let file = server.home().join("keys.toml");
    fs::write(&file, orders.entry("shop", "orders") + &stock.entry("shop", "stock"))?;
    Ok(server
        .key("eventmesh.security.gate.failClosed", true)
        .key("eventmesh.security.gate.signature.file", file.display()))
}

fn headers<'a>(kind: &'a str, signature: &'a [(String, String)]) -> Vec<(&'a str, &'a str)> {
    let signature = signature.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    [("content-type", kind)].into_iter().chain(signature).collect()
}

/// Sends a request as it is signed.
async fn send(client: &Client, signer: &Signer, request: ToSign<'_>, kind: &str) -> Result<Reply> {
    let signature = signer.sign(&request.kind(kind));
    let headers = headers(kind, &signature);
    client.call(request.method, request.target, &headers, request.body.to_vec(), SOON).await
}

#[tokio::test]
async fn a_signed_request_is_accepted_once_and_only_as_it_was_signed() -> Result<()> {
    // covers: U103  proves: SG-1 SG-3
    let (orders, stock) = (Signer::hmac("orders-a")?, Signer::ed25519("stock-a")?);
    let mut server = signed(&orders, &stock)?;
    let client = server.start().await?;
    let body = event(1).to_string();
    let publish = ToSign::new("POST", PUBLISH).body(body.as_bytes());
    let subscribe = Subscribe::load_balance("c", "orders").body().to_string();
    let subscribe = ToSign::new("POST", "/events/subscribe").body(subscribe.as_bytes());
    send(&client, &stock, subscribe, JSON).await?.expect(200)?;
    for signer in [&orders, &stock] {
        send(&client, signer, publish, EVENT).await?.expect(202)?;
    }
    let poll = ToSign::new("GET", "/events/poll?clientId=c&timeoutMs=5000");
    let mut got = Vec::new();
    while got.len() < 2 {
        let reply = send(&client, &stock, poll, JSON).await?.expect(200)?.json()?;
        let deliveries = reply.as_array().context("deliveries")?;
        ensure!(!deliveries.is_empty(), "only {} of 2 came", got.len());
        got.extend(deliveries.iter().map(|delivery| delivery["deliveryId"].clone()));
    }
    // It is the client of who signed the subscribe; for others it is not there.
    send(&client, &orders, poll, JSON).await?.expect_error(404, "unknown_client")?;
    let ack = json!({"deliveryId": got}).to_string();
    let ack = ToSign::new("POST", "/events/ack").body(ack.as_bytes());
    let acked = send(&client, &stock, ack, JSON).await?.expect(200)?.json()?;
    ensure!(
        acked["results"].as_array().is_some_and(|results| {
            results.len() == 2 && results.iter().all(|result| result["status"] == "acked")
        }),
        "{acked}"
    );

    for signer in [&orders, &stock] {
        let publish = publish.kind(EVENT);
        let signature = signer.sign(&publish);
        let other = event(2).to_string();
        let moved = headers(EVENT, &signature);
        let call = async |target: &str, headers: &[(&str, &str)], body: &str| -> Result<Reply> {
            client.call("POST", target, headers, body.to_owned(), SOON).await
        };
        let with_digest = signer.sign(&publish.body(other.as_bytes()));
        let forged: Vec<(&str, &str)> = moved
            .iter()
            .map(|(name, value)| match *name {
                "content-digest" => (*name, with_digest[0].1.as_str()),
                _ => (*name, *value),
            })
            .collect();
        let without = |gone: &str| -> Vec<(&str, &str)> {
            moved.iter().copied().filter(|(name, _)| *name != gone).collect()
        };
        let tampered = [
            ("another body", call(PUBLISH, &moved, &other).await?),
            ("one more blank", call(PUBLISH, &moved, &format!("{body} ")).await?),
            ("another body with its digest", call(PUBLISH, &forged, &other).await?),
            ("another type", call(PUBLISH, &headers(JSON, &signature), &body).await?),
            ("another query", call("/events/publish?topic=stock", &moved, &body).await?),
            ("a longer query", call(&format!("{PUBLISH}&x=1"), &moved, &body).await?),
            ("another path", call("/events/publish-batch?topic=orders", &moved, &body).await?),
            ("no digest", call(PUBLISH, &without("content-digest"), &body).await?),
            ("no signature", call(PUBLISH, &without("signature"), &body).await?),
            ("no input", call(PUBLISH, &without("signature-input"), &body).await?),
            ("a stale one", send(&client, signer, ToSign { age: 400, ..publish }, EVENT).await?),
            ("one of the future", send(&client, signer, ToSign { age: -600, ..publish }, EVENT).await?),
            ("an unknown key", send(&client, &Signer::hmac("nobody")?, publish, EVENT).await?),
            ("a key of that name", send(&client, &Signer::hmac("orders-a")?, publish, EVENT).await?),
        ];
        for (what, reply) in tampered {
            reply.expect_error(401, "unauthenticated").with_context(|| what.to_owned())?;
        }
        // None of that has used up the nonce; being accepted does.
        call(PUBLISH, &moved, &body).await?.expect(202)?;
        call(PUBLISH, &moved, &body).await?.expect_error(401, "unauthenticated")?;
    }
    let polled = send(&client, &stock, poll, JSON).await?.expect(200)?.json()?;
    ensure!(polled.as_array().is_some_and(|all| !all.is_empty()), "{polled}");
    ensure!(!polled.to_string().contains("\"n\":\"2\""), "what was tampered with was stored: {polled}");
    Ok(())
}

/// Signed and sent in the second in which the server is killed and started again.
#[tokio::test]
async fn a_signed_request_is_not_accepted_again_after_a_restart_however_quick() -> Result<()> {
    let (orders, stock) = (Signer::hmac("orders-a")?, Signer::ed25519("stock-a")?);
    let mut server = signed(&orders, &stock)?;
    let body = event(1).to_string();
    let publish = ToSign::new("POST", PUBLISH).body(body.as_bytes()).kind(EVENT);
    let mut client = server.start().await?;
    for _ in 0..4 {
        let signature = orders.sign(&publish);
        let headers = headers(EVENT, &signature);
        client.call("POST", PUBLISH, &headers, body.clone(), SOON).await?.expect(202)?;
        server.kill9();
        client = server.start().await?;
        let again = client.call("POST", PUBLISH, &headers, body.clone(), SOON).await?;
        again.expect_error(401, "unauthenticated")?;
        // What is signed now is good at once: the instance is ready when the second of its start is over.
        send(&client, &stock, publish, EVENT).await?.expect(202)?;
    }
    Ok(())
}

#[tokio::test]
async fn without_a_signature_a_request_is_refused_before_its_body_is_read() -> Result<()> {
    // proves: SG-3
    let (orders, stock) = (Signer::hmac("orders-a")?, Signer::ed25519("stock-a")?);
    let mut server = signed(&orders, &stock)?;
    server.start().await?;
    let mut raw = Raw::connect(server.traffic_port()).await?;
    let head = format!(
        "POST {PUBLISH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {EVENT}\r\nContent-Length: 8000000\r\n\
         Expect: 100-continue\r\n\r\n"
    );
    raw.send(head.as_bytes()).await?;
    let answer = raw.read_head(SOON).await;
    ensure!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn the_older_signature_of_an_event_counts_for_publishing_and_only_where_it_is_switched_on() -> Result<()>
{
    // proves: SG-3
    let (orders, stock) = (Signer::hmac("orders-a")?, Signer::ed25519("stock-a")?);
    let mut event = event("7");
    event["emsignature"] = orders.legacy("7", "/tests", "test.event").into();
    let mut wrong = event.clone();
    wrong["type"] = "test.other".into();
    let mut server = signed(&orders, &stock)?;
    let client = server.start().await?;
    client.publish("orders", &event).await?.expect_error(401, "unauthenticated")?;

    let mut server = server.key("eventmesh.security.gate.signature.legacy", true);
    let client = server.start().await?;
    client.publish("orders", &event).await?.expect(202)?;
    client.publish("orders", &wrong).await?.expect_error(401, "unauthenticated")?;
    client.publish_batch("orders", &[event.clone(), wrong]).await?.expect_error(401, "unauthenticated")?;
    client.publish_batch("orders", &[event.clone(), event]).await?.expect(202)?;
    let subscribe = Subscribe::load_balance("c", "orders");
    client.subscribe(&subscribe).await?.expect_error(401, "unauthenticated")?;
    client.poll_reply("c", 1, 0).await?.expect_error(401, "unauthenticated")?;
    let body = mesh_tests::event(8).to_string();
    send(&client, &stock, ToSign::new("POST", PUBLISH).body(body.as_bytes()), EVENT).await?.expect(202)?;
    Ok(())
}

#[tokio::test]
async fn token_and_signature_must_be_of_the_same_principal_and_http2_has_its_authority_signed() -> Result<()>
{
    // proves: SG-1 SG-3
    let (orders, stock) = (Signer::hmac("orders-a")?, Signer::ed25519("stock-a")?);
    let authority = Authority::new("authority")?;
    let server = signed(&orders, &stock)?;
    let path = |name: &str| server.home().join(name);
    authority.server()?.write(&path("server.pem"), &path("server.key"))?;
    let token = |name: &str, value: &str| {
        format!(
            "[[token]]\nname = \"{name}\"\nvalue = \"{value}\"\ntenant = \"shop\"\nprincipal = \"{name}\"\n"
        )
    };
    fs::write(path("tokens.toml"), token("orders", OF_ORDERS) + &token("stock", OF_STOCK))?;
    let files = ["server.pem", "server.key", "tokens.toml"].map(|name| path(name).display().to_string());
    let mut server = server
        .key("eventmesh.tls.certificate.file", &files[0])
        .key("eventmesh.tls.key.file", &files[1])
        .key("eventmesh.admin.tls", false)
        .key("eventmesh.security.gate.token.file", &files[2]);
    server.start().await?;
    let host = format!("localhost:{}", server.traffic_port());
    let body = event(1).to_string();
    let request =
        ToSign { authority: Some(&host), ..ToSign::new("POST", PUBLISH).body(body.as_bytes()).kind(EVENT) };
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let secure = SecureClient::new(&authority, None, speaks)?;
        let mut connection = secure.connect(server.traffic_port()).await?;
        let table = [
            (&orders, Some(OF_ORDERS), &host, 202),
            (&stock, Some(OF_STOCK), &host, 202),
            (&stock, Some(OF_ORDERS), &host, 401),
            (&orders, Some(OF_STOCK), &host, 401),
            (&orders, None, &host, 401),
            (&orders, Some(OF_ORDERS), &"elsewhere.example".to_owned(), 401),
        ];
        for (signer, token, authority, expected) in table {
            let signature = signer.sign(&ToSign { authority: Some(authority), ..request });
            let bearer = token.map(|token| format!("Bearer {token}"));
            let mut headers = headers(EVENT, &signature);
            headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
            let reply = connection.call("POST", PUBLISH, &headers, body.clone()).await?;
            ensure!(
                reply.status == expected,
                "{speaks:?} {signer:?} {token:?} {authority}: expected {expected}, got {reply}"
            );
            // A 401 ends the connection, where it is for one request at a time.
            if expected == 401 {
                connection = secure.connect(server.traffic_port()).await?;
            }
        }
    }
    Ok(())
}
