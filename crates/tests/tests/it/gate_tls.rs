//! TLS as clients meet it: both protocols, certificates that change, clients that show one, and clients that do not
//! behave.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use mesh_tests::{
    Authority, Pair, Raw, SecureClient, SecureConnection, Server, Speaks, TOKEN, event, pause,
    read_body_until, run_to_end, until,
};
use serde_json::json;
use tokio::time::Instant;

const SOON: Duration = Duration::from_secs(15);
const EVENT: [(&str, &str); 1] = [("content-type", "application/cloudevents+json")];
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// A server that speaks TLS on its traffic port and plainly on its admin port, with where its files are.
struct Secured {
    server: Server,
    certificate: PathBuf,
    key: PathBuf,
    pair: Pair,
}

fn secured(authority: &Authority) -> Result<Secured> {
    let server = Server::new()?;
    let (certificate, key) = (server.home().join("server.pem"), server.home().join("server.key"));
    let pair = authority.server()?;
    pair.write(&certificate, &key)?;
    let server = server
        .key("eventmesh.tls.certificate.file", certificate.display())
        .key("eventmesh.tls.key.file", key.display())
        .key("eventmesh.admin.tls", false)
        .key("eventmesh.security.reload.interval", "100ms");
    Ok(Secured { server, certificate, key, pair })
}

async fn publish(connection: &mut SecureConnection, topic: &str, id: &str) -> Result<u16> {
    let path = format!("/events/publish?topic={topic}");
    Ok(connection.call("POST", &path, &EVENT, event(id).to_string()).await?.status)
}

/// Subscribes, publishes, polls, acknowledges and streams over one protocol.
async fn the_line(client: &SecureClient, port: u16, name: &str) -> Result<()> {
    let mut connection = client.connect(port).await?;
    let subscribe = json!({"clientId": name, "topic": name, "mode": "LOAD_BALANCE"}).to_string();
    connection.call("POST", "/events/subscribe", &JSON, subscribe).await?.expect(200)?;
    ensure!(publish(&mut connection, name, "1").await? == 202);
    let poll = format!("/events/poll?clientId={name}&timeoutMs=10000");
    let polled = connection.call("GET", &poll, &[], "").await?.expect(200)?.json()?;
    let id = polled[0]["deliveryId"].as_str().with_context(|| format!("a delivery in {polled}"))?;
    let ack = json!({"deliveryId": id}).to_string();
    connection.call("POST", "/events/ack", &JSON, ack).await?.expect(200)?;

    let mut streaming = client.connect(port).await?;
    let path = format!("/events/stream?clientId={name}");
    let answer = streaming.open("GET", &path, &[], "").await?;
    ensure!(answer.status() == 200, "{answer:?}");
    ensure!(publish(&mut connection, name, "2").await? == 202);
    let (text, _) = read_body_until(&mut answer.into_body(), "\ndata: ", 1, SOON).await;
    ensure!(text.contains("\"n\":\"2\""), "{text}");
    Ok(())
}

#[tokio::test]
async fn both_protocols_go_the_whole_line_and_what_is_not_tls_is_turned_away() -> Result<()> {
    let authority = Authority::new("authority")?;
    let mut secured = secured(&authority)?;
    secured.server.start().await?;
    let port = secured.server.traffic_port();
    for (speaks, name) in [(Speaks::Http1, "h1"), (Speaks::Http2, "h2")] {
        let client = SecureClient::new(&authority, None, speaks)?;
        the_line(&client, port, name).await.with_context(|| format!("{speaks:?}"))?;
    }

    let mut plain = Raw::connect(port).await?;
    plain.send(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    let said = plain.read_to_end(SOON).await.context("it was not closed")?;
    ensure!(
        said.starts_with("HTTP/1.1 400 ") && said.contains("this port speaks TLS: use https"),
        "{said:?}"
    );
    let mut other = Raw::connect(port).await?;
    other.send(b"\x00\x01\x02 is neither").await?;
    let said = other.read_to_end(SOON).await.context("it was not closed")?;
    ensure!(!said.contains("HTTP/1.1"), "{said:?}");

    let stranger = SecureClient::new(&Authority::new("another")?, None, Speaks::Http1)?;
    ensure!(stranger.connect(port).await.is_err(), "a client took a certificate of nobody it trusts");
    let client = SecureClient::new(&authority, None, Speaks::Http1)?;
    client.call(port, "GET", "/openapi.json", &[], "").await?.expect(200)?;
    Ok(())
}

#[tokio::test]
async fn a_new_certificate_holds_for_new_connections_and_half_of_one_for_none() -> Result<()> {
    let authority = Authority::new("authority")?;
    let mut secured = secured(&authority)?;
    secured.server.start().await?;
    let port = secured.server.traffic_port();
    let pid = secured.server.pid();
    let first = secured.pair.der()?;
    let clients = [
        SecureClient::new(&authority, None, Speaks::Http1)?,
        SecureClient::new(&authority, None, Speaks::Http2)?,
    ];
    let mut open = Vec::new();
    for client in &clients {
        let mut connection = client.connect(port).await?;
        ensure!(connection.certificate == first, "not the certificate of the file");
        ensure!(publish(&mut connection, "t", "before").await? == 202);
        open.push(connection);
    }

    let pair = authority.server()?;
    fs::write(&secured.certificate, &pair.certificate)?;
    let server = &secured.server;
    until("the half-replaced pair to be noticed", SOON, async || {
        server.log().contains("the TLS files cannot be read again").then_some(())
    })
    .await?;
    for client in &clients {
        ensure!(client.connect(port).await?.certificate == first, "half a pair is in force");
    }
    // The files are looked at several times meanwhile, and it is told once.
    pause(Duration::from_millis(500)).await;

    fs::write(&secured.key, &pair.key)?;
    let second = pair.der()?;
    for client in &clients {
        until("the new certificate to be shown", SOON, async || {
            (client.connect(port).await.ok()?.certificate == second).then_some(())
        })
        .await?;
    }
    for connection in &mut open {
        ensure!(publish(connection, "t", "after").await? == 202, "an open connection does not go on");
    }
    ensure!(server.pid() == pid);
    let reports = server.log().matches("the TLS files cannot be read again").count();
    ensure!(reports == 1, "the same half-replaced pair was reported {reports} times");
    Ok(())
}

const HOLDERS: &str = r#"
[[certificate]]
commonName = "alice"
tenant = "shop"
principal = "alice"

[[certificate]]
san = "URI:spiffe://shop.example/bob"
tenant = "shop"
principal = "bob"

[[certificate]]
commonName = "carol"
tenant = "bank"
principal = "alice"
"#;

const RULES: &str = r#"
[[rule]]
tenant = "shop"
principal = "alice"
resource = "shop.orders"
action = "ANY"
effect = "ALLOW"

[[rule]]
tenant = "shop"
principal = "bob"
resource = "shop.stock"
action = "PUBLISH"
effect = "ALLOW"
"#;

#[tokio::test]
async fn a_client_is_who_its_certificate_says_and_without_one_nobody() -> Result<()> {
    // shows: eventmesh.security.gate.certificate.file
    // proves: SG-1 SG-3
    let (authority, clients) = (Authority::new("servers")?, Authority::new("clients")?);
    let Secured { server, .. } = secured(&authority)?;
    let path = |name: &str| server.home().join(name);
    fs::write(path("clients.pem"), clients.pem())?;
    fs::write(path("certificates.toml"), HOLDERS)?;
    fs::write(path("rules.toml"), RULES)?;
    fs::write(
        path("tokens.toml"),
        "[[token]]\nname = \"a\"\nvalue = \"token-of-alice-0123456789\"\ntenant = \"shop\"\nprincipal = \"alice\"\n",
    )?;
    let keys = [
        ("eventmesh.tls.client.ca.file", "clients.pem"),
        ("eventmesh.security.gate.certificate.file", "certificates.toml"),
        ("eventmesh.security.gate.acl.file", "rules.toml"),
        ("eventmesh.security.gate.token.file", "tokens.toml"),
    ];
    let keys = keys.map(|(key, name)| (key, path(name).display().to_string()));
    let mut server = server.key("eventmesh.security.gate.failClosed", true);
    for (key, path) in keys {
        server = server.key(key, path);
    }
    let mut server = server.key("eventmesh.tls.client.auth", "required");
    server.start().await?;
    let port = server.traffic_port();
    let alice = clients.client("alice", None)?;
    let bob = clients.client("anything", Some("spiffe://shop.example/bob"))?;
    let carol = clients.client("carol", None)?;
    let nobody = clients.client("mallory", None)?;
    let forged = Authority::new("clients")?.client("alice", None)?;
    let publish = async |shows: Option<&Pair>,
                         speaks,
                         headers: &[(&str, &str)],
                         topic: &str|
           -> Result<u16> {
        let client = SecureClient::new(&authority, shows, speaks)?;
        let headers = [&EVENT, headers].concat();
        let path = format!("/events/publish?topic={topic}");
        Ok(client.call(server.traffic_port(), "POST", &path, &headers, event(1).to_string()).await?.status)
    };
    let table = [
        (&alice, "shop.orders", 202),
        (&alice, "shop.stock", 403),
        (&bob, "shop.stock", 202),
        (&bob, "shop.orders", 403),
        (&carol, "shop.orders", 403),
        (&nobody, "shop.orders", 401),
    ];
    for speaks in [Speaks::Http1, Speaks::Http2] {
        for (pair, topic, expected) in &table {
            let status = publish(Some(pair), speaks, &[], topic).await?;
            ensure!(status == *expected, "{speaks:?} {topic}: expected {expected}, got {status}");
        }
        ensure!(publish(None, speaks, &[], "shop.orders").await.is_err(), "without a certificate");
        ensure!(publish(Some(&forged), speaks, &[], "shop.orders").await.is_err(), "of another authority");
    }
    // The header counts alone: a wrong token is not made good by a certificate.
    let wrong = [("authorization", "Bearer not-a-token-that-exists")];
    ensure!(publish(Some(&alice), Speaks::Http1, &wrong, "shop.orders").await? == 401);

    let mut server = server.key("eventmesh.tls.client.auth", "optional");
    server.start().await?;
    let publish = async |shows: Option<&Pair>, headers: &[(&str, &str)]| -> Result<u16> {
        let client = SecureClient::new(&authority, shows, Speaks::Http2)?;
        let headers = [&EVENT, headers].concat();
        let path = "/events/publish?topic=shop.orders";
        Ok(client.call(server.traffic_port(), "POST", path, &headers, event(1).to_string()).await?.status)
    };
    ensure!(publish(Some(&alice), &[]).await? == 202);
    ensure!(publish(None, &[]).await? == 401);
    ensure!(publish(None, &[("authorization", "Bearer token-of-alice-0123456789")]).await? == 202);
    ensure!(publish(Some(&forged), &[]).await.is_err(), "one that does not hold ends the connection");
    ensure!(port != server.traffic_port());
    Ok(())
}

#[tokio::test]
async fn a_handshake_that_does_not_come_to_its_end_harms_nobody_and_is_cut() -> Result<()> {
    // covers: U176
    let authority = Authority::new("authority")?;
    let Secured { server, .. } = secured(&authority)?;
    let mut server = server.key("eventmesh.http.headerTimeout", "1s");
    server.start().await?;
    let port = server.traffic_port();
    // The head of a record that announces 512 bytes, and the first of them.
    let begun = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01];
    let mut slow = Vec::new();
    for number in 0..50 {
        let mut raw = Raw::connect(port).await?;
        if number % 2 == 0 {
            raw.send(&begun).await?;
        }
        slow.push(raw);
    }
    let start = Instant::now();
    let client = SecureClient::new(&authority, None, Speaks::Http2)?;
    client.call(port, "GET", "/openapi.json", &[], "").await?.expect(200)?;
    for raw in &mut slow {
        raw.read_to_end(SOON).await.context("a handshake without an end was not cut")?;
    }
    ensure!(start.elapsed() < SOON, "it took {:?}", start.elapsed());
    Ok(())
}

#[tokio::test]
async fn an_orderly_stop_ends_streams_with_a_word_and_does_not_wait_for_handshakes() -> Result<()> {
    // covers: U121
    let authority = Authority::new("authority")?;
    let Secured { server, .. } = secured(&authority)?;
    let mut server =
        server.key("eventmesh.http.headerTimeout", "60s").key("eventmesh.shutdown.timeout", "30s");
    server.start().await?;
    let port = server.traffic_port();
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut raw = Raw::connect(port).await?;
        raw.send(&[0x16, 0x03, 0x01, 0x02, 0x00]).await?;
        slow.push(raw);
    }
    let client = SecureClient::new(&authority, None, Speaks::Http1)?;
    client.call(port, "GET", "/openapi.json", &[], "").await?.expect(200)?;
    let mut streams = Vec::new();
    for (speaks, name) in [(Speaks::Http1, "h1"), (Speaks::Http2, "h2")] {
        let mut connection = SecureClient::new(&authority, None, speaks)?.connect(port).await?;
        let subscribe = json!({"clientId": name, "topic": "t", "mode": "BROADCAST"}).to_string();
        connection.call("POST", "/events/subscribe", &JSON, subscribe).await?.expect(200)?;
        let path = format!("/events/stream?clientId={name}");
        let answer = connection.open("GET", &path, &[], "").await?;
        ensure!(answer.status() == 200, "{answer:?}");
        streams.push((connection, answer.into_body()));
    }
    let start = Instant::now();
    server.stop().await?;
    ensure!(start.elapsed() < Duration::from_secs(10), "it took {:?}", start.elapsed());
    for (connection, mut body) in streams {
        let (text, has_ended) = read_body_until(&mut body, "never in it", 1, SOON).await;
        ensure!(has_ended && text.contains(": the server is stopping"), "{connection:?}: {text:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_admin_port_speaks_tls_with_the_traffic_port_and_asks_nobody_for_a_certificate() -> Result<()> {
    // proves: SG-9
    let (authority, clients) = (Authority::new("servers")?, Authority::new("clients")?);
    let Secured { server, .. } = secured(&authority)?;
    let ca = server.home().join("clients.pem");
    fs::write(&ca, clients.pem())?;
    let mut server = server
        .key("eventmesh.admin.tls", true)
        .key("eventmesh.tls.client.ca.file", ca.display())
        .key("eventmesh.tls.client.auth", "required");
    server.spawn()?;
    let client = SecureClient::new(&authority, None, Speaks::Http1)?;
    let port = server.admin_port();
    let started = until("the admin port to be ready over TLS", Duration::from_secs(60), async || {
        let reply = client.call(port, "GET", "/admin/ready", &[], "").await.ok()?;
        (reply.status == 200).then_some(())
    });
    started.await.with_context(|| server.log_end(30))?;
    let token = format!("Bearer {TOKEN}");
    client.call(port, "GET", "/admin/topics", &[("authorization", &token)], "").await?.expect(200)?;
    client.call(port, "GET", "/admin/topics", &[], "").await?.expect_error(401, "unauthenticated")?;
    let plain = server.client().admin_with("GET", "/admin/ready", &[]).await?;
    let plain = plain.expect_error(400, "invalid_argument").context("the admin port speaks plainly too")?;
    ensure!(plain.json()?["message"].to_string().contains("TLS"), "{plain}");
    let without = client.call(server.traffic_port(), "GET", "/openapi.json", &[], "").await;
    ensure!(without.is_err(), "the traffic port let in somebody without a certificate");
    Ok(())
}

#[tokio::test]
async fn the_admin_port_asks_for_certificates_of_its_own_authority_where_it_is_told_to() -> Result<()> {
    // shows: eventmesh.admin.tls eventmesh.admin.tls.client.auth eventmesh.admin.tls.client.ca.file
    let (authority, operators) = (Authority::new("servers")?, Authority::new("operators")?);
    let Secured { server, .. } = secured(&authority)?;
    let ca = server.home().join("operators.pem");
    fs::write(&ca, operators.pem())?;
    let mut server = server
        .key("eventmesh.admin.tls", true)
        .key("eventmesh.admin.tls.client.auth", "required")
        .key("eventmesh.admin.tls.client.ca.file", ca.display());
    server.spawn()?;
    let (admin, traffic) = (server.admin_port(), server.traffic_port());
    let token = format!("Bearer {TOKEN}");
    let bearer = [("authorization", token.as_str())];
    let known = SecureClient::new(&authority, Some(&operators.client("ann", None)?), Speaks::Http1)?;
    until("the admin port to be ready", Duration::from_secs(60), async || {
        (known.call(admin, "GET", "/admin/ready", &[], "").await.ok()?.status == 200).then_some(())
    })
    .await
    .with_context(|| server.log_end(30))?;
    known.call(admin, "GET", "/admin/topics", &bearer, "").await?.expect(200)?;
    // The certificate stands beside the token, not in its place.
    known.call(admin, "GET", "/admin/topics", &[], "").await?.expect_error(401, "unauthenticated")?;
    let strange = SecureClient::new(&authority, Some(&authority.client("ann", None)?), Speaks::Http1)?;
    let without = SecureClient::new(&authority, None, Speaks::Http1)?;
    for (what, client) in [("of another authority", &strange), ("none", &without)] {
        ensure!(client.call(admin, "GET", "/admin/ready", &[], "").await.is_err(), "{what}: let in");
    }
    without.call(traffic, "GET", "/openapi.json", &[], "").await?.expect(200)?;
    Ok(())
}

#[tokio::test]
async fn half_of_tls_stops_the_start_with_every_problem_at_once() -> Result<()> {
    // covers: U10  proves: SG-2
    let home = tempfile::tempdir()?;
    let refused = async |keys: &[&str], parts: &[&str]| -> Result<()> {
        let flags: Vec<String> = keys.iter().map(|key| format!("-D{key}")).collect();
        let mut arguments = vec!["standalone"];
        arguments.extend(flags.iter().map(String::as_str));
        let output = run_to_end(&arguments, &[], home.path(), SOON).await?;
        ensure!(output.code == Some(64), "{keys:?} ended with {:?}:\n{}", output.code, output.text);
        for part in parts {
            ensure!(output.text.contains(part), "no {part:?} for {keys:?} in:\n{}", output.text);
        }
        Ok(())
    };
    refused(
        &[
            "eventmesh.tls.key.file=server.key",
            "eventmesh.security.gate.certificate.file=certificates.toml",
            "eventmesh.tls.client.auth=sometimes",
            "eventmesh.http.port=http",
        ],
        &["eventmesh.tls.certificate.file", "is missing", "sometimes", "required", "eventmesh.http.port"],
    )
    .await?;
    refused(
        &["eventmesh.tls.certificate.file=server.pem", "eventmesh.security.gate.certificate.file=c.toml"],
        &[
            "eventmesh.tls.key.file",
            "is missing",
            "eventmesh.security.gate.certificate.file",
            "asks for none",
        ],
    )
    .await?;
    refused(
        &[
            "eventmesh.tls.certificate.file=server.pem",
            "eventmesh.tls.key.file=server.key",
            "eventmesh.tls.client.auth=required",
        ],
        &["eventmesh.tls.client.ca.file", "nothing says who signs client certificates"],
    )
    .await?;
    refused(
        &["eventmesh.tls.client.auth=optional", "eventmesh.tls.client.ca.file=ca.pem"],
        &["eventmesh.tls.certificate.file", "client certificates are asked for"],
    )
    .await?;
    // Whole, but nothing is there.
    let keys = ["-Deventmesh.tls.certificate.file=server.pem", "-Deventmesh.tls.key.file=server.key"];
    let output = run_to_end(&["standalone", keys[0], keys[1]], &[], home.path(), SOON).await?;
    ensure!(output.code == Some(1) && output.text.contains("server.pem"), "{output:?}");
    Ok(())
}
