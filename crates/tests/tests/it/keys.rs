//! What a key of the configuration changes, for those keys that no other suite is about. A test of a document sees to it
//! that every key has such a test (`documents::every_key_has_a_test_that_shows_what_it_does`).

use std::{fs, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use data_encoding::BASE64URL_NOPAD;
use mesh_tests::{
    Access, Authority, Client, KeyHost, Raw, Reply, Server, Signer, Subscribe, ToSign, TokenKey, event,
    free_port, pause, run_to_end, token_of, until,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::Instant,
};

use crate::gate_tokens;

const SOON: Duration = Duration::from_secs(20);

/// A library that stands between the server and the C library: it counts syncs of files in the file `SYNCS_COUNT`, a
/// byte each, and holds them up while there is a file `SYNCS_HELD`.
fn sync_shim(folder: &std::path::Path) -> Result<PathBuf> {
    const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
static int passed_on(const char *name, int file) {
    const char *count = getenv("SYNCS_COUNT"), *held = getenv("SYNCS_HELD");
    while (held && access(held, F_OK) == 0) usleep(10000);
    int counts = count ? open(count, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (counts >= 0) { if (write(counts, "x", 1) < 0) abort(); close(counts); }
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return real(file);
}
int fsync(int file) { return passed_on("fsync", file); }
int fdatasync(int file) { return passed_on("fdatasync", file); }
"#;
    let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
    fs::write(&source, SOURCE)?;
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source)
        .arg("-ldl")
        .output()?;
    ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Ok(library)
}

/// A server whose syncs are counted and can be held up, and the files that say so.
fn with_shim() -> Result<(Server, PathBuf, PathBuf)> {
    let server = Server::new()?;
    let library = sync_shim(server.home())?.display().to_string();
    let (count, held) = (server.home().join("count"), server.home().join("held"));
    let server = server
        .variable("LD_PRELOAD", &library)
        .variable("SYNCS_COUNT", &count.display().to_string())
        .variable("SYNCS_HELD", &held.display().to_string());
    Ok((server, count, held))
}

/// Where partition 0 of topic `t` starts or ends.
async fn place(client: &Client, which: &str) -> Result<u64> {
    let topic = client.admin("/admin/topics/t").await?.expect(200)?.json()?;
    Ok(topic["partitions"][0][which].as_str().with_context(|| format!("no {which} in {topic}"))?.parse()?)
}

#[tokio::test]
async fn when_events_are_synced_is_what_the_key_says() -> Result<()> {
    // shows: eventmesh.storage.embedded.sync
    for (policy, told) in [("always", false), ("interval", true), ("never", true)] {
        let (server, count, _) = with_shim()?;
        let mut server =
            server.key("eventmesh.storage.embedded.sync", policy).key("eventmesh.storage.partitions", 1);
        let client = server.start().await?;
        ensure!(
            server.log().contains(&format!("eventmesh.storage.embedded.sync={policy}:")) == told,
            "{policy}"
        );
        client.published("t", [event(0)]).await?;
        // What the making of the topic left is over.
        pause(Duration::from_millis(300)).await;
        let before = fs::metadata(&count)?.len();
        for number in 0..30 {
            client.published("t", [event(number)]).await?;
        }
        let synced = fs::metadata(&count)?.len() - before;
        match policy {
            "always" => ensure!(synced >= 30, "{synced} syncs for 30 events that were waited for"),
            _ => ensure!(synced < 30, "{synced} syncs for 30 events with {policy}"),
        }
        // All are there after a kill, whatever the policy: the system has them.
        server.kill9();
        let client = server.start().await?;
        let ends = place(&client, "end").await?;
        ensure!(ends == 31, "{policy}: {ends}");
    }
    Ok(())
}

#[tokio::test]
async fn a_publish_waits_for_the_disk_as_long_as_it_may() -> Result<()> {
    // shows: eventmesh.publish.timeout
    let (server, _, held) = with_shim()?;
    let mut server = server.key("eventmesh.publish.timeout", "300ms");
    let client = server.start().await?;
    client.published("t", [event(1)]).await?;
    fs::write(&held, "")?;
    let started = Instant::now();
    let reply = client.publish("t", &event(2)).await?.expect_error(503, "storage_unavailable")?;
    ensure!(reply.header("retry-after").is_some(), "{reply}");
    ensure!(started.elapsed() >= Duration::from_millis(300), "{:?}", started.elapsed());
    fs::remove_file(&held)?;
    until("publishing to go on", SOON, async || {
        (client.publish("t", &event(3)).await.ok()?.status == 202).then_some(())
    })
    .await
}

#[tokio::test]
async fn all_groups_together_hold_no_more_than_the_total() -> Result<()> {
    // shows: eventmesh.delivery.maxOutstandingTotal
    let mut server = Server::new()?
        .key("eventmesh.delivery.maxOutstanding", 20)
        .key("eventmesh.delivery.maxOutstandingTotal", 20);
    let client = server.start().await?;
    let members = ["a", "b", "c"];
    for member in members {
        client.subscribed(&Subscribe::load_balance(member, "t").group(member)).await?;
    }
    let events: Vec<Value> = (0..60).map(event).collect();
    client.publish_batch("t", &events).await?.expect(202)?;
    let mut held = Vec::new();
    for member in members {
        held.extend(client.poll(member, 100, 0).await?);
    }
    ensure!(!held.is_empty() && held.len() <= 20, "{} are out", held.len());
    let before = held.len();
    client.acked(&held).await?;
    let more = client.receive("c", 1, SOON).await?;
    ensure!(!more.is_empty(), "nothing more after {before} were done");
    Ok(())
}

#[tokio::test]
async fn a_connection_too_many_waits_until_another_ends() -> Result<()> {
    // shows: eventmesh.http.maxConnections
    let mut server = Server::new()?.key("eventmesh.http.maxConnections", 2);
    server.start().await?;
    let request = b"GET /events/poll?clientId=nobody&timeoutMs=0 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut raw = Raw::connect(server.traffic_port()).await?;
        raw.send(request).await?;
        ensure!(raw.read_head(SOON).await.starts_with("HTTP/1.1 404"), "one of two");
        open.push(raw);
    }
    let mut third = Raw::connect(server.traffic_port()).await?;
    third.send(request).await?;
    ensure!(third.read_head(Duration::from_millis(500)).await.is_empty(), "a third is served");
    open.remove(0).reset()?;
    ensure!(third.read_head(SOON).await.starts_with("HTTP/1.1 404"), "it is not served afterwards");
    Ok(())
}

#[tokio::test]
async fn answers_that_nobody_reads_take_of_a_budget_that_the_largest_event_fits_into() -> Result<()> {
    // shows: eventmesh.http.maxInFlightPollBytes
    let home = tempfile::tempdir()?;
    let few = ["standalone", "-Deventmesh.http.maxInFlightPollBytes=11MiB"];
    let output = run_to_end(&few, &[], home.path(), SOON).await?;
    ensure!(
        output.code == Some(64) && output.text.contains("eventmesh.http.maxBodyBytes (12MiB)"),
        "{output:?}"
    );

    let mut server = Server::new()?
        .key("eventmesh.http.maxBodyBytes", "10MiB")
        .key("eventmesh.http.maxInFlightPollBytes", "10MiB");
    let client = server.start().await?;
    for name in ["stuck", "other"] {
        client.subscribed(&Subscribe::load_balance(name, "t").group(name)).await?;
    }
    let mut large = event("large");
    large["data"] = "x".repeat(7 << 20).into();
    client.published("t", [large]).await?;
    // One that reads nothing, and whose system takes next to nothing for it.
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4_096)?;
    let mut stuck = socket.connect(([127, 0, 0, 1], server.traffic_port()).into()).await?;
    stuck
        .write_all(b"GET /events/poll?clientId=stuck&timeoutMs=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await?;
    let mut head = [0; 15];
    stuck.read_exact(&mut head).await?;
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    let over = client.poll_reply("other", 1, 0).await?.expect_error(503, "overloaded")?;
    ensure!(over.header("retry-after").is_some(), "{over}");
    drop(stuck);
    // It was given back uncounted.
    assert_eq!(client.receive("other", 1, SOON).await?[0].attempt, 1);

    // Each sign takes six in JSON: more than the whole budget, and it is delivered.
    let headers = [
        ("content-type", "text/plain"),
        ("ce-specversion", "1.0"),
        ("ce-id", "signs"),
        ("ce-source", "/s"),
        ("ce-type", "t"),
    ];
    let signs = "\u{1}".repeat(2 << 20);
    client.call("POST", "/events/publish?topic=t", &headers, signs.clone(), SOON).await?.expect(202)?;
    let got = client.receive("other", 1, SOON).await?;
    let event: Value = serde_json::from_str(got[0].event.get())?;
    ensure!(event["data"] == *signs, "another text came");
    Ok(())
}

#[tokio::test]
async fn what_older_runtimes_cannot_read_is_refused_where_they_read_too() -> Result<()> {
    // shows: eventmesh.frame.javaCompatible
    let mut many = event("many");
    for number in 0..65 {
        many[format!("a{number}")] = "x".into();
    }
    let mut long = event("long");
    long["a"] = "x".repeat(4_097).into();
    for (compatible, status) in [(false, 202), (true, 400)] {
        let mut server = Server::new()?.key("eventmesh.frame.javaCompatible", compatible);
        let client = server.start().await?;
        client.published("t", [event(1)]).await?;
        for event in [&many, &long] {
            client.publish("t", event).await?.expect(status)?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn of_the_events_that_are_recognised_the_oldest_are_forgotten_first() -> Result<()> {
    // shows: eventmesh.publish.dedup.maxEvents
    let mut server = Server::new()?
        .key("eventmesh.publish.dedup.window", "1h")
        .key("eventmesh.publish.dedup.maxEvents", 1_000);
    let client = server.start().await?;
    client.published("t", [event("first")]).await?;
    let again = client.publish("t", &event("first")).await?.expect(202)?.json()?;
    ensure!(again["duplicate"] == true, "{again}");
    let others: Vec<Value> = (0..2_000).map(event).collect();
    client.publish_batch("t", &others).await?.expect(202)?;
    until("the first to be forgotten", SOON, async || {
        let again = client.publish("t", &event("first")).await.ok()?.json().ok()?;
        again.get("duplicate").is_none().then_some(())
    })
    .await?;
    let last = client.publish("t", &event(1_999)).await?.expect(202)?.json()?;
    ensure!(last["duplicate"] == true, "{last}");
    Ok(())
}

#[tokio::test]
async fn what_all_have_done_with_is_kept_up_to_a_size() -> Result<()> {
    // shows: eventmesh.storage.retention.maxBytes eventmesh.storage.retention.checkInterval
    let mut server = Server::new()?
        .key("eventmesh.storage.partitions", 1)
        .key("eventmesh.storage.retention.maxBytes", "1MiB")
        .key("eventmesh.storage.retention.checkInterval", "100ms");
    let client = server.start().await?;
    let mut large = event("large");
    large["data"] = "x".repeat(256 << 10).into();
    client.published("t", vec![large; 12]).await?;
    until("the oldest to be gone", SOON, async || {
        let start = place(&client, "start").await.ok()?;
        (start > 0 && start < 12).then_some(())
    })
    .await
}

/// What takes a minute at least, side by side: each of these keys begins there.
#[tokio::test]
async fn what_is_bounded_in_minutes_is_gone_after_one() -> Result<()> {
    // shows: eventmesh.storage.retention.maxAge eventmesh.storage.backlog.maxAge
    // shows: eventmesh.security.gate.token.jwt.jwks.maxStale
    tokio::try_join!(
        events_go_after_a_minute("eventmesh.storage.retention.maxAge", false),
        events_go_after_a_minute("eventmesh.storage.backlog.maxAge", true),
        keys_that_are_not_fetched_again_go_after_a_minute(),
    )?;
    Ok(())
}

async fn events_go_after_a_minute(key: &str, somebody_waits_for_them: bool) -> Result<()> {
    let mut server = Server::new()?
        .key("eventmesh.storage.partitions", 1)
        .key("eventmesh.storage.retention.checkInterval", "1s")
        .key(key, "1m");
    let client = server.start().await?;
    if somebody_waits_for_them {
        client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    }
    client.published("t", [event(1)]).await?;
    pause(Duration::from_secs(30)).await;
    ensure!(place(&client, "start").await? == 0, "{key}: gone before its time");
    client.published("t", [event(2)]).await?;
    until("the first to be gone", Duration::from_secs(90), async || {
        (place(&client, "start").await.ok()? == 1).then_some(())
    })
    .await
    .with_context(|| key.to_owned())?;
    // Where nothing was dropped there is no series.
    let dropped = client.metric("eventmesh_dropped_total").await.unwrap_or(0.0);
    ensure!((dropped >= 1.0) == somebody_waits_for_them, "{key}: {dropped} were counted as dropped");
    Ok(())
}

async fn keys_that_are_not_fetched_again_go_after_a_minute() -> Result<()> {
    let authority = Authority::new("key hosts")?;
    let mut host = KeyHost::new(&authority)?;
    let key = TokenKey::ed25519("only")?;
    host.publish([&key]);
    host.up().await?;
    let mut server =
        gate_tokens::server(&host, &authority)?.key("eventmesh.security.gate.token.jwt.jwks.maxStale", "1m");
    let client = server.start().await?;
    let token = key.token(&gate_tokens::claims("shop", &["writer"], 600))?;
    gate_tokens::publish(&client, &token).await?.expect(202)?;
    host.down().await;
    pause(Duration::from_secs(30)).await;
    gate_tokens::publish(&client, &token).await?.expect(202).context("half of the time")?;
    let refused =
        async || gate_tokens::publish(&client, &token).await.ok().filter(|reply| reply.status != 202);
    let reply = until("the set to be too old", Duration::from_secs(60), refused).await?;
    ensure!(
        reply.expect_error(401, "unauthenticated")?.header("retry-after").is_some(),
        "it does not say when"
    );
    Ok(())
}

#[tokio::test]
async fn the_log_is_lines_for_people_or_objects_for_programs() -> Result<()> {
    // shows: eventmesh.log.format
    let mut server = Server::new()?.key("eventmesh.log.format", "json");
    server.start().await?;
    server.stop().await?;
    let log = server.log();
    ensure!(log.lines().count() > 3, "{log}");
    for line in log.lines() {
        let object: Value = serde_json::from_str(line).with_context(|| format!("{line:?} is no JSON"))?;
        ensure!(object["level"].is_string() && object["timestamp"].is_string(), "{line}");
    }
    Ok(())
}

#[tokio::test]
async fn an_instance_has_the_name_it_was_given() -> Result<()> {
    // shows: eventmesh.instance.id
    let mut server = Server::new()?.key("eventmesh.instance.id", "in-the-cellar");
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    let list = client.admin("/admin/subscriptions").await?.expect(200)?.json()?;
    ensure!(list[0]["instance"] == "in-the-cellar", "{list}");
    Ok(())
}

#[tokio::test]
async fn a_meta_store_that_is_not_in_this_build_and_addresses_of_the_local_one_stop_the_start() -> Result<()>
{
    // shows: eventmesh.meta.type eventmesh.meta.addr
    let home = tempfile::tempdir()?;
    for (key, value, part) in [
        ("eventmesh.meta.type", "nacos", "not in this build"),
        ("eventmesh.meta.addr", "localhost:2379", "eventmesh.meta.type is local"),
    ] {
        let output = run_to_end(&["standalone", &format!("-D{key}={value}")], &[], home.path(), SOON).await?;
        ensure!(output.code == Some(64) && output.text.contains(key), "{output:?}");
        ensure!(output.text.contains(part), "no {part:?} in {output:?}");
    }
    // The default, given.
    Server::new()?.key("eventmesh.meta.type", "local").start().await?;
    Ok(())
}

#[tokio::test]
async fn the_admin_port_is_where_it_was_told_to_be() -> Result<()> {
    // shows: eventmesh.admin.port eventmesh.http.port
    let mut server = Server::new()?;
    let client = server.start().await?;
    client.admin("/admin/topics").await?.expect(200)?;
    let other = Raw::connect(free_port()).await;
    ensure!(other.is_err(), "somebody listens where nobody was told to");
    Ok(())
}

fn published(topic: &str) -> String {
    format!("/events/publish?topic={topic}")
}

#[tokio::test]
async fn signatures_are_good_for_the_window_and_nonces_have_their_room() -> Result<()> {
    // shows: eventmesh.security.gate.signature.window eventmesh.security.gate.signature.maxNonces
    let signer = Signer::hmac("orders-a")?;
    let (target, body) = (published("t"), event(1).to_string());
    let server = async |key: &str, value: &str| -> Result<Server> {
        let server = Server::new()?;
        let file = server.home().join("keys.toml");
        fs::write(&file, signer.entry("shop", "orders"))?;
        let mut server = server
            .key("eventmesh.security.gate.failClosed", true)
            .key("eventmesh.security.gate.signature.file", file.display())
            .key(&format!("eventmesh.security.gate.signature.{key}"), value);
        server.start().await?;
        Ok(server)
    };
    let send = async |server: &Server, age: i64| -> Result<Reply> {
        let kind = ("content-type", "application/cloudevents+json");
        let request = ToSign { age, ..ToSign::new("POST", &target).body(body.as_bytes()).kind(kind.1) };
        let signature = signer.sign(&request);
        let headers: Vec<(&str, &str)> =
            signature.iter().map(|(name, value)| (name.as_str(), value.as_str())).chain([kind]).collect();
        server.client().call("POST", &target, &headers, body.clone(), SOON).await
    };
    // Within the five minutes of the default.
    let few = server("maxNonces", "1000").await?;
    let mut refused = None;
    for _ in 0..1_001 {
        let reply = send(&few, 0).await?;
        if reply.status != 202 {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.context("a thousand and one nonces were remembered")?;
    let refused = refused.expect_error(401, "unauthenticated")?;
    ensure!(refused.header("retry-after").is_some(), "{refused}");

    let short = server("window", "5s").await?;
    // What was signed before the start is refused for that.
    pause(Duration::from_secs(9)).await;
    send(&short, 0).await?.expect(202)?;
    let reply = send(&short, 8).await?.expect_error(401, "unauthenticated")?;
    ensure!(!reply.to_string().contains("start"), "{reply}");
    Ok(())
}

#[tokio::test]
async fn audit_files_are_begun_anew_at_their_size_and_so_many_are_kept() -> Result<()> {
    // shows: eventmesh.security.gate.audit.file.maxBytes eventmesh.security.gate.audit.file.keep
    let access = Access::new()?;
    access.tokens(&["A/ann"])?;
    access.rules(&[("ALLOW", "*", "PUBLISH", "mine")])?;
    let server = access.guard(Server::new()?, true);
    let folder = server.home().join("audit");
    fs::create_dir(&folder)?;
    let mut server = server
        .key("eventmesh.security.gate.audit.file", folder.join("log.jsonl").display())
        .key("eventmesh.security.gate.audit.file.maxBytes", "64KiB")
        .key("eventmesh.security.gate.audit.file.keep", 2);
    let client = server.start().await?.with_token(&token_of("A/ann"));
    let sizes = || -> Result<Vec<u64>> {
        let files = fs::read_dir(&folder)?.map(|file| {
            let file = file?;
            // Beside the files stands what says where the chain ends. A file may be renamed while this looks.
            let is_head = file.file_name().to_string_lossy().contains(".head");
            let length = file.metadata().ok().map(|about| about.len());
            anyhow::Ok(length.filter(|_| !is_head))
        });
        files.filter_map(Result::transpose).collect()
    };
    let mut most = 0;
    for _ in 0..1_500 {
        client.publish("theirs", &event(1)).await?.expect_error(403, "forbidden")?;
        most = most.max(sizes()?.len());
    }
    server.stop().await?;
    let sizes = sizes()?;
    // The file that is written, those that are kept, and for a moment the one that goes.
    ensure!(sizes.len() == 3 && most <= 4, "{most} files at most, {sizes:?} at the end");
    ensure!(sizes.iter().all(|size| *size < 80 << 10), "{sizes:?}");
    Ok(())
}

fn hs256(secret: &[u8], claims: &Value) -> String {
    let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let signed = format!("{}.{}", part(&json!({"alg": "HS256", "typ": "JWT"})), part(claims));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    let signature = ring::hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", BASE64URL_NOPAD.encode(signature.as_ref()))
}

#[tokio::test]
async fn an_issuer_is_told_by_its_keys_its_algorithms_and_its_claims() -> Result<()> {
    // shows: eventmesh.security.gate.token.jwt.secret.file eventmesh.security.gate.token.jwt.algorithms
    // shows: eventmesh.security.gate.token.jwt.claim.tenant eventmesh.security.gate.token.jwt.claim.principal
    // shows: eventmesh.security.gate.token.jwt.tenant eventmesh.security.gate.token.jwt.jwks.file
    // shows: eventmesh.security.gate.token.jwt.claim.roles eventmesh.security.gate.token.jwt.issuer
    // shows: eventmesh.security.gate.token.jwt.audience
    const SECRET: &str = "a shared secret of 32 bytes or more";
    let (edwards, p256) = (TokenKey::ed25519("edwards")?, TokenKey::es256("p256")?);
    let access = Access::new()?;
    access.write("secret", SECRET)?;
    access.write("set.json", &json!({"keys": [edwards.public(), p256.public()]}).to_string())?;
    let rule = |who: &str, resource: &str| {
        format!(
            "[[rule]]\n{who}\nresource = \"{resource}\"\naction = \"ANY\"\neffect = \"ALLOW\"\npriority = 1\n"
        )
    };
    let rules = [
        rule("tenant = \"shop\"", "shops"),
        rule("tenant = \"house\"", "houses"),
        rule("principal = \"ann\"", "anns"),
        rule("role = \"mesh:write\"", "writers"),
    ];
    access.write("rules.toml", &rules.concat())?;
    let jwt = "eventmesh.security.gate.token.jwt";
    let server = Server::new()?
        .key("eventmesh.security.gate.failClosed", true)
        .key("eventmesh.security.gate.acl.file", access.path("rules.toml").display())
        .key(&format!("{jwt}.issuer"), "https://issuer.example")
        .key(&format!("{jwt}.audience"), "mesh,other")
        .key(&format!("{jwt}.claim.tenant"), "org.name")
        .key(&format!("{jwt}.claim.principal"), "login")
        .key(&format!("{jwt}.claim.roles"), "scope")
        .key(&format!("{jwt}.tenant"), "house");
    let claims = |tenant: Option<&str>| {
        let ends = gate_tokens::seconds();
        let mut claims = json!({"iss": "https://issuer.example", "aud": "mesh", "sub": "nobody", "login": "ann",
            "scope": "mesh:read mesh:write", "exp": ends + 600});
        if let Some(tenant) = tenant {
            claims["org"] = json!({"name": tenant});
        }
        claims
    };
    let status = async |server: &Server, token: &str, topic: &str| -> Result<u16> {
        Ok(server.client().with_token(token).publish(topic, &event(1)).await?.status)
    };

    let mut one = server.key(&format!("{jwt}.secret.file"), access.path("secret").display());
    one.start().await?;
    let (shop, house) =
        (hs256(SECRET.as_bytes(), &claims(Some("shop"))), hs256(SECRET.as_bytes(), &claims(None)));
    for (token, topic, expected) in [
        (&shop, "shops", 202),
        (&shop, "houses", 403),
        (&house, "houses", 202),
        (&house, "shops", 403),
        (&shop, "anns", 202),
        (&shop, "writers", 202),
    ] {
        ensure!(status(&one, token, topic).await? == expected, "{topic}: not {expected}");
    }
    ensure!(
        status(&one, &hs256(&[7; 40], &claims(Some("shop"))), "shops").await? == 401,
        "of another secret"
    );
    for (claim, other) in [("iss", "https://other.example"), ("aud", "somebody")] {
        let mut claims = claims(Some("shop"));
        claims[claim] = other.into();
        ensure!(status(&one, &hs256(SECRET.as_bytes(), &claims), "shops").await? == 401, "{claim}");
    }
    ensure!(
        status(&one, &edwards.token(&claims(None))?, "houses").await? == 401,
        "of a key that is in no set"
    );

    let mut other = Server::new()?
        .key("eventmesh.security.gate.failClosed", true)
        .key("eventmesh.security.gate.acl.file", access.path("rules.toml").display())
        .key(&format!("{jwt}.issuer"), "https://issuer.example")
        .key(&format!("{jwt}.audience"), "mesh")
        .key(&format!("{jwt}.claim.principal"), "login")
        .key(&format!("{jwt}.tenant"), "house")
        .key(&format!("{jwt}.jwks.file"), access.path("set.json").display())
        .key(&format!("{jwt}.algorithms"), "ES256");
    other.start().await?;
    ensure!(
        status(&other, &p256.token(&claims(None))?, "houses").await? == 202,
        "the algorithm that is allowed"
    );
    ensure!(status(&other, &edwards.token(&claims(None))?, "houses").await? == 401, "one that is not");
    ensure!(
        status(&other, &p256.token(&claims(None))?, "writers").await? == 403,
        "roles are in `roles` here"
    );
    Ok(())
}
