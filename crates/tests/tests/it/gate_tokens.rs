//! Signed tokens of an issuer whose keys are fetched over HTTPS: what they give, and what becomes of them when keys
//! change, end, or cannot be fetched.

use std::{fs, time::Duration};

use anyhow::{Context, Result, ensure};
use data_encoding::BASE64URL_NOPAD;
use mesh_base::Clock;
use mesh_tests::{Authority, Client, KeyHost, Raw, Reply, Server, TokenKey, event, until};
use serde_json::{Value, json};
use tokio::time::Instant;

const SOON: Duration = Duration::from_secs(30);
const ISSUER: &str = "https://login.example/realms/mesh";
const STATIC: &str = "token-of-the-shop-0123456789";
const FETCHED: &str = "the issuer's keys were fetched";
const KEPT: &str = "the issuer's keys cannot be fetched; those there are hold";

const RULES: &str = r#"
[[rule]]
tenant = "shop"
role = "writer"
resource = "orders"
action = "PUBLISH"
effect = "ALLOW"

[[rule]]
tenant = "shop"
role = "reader"
resource = "orders"
action = "SUBSCRIBE"
effect = "ALLOW"

[[rule]]
tenant = "shop"
principal = "static"
resource = "orders"
action = "ANY"
effect = "ALLOW"
"#;

pub(crate) fn seconds() -> u64 {
    Clock::system().now().0 / 1_000
}

/// Claims as Keycloak writes them, for a tenant and with roles, good for so many seconds.
pub(crate) fn claims(tenant: &str, roles: &[&str], good_for: u64) -> Value {
    json!({
        "iss": ISSUER,
        "aud": ["account", "eventmesh"],
        "sub": "f:8d5f1b1e:till-3",
        "preferred_username": "till-3",
        "tenant": tenant,
        "realm_access": {"roles": roles},
        "iat": seconds(),
        "exp": seconds() + good_for,
    })
}

/// A closed server that trusts the issuer whose keys that host publishes.
pub(crate) fn server(host: &KeyHost, authority: &Authority) -> Result<Server> {
    let server = Server::new()?;
    let path = |name: &str| server.home().join(name);
    fs::write(path("ca.pem"), authority.pem())?;
    fs::write(path("rules.toml"), RULES)?;
    let token =
        format!("[[token]]\nname = \"s\"\nvalue = \"{STATIC}\"\ntenant = \"shop\"\nprincipal = \"static\"\n");
    fs::write(path("tokens.toml"), token)?;
    let jwt = "eventmesh.security.gate.token.jwt";
    let files = ["ca.pem", "rules.toml", "tokens.toml"].map(|name| path(name).display().to_string());
    Ok(server
        .key("eventmesh.security.gate.failClosed", true)
        .key(&format!("{jwt}.jwks.url"), host.url())
        .key(&format!("{jwt}.jwks.ca.file"), &files[0])
        .key(&format!("{jwt}.jwks.refresh"), "10s")
        .key(&format!("{jwt}.issuer"), ISSUER)
        .key(&format!("{jwt}.audience"), "eventmesh")
        .key(&format!("{jwt}.leeway"), 0)
        .key(&format!("{jwt}.claim.principal"), "preferred_username")
        .key(&format!("{jwt}.claim.roles"), "realm_access.roles")
        .key("eventmesh.security.gate.acl.file", &files[1])
        .key("eventmesh.security.gate.token.file", &files[2]))
}

pub(crate) async fn publish(client: &Client, token: &str) -> Result<Reply> {
    let authorization = format!("Bearer {token}");
    let headers = [("content-type", "application/cloudevents+json"), ("authorization", &authorization)];
    client.call("POST", "/events/publish?topic=orders", &headers, event(1).to_string(), SOON).await
}

async fn accepted_in_time(client: &Client, token: &str, why: &str) -> Result<()> {
    until(why, SOON, async || (publish(client, token).await.ok()?.status == 202).then_some(())).await
}

/// An open stream of a client, with another header.
async fn stream(server: &Server, client: &str, header: &str) -> Result<Raw> {
    let mut raw = Raw::connect(server.traffic_port()).await?;
    let request = format!("GET /events/stream?clientId={client} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
    raw.send(request.as_bytes()).await?;
    let head = raw.read_head(SOON).await;
    ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
    Ok(raw)
}

#[tokio::test]
async fn a_fetched_key_set_says_who_is_who_also_when_it_changes_or_its_host_is_gone() -> Result<()> {
    // shows: eventmesh.security.gate.token.jwt.jwks.url eventmesh.security.gate.token.jwt.jwks.ca.file
    // shows: eventmesh.security.gate.token.jwt.jwks.refresh eventmesh.security.gate.token.jwt.leeway
    // proves: SG-1 SG-3
    let authority = Authority::new("key hosts")?;
    let mut host = KeyHost::new(&authority)?;
    let (first, second) = (TokenKey::es256("first")?, TokenKey::ed25519("second")?);
    host.publish([&first, &second]);
    host.up().await?;
    let mut server = server(&host, &authority)?;
    let client = server.start().await?;
    let log_has =
        async |text: &str| until(text, SOON, async || server.log().contains(text).then_some(())).await;
    log_has(FETCHED).await?;

    let writer = claims("shop", &["offline_access", "writer"], 600);
    let changed = |member: &str, value: Value| {
        let mut claims = writer.clone();
        claims[member] = value;
        claims
    };
    let good = first.token(&writer)?;
    publish(&client, &good).await?.expect(202)?;
    publish(&client, &second.token(&writer)?).await?.expect(202)?;
    publish(&client, &first.token(&claims("shop", &["reader"], 600))?)
        .await?
        .expect_error(403, "forbidden")?;
    publish(&client, &first.token(&claims("bank", &["writer"], 600))?)
        .await?
        .expect_error(403, "forbidden")?;
    let stranger = TokenKey::es256("first")?.token(&writer)?;
    let (signed, _) = good.rsplit_once('.').context("three parts")?;
    let (_, said) = signed.split_once('.').context("three parts")?;
    let unsigned = format!("{}.{said}.", BASE64URL_NOPAD.encode(br#"{"alg":"none","kid":"first"}"#));
    let refused = [
        ("expired", first.token(&changed("exp", (seconds() - 1).into()))?),
        ("of another issuer", first.token(&changed("iss", "https://elsewhere.example".into()))?),
        ("for another audience", first.token(&changed("aud", "account".into()))?),
        ("without a tenant", first.token(&changed("tenant", Value::Null))?),
        ("by another key of that name", stranger),
        ("with another's signature", format!("{signed}.{}", "A".repeat(86))),
        ("not signed", unsigned),
    ];
    for (what, token) in &refused {
        let reply = publish(&client, token).await?;
        ensure!(reply.header("www-authenticate") == Some("Bearer"), "{:?}", reply.headers);
        reply.expect_error(401, "unauthenticated").with_context(|| format!("a token {what}"))?;
    }

    // A token that ends takes its open streams with it, the one that was opened by a ticket of it too.
    let bearer = format!("Bearer {STATIC}");
    let reads = format!("Bearer {}", first.token(&claims("shop", &["reader"], 600))?);
    let headers = [("content-type", "application/json"), ("authorization", reads.as_str())];
    for name in ["by-header", "by-ticket"] {
        let subscribe = json!({"clientId": name, "topic": "orders", "mode": "BROADCAST"}).to_string();
        client.call("POST", "/events/subscribe", &headers, subscribe, SOON).await?.expect(200)?;
    }
    let started = Instant::now();
    let reads = format!("Bearer {}", first.token(&claims("shop", &["reader"], 6))?);
    let headers = [("authorization", reads.as_str())];
    let answer = client.call("POST", "/events/ticket", &headers, "", SOON).await?.expect(200)?.json()?;
    let ticket = answer["ticket"].as_str().context("a ticket")?;
    let by_header = stream(&server, "by-header", &format!("Authorization: {reads}\r\n")).await?;
    let by_ticket = stream(&server, &format!("by-ticket&ticket={ticket}"), "").await?;
    publish(&client, STATIC).await?.expect(202)?;
    for mut stream in [by_header, by_ticket] {
        let text = stream.read_until("\r\n0\r\n\r\n", 1, SOON).await;
        ensure!(text.contains("test.event"), "nothing was delivered: {text:?}");
        ensure!(text.ends_with("0\r\n\r\n"), "the stream did not end: {text:?}");
    }
    let lasted = started.elapsed();
    ensure!((Duration::from_secs(4)..Duration::from_secs(20)).contains(&lasted), "it lasted {lasted:?}");
    let poll = client.call("GET", "/events/poll?clientId=by-header", &headers, "", SOON).await?;
    poll.expect_error(401, "unauthenticated")?;

    // Another set: a token of a key that is not known makes it be fetched at once.
    let third = TokenKey::es256("third")?;
    host.publish([&third]);
    let new = third.token(&writer)?;
    let before = host.asked();
    accepted_in_time(&client, &new, "a token of the new key to be accepted").await?;
    ensure!(host.asked() > before);
    publish(&client, &good).await?.expect_error(401, "unauthenticated")?;

    host.down().await;
    log_has(KEPT).await?;
    publish(&client, &new).await?.expect(202)?;
    let headers = [("authorization", bearer.as_str())];
    client
        .call("GET", "/events/poll?clientId=other", &headers, "", SOON)
        .await?
        .expect_error(404, "unknown_client")?;
    Ok(())
}

#[tokio::test]
async fn without_its_key_host_a_server_starts_and_says_when_to_come_again() -> Result<()> {
    // proves: SG-3
    let authority = Authority::new("key hosts")?;
    let mut host = KeyHost::new(&authority)?;
    let key = TokenKey::ed25519("only")?;
    host.publish([&key]);
    let mut server = server(&host, &authority)?;
    let client = server.start().await?;
    let token = key.token(&claims("shop", &["writer"], 600))?;
    let reply = publish(&client, &token).await?.expect_error(401, "unauthenticated")?;
    let wait: u64 = reply.header("retry-after").context("Retry-After")?.parse()?;
    ensure!((1..=60).contains(&wait), "Retry-After: {wait}");
    publish(&client, STATIC).await?.expect(202)?;
    publish(&client, "not-a-token-at-all-0123").await?.expect_error(401, "unauthenticated")?;

    // A host that somebody else vouches for is not listened to.
    let mut forged = KeyHost::new(&Authority::new("key hosts")?)?;
    forged.publish([&key]);
    host.up().await?;
    accepted_in_time(&client, &token, "the keys to be fetched once their host is there").await?;
    forged.up().await?;
    let mut deceived = self::server(&forged, &authority)?;
    let client = deceived.start().await?;
    let why = "the host's certificate to be refused";
    until(why, SOON, async || deceived.log().contains("its tokens cannot be checked").then_some(())).await?;
    ensure!(forged.asked() == 0, "the set was fetched from a host whose certificate does not hold");
    publish(&client, &token).await?.expect_error(401, "unauthenticated")?;
    Ok(())
}

#[tokio::test]
async fn it_is_not_ready_until_the_issuers_keys_are_there_or_their_time_is_over() -> Result<()> {
    let authority = Authority::new("key hosts")?;
    let mut host = KeyHost::new(&authority)?;
    let key = TokenKey::ed25519("only")?;
    host.publish([&key]);
    let mut server = server(&host, &authority)?;
    server.spawn()?;
    let client = server.client();
    until("the first try", SOON, async || server.log().contains("tokens cannot be checked").then_some(()))
        .await?;
    for _ in 0..5 {
        client.admin_with("GET", "/admin/ready", &[]).await?.expect_error(503, "not_ready")?;
        publish(&client, STATIC)
            .await
            .map_or(Ok(()), |reply| reply.expect_error(503, "not_ready").map(drop))?;
    }
    host.up().await?;
    until("the keys to be fetched", SOON, async || {
        (client.admin_with("GET", "/admin/ready", &[]).await.ok()?.status == 200).then_some(())
    })
    .await?;
    publish(&client, &key.token(&claims("shop", &["writer"], 600))?).await?.expect(202)?;

    // A stop does not wait for them.
    host.down().await;
    server.stop().await?;
    let before = server.log().len();
    server.spawn()?;
    let waits = async || server.log()[before..].contains("tokens cannot be checked").then_some(());
    until("the first try", SOON, waits).await?;
    let started = Instant::now();
    server.stop().await?;
    ensure!(started.elapsed() < Duration::from_secs(5), "the stop took {:?}", started.elapsed());
    Ok(())
}
