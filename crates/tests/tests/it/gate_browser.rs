//! Browsers: which pages may call, tickets for their streams; and that no secret of any client is ever written down.

use std::{fs, time::Duration};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mesh_base::Clock;
use mesh_tests::{
    Authority, Client, Raw, Reply, SecureClient, Server, Signer, Speaks, Subscribe, TOKEN, ToSign, TokenKey,
    event, until,
};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);
const PAGE: &str = "https://app.example";
const ALICE: &str = "token-of-alice-0123456789";
const BOB: &str = "token-of-bob-9876543210";
const PUBLISH: &str = "/events/publish?topic=t";
const EVENT: (&str, &str) = ("content-type", "application/cloudevents+json");

/// A closed server that knows alice and bob by their tokens.
fn closed() -> Result<Server> {
    let server = Server::new()?;
    let file = server.home().join("tokens.toml");
    let token = |name: &str, value: &str| {
        format!(
            "[[token]]\nname = \"{name}\"\nvalue = \"{value}\"\ntenant = \"shop\"\nprincipal = \"{name}\"\n"
        )
    };
    fs::write(&file, token("alice", ALICE) + &token("bob", BOB))?;
    Ok(server
        .key("eventmesh.security.gate.failClosed", true)
        .key("eventmesh.security.gate.token.file", file.display()))
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// Asks as a browser does before it sends what a page wants.
async fn preflight(client: &Client, origin: &str) -> Result<Reply> {
    let headers = [
        ("origin", origin),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ];
    client.call("OPTIONS", PUBLISH, &headers, "", SOON).await
}

async fn publish_from(client: &Client, origin: &str, token: &str) -> Result<Reply> {
    let token = bearer(token);
    let headers = [EVENT, ("origin", origin), ("authorization", token.as_str())];
    client.call("POST", PUBLISH, &headers, event(1).to_string(), SOON).await
}

#[tokio::test]
async fn pages_of_configured_origins_may_call_and_of_no_others() -> Result<()> {
    let allowed = "access-control-allow-origin";
    let mut server = closed()?;
    let client = server.start().await?;
    for origin in [PAGE, "null"] {
        ensure!(
            preflight(&client, origin)
                .await?
                .expect_error(405, "method_not_allowed")?
                .header(allowed)
                .is_none()
        );
        ensure!(publish_from(&client, origin, ALICE).await?.expect(202)?.header(allowed).is_none());
    }

    let mut server = server.key("eventmesh.http.cors.origins", format!("{PAGE}, https://other.example:8443"));
    let client = server.start().await?;
    for origin in [PAGE, "https://other.example:8443"] {
        let asked = preflight(&client, origin).await?.expect(200)?;
        ensure!(asked.header(allowed) == Some(origin), "{:?}", asked.headers);
        let has = |name: &str, word: &str| asked.header(name).is_some_and(|value| value.contains(word));
        ensure!(has("access-control-allow-methods", "POST"), "{:?}", asked.headers);
        ensure!(has("access-control-allow-headers", "authorization"), "{:?}", asked.headers);
        ensure!(asked.header("access-control-allow-credentials").is_none(), "{:?}", asked.headers);
        ensure!(publish_from(&client, origin, ALICE).await?.expect(202)?.header(allowed) == Some(origin));
        // A page may read why it was refused, and when to come again.
        let refused = publish_from(&client, origin, "nobody's-token-0123").await?;
        ensure!(refused.header(allowed) == Some(origin), "{:?}", refused.headers);
        ensure!(
            refused
                .header("access-control-expose-headers")
                .is_some_and(|names| names.contains("retry-after"))
        );
        refused.expect_error(401, "unauthenticated")?;
    }
    for origin in ["https://evil.example", "http://app.example", "https://app.example.evil.example", "null"] {
        let asked = preflight(&client, origin).await?;
        ensure!(asked.header(allowed).is_none(), "{origin}: {:?}", asked.headers);
        ensure!(publish_from(&client, origin, ALICE).await?.header(allowed).is_none(), "{origin}");
    }
    Ok(())
}

#[tokio::test]
async fn what_a_page_of_another_site_sends_without_asking_is_refused_whatever_the_gate_says() -> Result<()> {
    let filter = "eventmesh_gate_verdicts_total{filter=\"origin\"";
    let evil = [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")];
    let page = [("sec-fetch-site", "cross-site"), ("origin", PAGE)];
    let own = [("sec-fetch-site", "same-origin"), ("origin", "https://mesh.example")];
    let typed = [("sec-fetch-site", "none")];
    // A gate without any filter: every request of a client is allowed.
    let mut server = Server::new()?.key("eventmesh.http.cors.origins", PAGE);
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t").ack_timeout_ms(600_000)).await?;
    client.published("t", [event(1)]).await?;
    let gone = json!({"clientId": "c", "topic": "t", "deleteGroup": true}).to_string();
    // What a form or an image can send: no header that a browser would ask about first.
    let simple = ("content-type", "text/plain");
    let calls = [
        ("POST", "/events/unsubscribe", gone.as_str()),
        ("POST", "/events/subscribe", r#"{"clientId":"evil","topic":"t","mode":"LOAD_BALANCE"}"#),
        ("POST", "/events/ticket", ""),
        ("GET", "/events/poll?clientId=c&timeoutMs=0", ""),
        ("GET", "/events/stream?clientId=c", ""),
    ];
    for (method, path, body) in calls {
        for headers in [&evil[..], &evil[..1]] {
            let headers = [headers, &[simple]].concat();
            let reply = client.call(method, path, &headers, body.to_owned(), SOON).await?;
            reply.expect_error(403, "forbidden").with_context(|| format!("{method} {path}"))?;
        }
    }
    let metrics = client.admin("/metrics").await?.expect(200)?;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    let counted = metrics.lines().find(|line| line.starts_with(filter)).context("no verdict is counted")?;
    ensure!(counted.ends_with(" 10"), "{counted}");
    for headers in [&page[..], &own[..], &typed[..]] {
        client.call("GET", "/openapi.json", headers, "", SOON).await?.expect(200)?;
        let headers = [headers, &[EVENT]].concat();
        client.call("POST", PUBLISH, &headers, event(2).to_string(), SOON).await?.expect(202)?;
    }
    client.call("GET", "/openapi.json", &evil, "", SOON).await?.expect(200)?;
    let got = client.receive("c", 4, SOON).await?;
    ensure!(got.iter().all(|delivery| delivery.attempt == 1), "a page took deliveries: {got:?}");
    Ok(())
}

/// A ticket of that token's holder, for one client or any.
async fn ticket(client: &Client, token: &str, of: Option<&str>) -> Result<String> {
    let token = bearer(token);
    let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
    let body = of.map(|of| json!({"clientId": of}).to_string()).unwrap_or_default();
    let reply = client.call("POST", "/events/ticket", &headers, body, SOON).await?.expect(200)?;
    ensure!(reply.header("cache-control") == Some("no-store"), "{:?}", reply.headers);
    let answer = reply.json()?;
    ensure!(answer["expiresAt"].is_string(), "{answer}");
    Ok(answer["ticket"].as_str().context("a ticket")?.to_owned())
}

/// Opens a stream as `EventSource` does, with nothing but an address.
async fn event_source(server: &Server, client: &str, ticket: &str) -> Result<(Raw, String)> {
    let mut raw = Raw::connect(server.traffic_port()).await?;
    let target = format!("/events/stream?clientId={client}&ticket={ticket}");
    raw.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nOrigin: {PAGE}\r\n\r\n").as_bytes())
        .await?;
    let head = raw.read_head(SOON).await;
    Ok((raw, head))
}

#[tokio::test]
async fn a_ticket_opens_one_stream_of_its_client_and_nothing_else() -> Result<()> {
    let mut server = closed()?.key("eventmesh.http.cors.origins", PAGE);
    let client = server.start().await?;
    for (name, token) in [("alices", ALICE), ("bobs", BOB)] {
        let token = bearer(token);
        let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
        let body = Subscribe::broadcast(name, "t").body().to_string();
        client.call("POST", "/events/subscribe", &headers, body, SOON).await?.expect(200)?;
    }
    let opened = async |of: &str, ticket: &str| -> Result<(Raw, bool)> {
        let (raw, head) = event_source(&server, of, ticket).await?;
        ensure!(head.starts_with("HTTP/1.1 200") || head.starts_with("HTTP/1.1 4"), "{head}");
        Ok((raw, head.starts_with("HTTP/1.1 200")))
    };

    let its = ticket(&client, ALICE, Some("alices")).await?;
    let (mut raw, head) = event_source(&server, "alices", &its).await?;
    ensure!(head.starts_with("HTTP/1.1 200") && head.contains(PAGE), "{head}");
    publish_from(&client, PAGE, ALICE).await?.expect(202)?;
    let text = raw.read_until("\ndata: ", 1, SOON).await;
    ensure!(text.contains("test.event"), "{text}");
    ensure!(!opened("alices", &its).await?.1, "a ticket was good twice");
    ensure!(!opened("alices", "").await?.1 && !opened("alices", "AAAA").await?.1, "no ticket was good");

    let its = ticket(&client, ALICE, Some("alices")).await?;
    ensure!(!opened("others", &its).await?.1, "a ticket for one client was good for another");
    ensure!(!opened("alices", &its).await?.1, "one that was shown for another client is used up");
    let any = ticket(&client, ALICE, None).await?;
    ensure!(!opened("bobs", &any).await?.1, "alice's ticket opened bob's stream");
    let any = ticket(&client, ALICE, None).await?;
    ensure!(opened("alices", &any).await?.1, "a ticket for any client of its holder");

    // It is no credential anywhere else.
    let its = ticket(&client, ALICE, None).await?;
    let json = ("content-type", "application/json");
    let with = |path: &str| format!("{path}{}ticket={its}", if path.contains('?') { '&' } else { '?' });
    let routes = [
        ("POST", "/events/publish?topic=t"),
        ("POST", "/events/publish-batch?topic=t"),
        ("POST", "/events/subscribe"),
        ("POST", "/events/unsubscribe"),
        ("GET", "/events/poll?clientId=alices"),
        ("POST", "/events/ack"),
        ("POST", "/events/nack"),
        ("POST", "/events/extend"),
        ("POST", "/events/reject"),
        ("POST", "/events/ticket"),
    ];
    for (method, path) in routes {
        let reply = client.call(method, &with(path), &[json], "{}", SOON).await?;
        reply.expect_error(401, "unauthenticated").with_context(|| path.to_owned())?;
        let as_header = bearer(&its);
        let reply =
            client.call(method, path, &[json, ("authorization", as_header.as_str())], "{}", SOON).await?;
        reply.expect_error(401, "unauthenticated").with_context(|| path.to_owned())?;
    }
    ensure!(opened("alices", &its).await?.1, "it was used up where it is not asked for");
    client.call("POST", "/events/ticket", &[json], "{}", SOON).await?.expect_error(401, "unauthenticated")?;
    Ok(())
}

/// Everything that was written by a server: its log, and its audit files.
fn written(server: &Server) -> Result<Vec<(String, String)>> {
    let mut all = vec![("the log".to_owned(), server.log())];
    for entry in fs::read_dir(server.home().join("audit"))? {
        let path = entry?.path();
        all.push((path.display().to_string(), String::from_utf8_lossy(&fs::read(&path)?).into_owned()));
    }
    Ok(all)
}

#[tokio::test]
async fn no_credential_ticket_or_signature_is_written_anywhere_at_any_level() -> Result<()> {
    // covers: U110
    const VIEWER: &str = "viewers-token-0123456789";
    const METRICS: &str = "scrapers-token-0123456789";
    const NOBODY: &str = "nobodys-token-0123456789";
    let authority = Authority::new("authority")?;
    let server = closed()?;
    let path = |name: &str| server.home().join(name);
    fs::create_dir(path("audit"))?;
    authority.server()?.write(&path("server.pem"), &path("server.key"))?;
    let key = TokenKey::ed25519("k")?;
    fs::write(path("jwks.json"), json!({"keys": [key.public()]}).to_string())?;
    fs::write(
        path("admins.toml"),
        format!("[[token]]\nname = \"v\"\nvalue = \"{VIEWER}\"\nrole = \"viewer\"\n"),
    )?;
    let signer = Signer::hmac("alice-a")?;
    fs::write(path("keys.toml"), signer.entry("shop", "alice"))?;
    let jwt = "eventmesh.security.gate.token.jwt";
    let files = ["server.pem", "server.key", "jwks.json", "admins.toml", "audit/audit.jsonl"]
        .map(|name| path(name).display().to_string());
    let keys_file = path("keys.toml").display().to_string();
    let mut server = server
        .key("eventmesh.log.level", "trace")
        .key("eventmesh.tls.certificate.file", &files[0])
        .key("eventmesh.tls.key.file", &files[1])
        .key("eventmesh.admin.tls", false)
        .key(&format!("{jwt}.jwks.file"), &files[2])
        .key(&format!("{jwt}.issuer"), "https://login.example")
        .key(&format!("{jwt}.audience"), "eventmesh")
        .key("eventmesh.admin.security.token.file", &files[3])
        .key("eventmesh.admin.security.metrics.token", METRICS)
        .key("eventmesh.security.gate.audit.file", &files[4])
        .key("eventmesh.security.gate.audit.file.records", "everything")
        .key("eventmesh.security.gate.audit.topic", "audit")
        .key("eventmesh.security.gate.audit.topic.records", "everything");
    let client = server.start().await?;
    let exp = Clock::system().now().0 / 1_000 + 600;
    let claims = |subject: &str| json!({"iss": "https://login.example", "aud": "eventmesh", "sub": subject, "tenant": "shop", "exp": exp});
    let signed_token = key.token(&claims("alice"))?;
    let forged_token = TokenKey::ed25519("k")?.token(&claims("mallory"))?;
    let mut secrets: Vec<String> =
        [ALICE, BOB, NOBODY, VIEWER, METRICS, TOKEN].iter().map(|token| (*token).to_owned()).collect();
    secrets.extend([&signed_token, &forged_token].iter().flat_map(|token| {
        // The claims are no secret, the signature is what makes a token one.
        [(*token).clone(), token.rsplit('.').next().unwrap_or_default().to_owned()]
    }));

    let mut refused = 0;
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let secure = SecureClient::new(&authority, None, speaks)?;
        let mut connection = secure.connect(server.traffic_port()).await?;
        for (token, expected) in [
            (ALICE, 202),
            (BOB, 202),
            (NOBODY, 401),
            (signed_token.as_str(), 202),
            (forged_token.as_str(), 401),
        ] {
            let token = bearer(token);
            let headers = [EVENT, ("authorization", token.as_str())];
            let reply = connection.call("POST", PUBLISH, &headers, event(1).to_string()).await?;
            ensure!(reply.status == expected, "{speaks:?}: expected {expected}, got {reply}");
            if expected == 401 {
                refused += 1;
                // It ends the connection, where that is for one request at a time.
                connection = secure.connect(server.traffic_port()).await?;
            }
        }
        let alice = bearer(ALICE);
        let headers = [("content-type", "application/json"), ("authorization", alice.as_str())];
        let subscribe = Subscribe::load_balance("alices", "t").body().to_string();
        connection.call("POST", "/events/subscribe", &headers, subscribe).await?.expect(200)?;
        let answer = connection.call("POST", "/events/ticket", &headers, "").await?.expect(200)?.json()?;
        let its = answer["ticket"].as_str().context("a ticket")?.to_owned();
        let target = format!("/events/stream?clientId=alices&ticket={its}");
        let mut streaming = secure.connect(server.traffic_port()).await?;
        let opened = streaming.open("GET", &target, &[], "").await?;
        ensure!(opened.status() == 200, "{opened:?}");
        connection.call("GET", &target, &[], "").await?.expect(401)?;
        refused += 1;
        secrets.push(its);
    }
    for token in [VIEWER, METRICS, TOKEN, NOBODY] {
        let token = bearer(token);
        client.admin_with("GET", "/metrics", &[("authorization", token.as_str())]).await?;
        client.admin_with("DELETE", "/admin/topics/t", &[("authorization", token.as_str())]).await?;
    }
    check(&server, &secrets, refused).await?;

    // Once more with signatures.
    let mut server = server.key("eventmesh.security.gate.signature.file", &keys_file);
    server.start().await?;
    secrets.extend(signer.secret());
    let body = event(2).to_string();
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let secure = SecureClient::new(&authority, None, speaks)?;
        let request = ToSign::new("POST", PUBLISH).body(body.as_bytes()).kind(EVENT.1);
        let strangers = Signer::hmac("alice-a")?;
        for (signer, expected) in [(&signer, 202), (&strangers, 401)] {
            let signature = signer.sign(&request);
            let alice = bearer(ALICE);
            let mut headers = vec![EVENT, ("authorization", alice.as_str())];
            headers.extend(signature.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            let reply = secure.call(server.traffic_port(), "POST", PUBLISH, &headers, body.clone()).await?;
            ensure!(reply.status == expected, "{reply}");
            refused += usize::from(expected == 401);
            let (_, bytes) = signature.last().context("a signature")?;
            secrets.push(bytes.trim_start_matches("sig1=:").trim_end_matches(':').to_owned());
        }
    }
    check(&server, &secrets, refused).await
}

/// The refusals are in the audit file, and no secret is anywhere.
async fn check(server: &Server, secrets: &[String], refused: usize) -> Result<()> {
    until("every refusal to be in the audit file", SOON, async || {
        let lines = fs::read_to_string(server.home().join("audit/audit.jsonl")).ok()?;
        let denied =
            |line: &&str| serde_json::from_str::<Value>(line).is_ok_and(|line| line["outcome"] == "denied");
        (lines.lines().filter(denied).count() >= refused).then_some(())
    })
    .await?;
    let all = written(server)?;
    ensure!(all[0].1.contains("TRACE"), "the log is not at the level trace");
    for secret in secrets {
        ensure!(secret.len() >= 16, "{secret:?} is too short to be looked for");
        for (name, text) in &all {
            let line = text.lines().find(|line| line.contains(secret.as_str()));
            ensure!(line.is_none(), "a secret is in {name}: {}", line.unwrap_or_default());
        }
    }
    Ok(())
}

/// The status of a request that names a host, over HTTP/1.1 or over HTTP/2 without TLS.
async fn for_host(port: u16, speaks: Speaks, host: &str) -> Result<(u16, String)> {
    if speaks == Speaks::Http1 {
        let mut raw = Raw::connect(port).await?;
        let head = format!("GET /openapi.json HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        raw.send(head.as_bytes()).await?;
        let answer = raw.read_to_end(SOON).await.context("the end")?;
        let status = answer.split(' ').nth(1).context("a status")?.parse()?;
        return Ok((status, answer));
    }
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.context("a handshake")?;
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(async move { drop(connection.await) });
    let request = http::Request::get(format!("http://{host}/openapi.json")).body(Full::<Bytes>::default())?;
    let answer = tokio::time::timeout(SOON, sender.send_request(request)).await.context("an answer")??;
    let status = answer.status().as_u16();
    Ok((status, String::from_utf8_lossy(&answer.into_body().collect().await?.to_bytes()).into_owned()))
}

#[tokio::test]
async fn a_server_on_loopback_answers_to_its_own_names_only_on_both_ports_and_over_both_protocols()
-> Result<()> {
    let mut server = Server::new()?
        .key("eventmesh.http.hosts", "mesh.internal, other.internal")
        .key("eventmesh.http.advertisedAddr", "advertised.example:443");
    let client = server.start().await?;
    for (port, right) in [(server.traffic_port(), 200), (server.admin_port(), 404)] {
        for speaks in [Speaks::Http1, Speaks::Http2] {
            for own in
                ["localhost", "127.0.0.1", "[::1]", "mesh.internal", "OTHER.internal", "advertised.example"]
            {
                let (status, answer) = for_host(port, speaks, &format!("{own}:{port}")).await?;
                ensure!(status == right, "{speaks:?} {own}: {answer}");
            }
            for other in ["evil.example", "localhost.evil.example", "mesh.internal.evil.example"] {
                let (status, answer) = for_host(port, speaks, &format!("{other}:{port}")).await?;
                ensure!(status == 403 && answer.contains("forbidden"), "{speaks:?} {other}: {answer}");
                ensure!(answer.contains("eventmesh.http.hosts"), "{speaks:?} {other}: {answer}");
            }
        }
    }
    let metrics = client.admin("/metrics").await?.expect(200)?;
    let metrics = String::from_utf8(metrics.body.to_vec())?;
    for family in ["eventmesh_http_foreign_hosts_total 6", "eventmesh_admin_foreign_hosts_total 6"] {
        ensure!(metrics.contains(family), "no {family}");
    }

    // Beyond loopback a name may be anything that leads here.
    let mut server = Server::new()?.key("eventmesh.http.host", "0.0.0.0");
    server.start().await?;
    let (status, answer) = for_host(server.traffic_port(), Speaks::Http1, "anything.example").await?;
    ensure!(status == 200, "{answer}");
    let (status, answer) = for_host(server.admin_port(), Speaks::Http1, "anything.example").await?;
    ensure!(status == 403, "the admin port is on loopback still: {answer}");
    Ok(())
}

#[tokio::test]
async fn a_request_without_a_host_or_with_two_is_malformed() -> Result<()> {
    let mut server = Server::new()?;
    server.start().await?;
    for (head, status) in [
        ("HTTP/1.1\r\n", "400"),
        ("HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", "400"),
        ("HTTP/1.1\r\nHost: local host\r\n", "400"),
        ("HTTP/1.1\r\nHost: user@localhost\r\n", "400"),
        ("HTTP/1.0\r\n", "200"),
    ] {
        let mut raw = Raw::connect(server.traffic_port()).await?;
        raw.send(format!("GET /openapi.json {head}Connection: close\r\n\r\n").as_bytes()).await?;
        let answer = raw.read_to_end(SOON).await.context("the end")?;
        ensure!(answer.split(' ').nth(1) == Some(status), "{head:?}: {answer}");
    }
    Ok(())
}
