//! The security gate from outside: who gets in, whose things are whose, and what a change of the rules does to those
//! who are connected.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use mesh_tests::{
    Access, Client, Delivery, Raw, Reply, Server, Subscribe, TOKEN, event, free_port, run_to_end, token_of,
    until, within,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const SOON: Duration = Duration::from_secs(20);
const EVENT: &str = "application/cloudevents+json";

/// Files for ann, bob and eve of the tenant A and cat of B; all but eve may do everything but what is about `secret`.
fn access() -> Result<Access> {
    let access = Access::new()?;
    access.tokens(&["A/ann", "A/bob", "A/eve", "B/cat"])?;
    access.rules(&[
        ("ALLOW", "ann", "ANY", "*"),
        ("ALLOW", "bob", "ANY", "*"),
        ("ALLOW", "cat", "ANY", "*"),
        ("DENY", "*", "ANY", "secret"),
    ])?;
    Ok(access)
}

fn of(client: &Client, name: &str) -> Client {
    client.with_token(&token_of(name))
}

/// Opens a stream and sees it answered with that status.
async fn stream(server: &Server, client: &str, name: &str, status: u16) -> Result<Raw> {
    let mut raw = Raw::connect(server.traffic_port()).await?;
    let token = token_of(name);
    let request = format!(
        "GET /events/stream?clientId={client} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    raw.send(request.as_bytes()).await?;
    let head = raw.read_head(SOON).await;
    ensure!(head.starts_with(&format!("HTTP/1.1 {status}")), "expected {status}: {head}");
    Ok(raw)
}

/// The gate's counters by filter and verdict.
async fn verdicts(client: &Client) -> Result<BTreeMap<(String, String), u64>> {
    let reply = client.admin("/metrics").await?.expect(200)?;
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    let label = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("{name}=\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    text.lines()
        .filter(|line| line.starts_with("eventmesh_gate_verdicts_total{"))
        .map(|line| {
            let filter = label(line, "filter").with_context(|| format!("no filter in {line}"))?;
            let verdict = label(line, "verdict").with_context(|| format!("no verdict in {line}"))?;
            let count = line.rsplit(' ').next().context("a number")?.parse()?;
            Ok(((filter, verdict), count))
        })
        .collect()
}

/// A poll that is past the gate and waits.
async fn waiting_poll(
    client: &Client,
    caller: &Client,
    name: &'static str,
    timeout_ms: u64,
) -> Result<JoinSet<Result<Reply>>> {
    let admitted = async || -> Result<u64> {
        let all = verdicts(client).await?;
        Ok(all.get(&("acl".to_owned(), "allow".to_owned())).copied().unwrap_or_default())
    };
    let before = admitted().await?;
    let caller = caller.clone();
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { caller.poll_reply(name, 10, timeout_ms).await });
    until("the poll to be let in", SOON, async || admitted().await.ok().filter(|now| *now > before)).await?;
    Ok(waiting)
}

/// How a waiting poll is answered.
async fn answer_of(mut waiting: JoinSet<Result<Reply>>) -> Result<Reply> {
    let answered = within("the answer of a waiting poll", SOON, waiting.join_next()).await?;
    answered.context("one poll waits")??
}

/// What the admin port says of everything that a request could change.
async fn everything(client: &Client) -> Result<String> {
    let mut said = String::new();
    for path in [
        "/admin/topics",
        "/admin/groups",
        "/admin/offsets?topic=t",
        "/admin/dlq/browse?topic=t",
        "/admin/subscriptions",
        "/admin/clients?topic=t",
        "/admin/ratelimit",
    ] {
        let mut json = client.admin(path).await?.expect(200)?.json()?;
        // How late something is grows by itself.
        let groups =
            json.as_array_mut().into_iter().flatten().filter_map(|group| group.get_mut("partitions"));
        for lane in groups.filter_map(Value::as_array_mut).flatten() {
            lane.as_object_mut().map(|lane| lane.remove("lagMs"));
        }
        said.push_str(&format!("{path} {json}\n"));
    }
    said.push_str(&format!("pending {}", client.pending().await?));
    Ok(said)
}

/// A query and a body with which an operation of the document would change something.
fn request_of(operation: &str, delivery: &str) -> (&'static str, String) {
    let settled = || json!({"deliveryId": delivery}).to_string();
    match operation {
        "publish" => ("?topic=new", event(1).to_string()),
        "publishBatch" => ("?topic=new", json!([event(1)]).to_string()),
        "subscribe" => ("", json!({"clientId": "x", "topic": "new", "mode": "BROADCAST"}).to_string()),
        "unsubscribe" => ("", json!({"clientId": "c", "deleteGroup": true}).to_string()),
        "poll" => ("?clientId=c&timeoutMs=0", String::new()),
        "stream" => ("?clientId=c", String::new()),
        "ack" | "nack" | "reject" => ("", settled()),
        "extend" => ("", json!({"deliveryId": delivery, "extendMs": 5_000}).to_string()),
        "rejectClient" => ("?clientId=c&tenant=A", String::new()),
        "deleteTopic" => ("?force=true", String::new()),
        "deleteGroup" => ("?tenant=A", String::new()),
        "seekGroup" => ("?tenant=A", json!({"to": "latest"}).to_string()),
        "makeTopic" => ("", json!({"topic": "new"}).to_string()),
        "replayDeadLetters" | "discardDeadLetters" => ("?topic=t", String::new()),
        _ if operation.to_lowercase().contains("rate") => {
            ("?topic=t", json!({"topic": "t", "capacity": 1, "rate": 1}).to_string())
        }
        "health" | "ready" | "document" | "ticket" => ("", String::new()),
        _ => ("?topic=t", String::new()),
    }
}

#[tokio::test]
async fn every_route_of_both_ports_asks_who_calls_and_leaves_everything_as_it_is() -> Result<()> {
    // covers: U101 U114  proves: SG-7 SG-9 SG-10
    const OPEN: [&str; 3] = ["/openapi.json", "/admin/health", "/admin/ready"];
    let access = access()?;
    let mut server = access.guard(Server::new()?, true);
    let client = server.start().await?;
    let ann = of(&client, "A/ann");
    ann.subscribed(&Subscribe::load_balance("c", "t").ack_timeout_ms(600_000)).await?;
    ann.published("t", [event(1), event(2), event(3)]).await?;
    let held = ann.receive("c", 2, SOON).await?;
    ann.post("/events/reject", &json!({"deliveryId": held[0].delivery_id})).await?.expect(200)?;
    let delivery = &held[1].delivery_id;

    let document = client.get("/openapi.json").await?.expect(200)?.json()?;
    let before = everything(&client).await?;
    let mut walked = 0;
    for (path, methods) in document["paths"].as_object().context("paths")? {
        for (method, described) in methods.as_object().context("methods")? {
            let method = method.to_uppercase();
            let (query, body) = request_of(described["operationId"].as_str().unwrap_or_default(), delivery);
            let target = format!("{path}{query}").replace("{topic}", "t").replace("{group}", "default");
            let is_admin = described["tags"][0] == "admin";
            let call = async |authorization: Option<String>| -> Result<Reply> {
                let mut headers = vec![("content-type", "application/json")];
                headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
                if is_admin {
                    client.admin_call(&method, &target, &headers, body.clone()).await
                } else {
                    client.call(&method, &target, &headers, body.clone(), SOON).await
                }
            };
            if OPEN.contains(&path.as_str()) {
                call(None).await?.expect(200).with_context(|| format!("{path} is open"))?;
                continue;
            }
            walked += 1;
            let bearer = |token: &str| Some(format!("Bearer {token}"));
            // The credential of one port is none for the other.
            let others = if is_admin { token_of("A/ann") } else { TOKEN.to_owned() };
            for authorization in [None, bearer("wrong-0123456789"), bearer(&others), bearer("")] {
                let what = format!("{method} {target} {authorization:?}");
                call(authorization).await?.expect_error(401, "unauthenticated").context(what)?;
            }
            if !is_admin {
                let reply = call(bearer(&token_of("A/eve"))).await?;
                let what = format!("{method} {target} by eve: {reply}");
                match described["operationId"].as_str().unwrap_or_default() {
                    // It gives no right that eve has not.
                    "ticket" | "streamTicket" => ensure!(reply.status == 200, "{what}"),
                    "unsubscribe" | "poll" | "stream" => ensure!(reply.code() == "unknown_client", "{what}"),
                    "ack" | "nack" | "extend" | "reject" => {
                        ensure!(reply.code() == "unknown_delivery", "{what}");
                    }
                    _ => ensure!(reply.status == 403 && reply.code() == "forbidden", "{what}"),
                }
            }
            let after = everything(&client).await?;
            ensure!(after == before, "{method} {target} changed\n{before}\ninto\n{after}");
        }
    }
    ensure!(walked > 25, "the document lists {walked} routes");
    // None of one port is served on the other.
    for (method, path) in [("GET", "/admin/metrics"), ("GET", "/metrics"), ("POST", "/admin/dlq/replay")] {
        ann.call(method, path, &[], "", SOON).await?.expect_error(404, "not_found")?;
    }
    client.administer("POST", "/events/publish?topic=t", &event(9)).await?.expect_error(404, "not_found")?;
    Ok(())
}

/// A row of the decision table: who asks for what, and how that ends in a closed and in a permissive gate.
struct Row {
    what: &'static str,
    who: &'static str,
    method: &'static str,
    target: &'static str,
    body: Value,
    closed: (u16, &'static str),
    permissive: u16,
    filter: &'static str,
    /// What is counted in each.
    verdicts: (&'static str, &'static str),
}

fn rows(delivery: &str) -> Vec<Row> {
    let row = |what, who, method, target, body, closed, permissive, filter| Row {
        what,
        who,
        method,
        target,
        body,
        closed,
        permissive,
        filter,
        verdicts: ("deny", "would_deny"),
    };
    let publish = "/events/publish?topic=t";
    let unknown = (401, "unauthenticated");
    let subscribe = |client: &str| json!({"clientId": client, "topic": "t", "mode": "LOAD_BALANCE"});
    vec![
        row("no token", "", "POST", publish, event(1), unknown, 202, "token"),
        row("a wrong token", "X/x", "POST", publish, event(1), unknown, 202, "token"),
        row(
            "a rule that denies",
            "A/ann",
            "POST",
            "/events/publish?topic=secret",
            event(1),
            (403, "forbidden"),
            202,
            "acl",
        ),
        row("no rule at all", "A/eve", "POST", publish, event(1), (403, "forbidden"), 202, "acl"),
        Row {
            verdicts: ("malformed", "malformed"),
            ..row(
                "a rule that cannot be read",
                "A/ann",
                "POST",
                "/events/publish?topic=broken",
                event(1),
                (403, "forbidden"),
                403,
                "acl",
            )
        },
        row(
            "another's client, polled",
            "A/bob",
            "GET",
            "/events/poll?clientId=c&timeoutMs=0",
            Value::Null,
            (404, "unknown_client"),
            200,
            "owner",
        ),
        row(
            "another's client, subscribed",
            "A/bob",
            "POST",
            "/events/subscribe",
            subscribe("c"),
            (409, "client_conflict"),
            200,
            "owner",
        ),
        row(
            "another's delivery",
            "A/bob",
            "POST",
            "/events/extend",
            json!({"deliveryId": delivery, "extendMs": 60_000}),
            (404, "unknown_delivery"),
            200,
            "owner",
        ),
        Row {
            verdicts: ("deny", "deny"),
            ..row(
                "over a quota",
                "Q/kim",
                "POST",
                "/events/subscribe",
                subscribe("second"),
                (429, "quota_exceeded"),
                429,
                "quota",
            )
        },
        row(
            "another's subscription",
            "A/bob",
            "POST",
            "/events/unsubscribe",
            json!({"clientId": "c"}),
            (404, "unknown_client"),
            200,
            "owner",
        ),
    ]
}

async fn decide(closed: bool) -> Result<()> {
    let access = access()?;
    access.tokens(&["A/ann", "A/bob", "A/eve", "B/cat", "Q/kim"])?;
    let rule = |principal: &str, resource: &str, effect: &str| {
        format!(
            "[[rule]]\nprincipal = \"{principal}\"\nresource = \"{resource}\"\naction = \"ANY\"\neffect = \"{effect}\"\n"
        )
    };
    let rules = [
        ("ann", "*", "ALLOW"),
        ("bob", "*", "ALLOW"),
        ("kim", "*", "ALLOW"),
        ("*", "secret", "DENY"),
        ("*", "broken", "ALOW"),
    ];
    access.write("acl.toml", &rules.map(|(who, what, effect)| rule(who, what, effect)).concat())?;
    let limits = access.write("limits.toml", "[[tenant]]\nname = \"Q\"\nsubscriptions = 1\n")?;
    let server = access.guard(Server::new()?, closed);
    let mut server = server.key("eventmesh.security.gate.quota.file", limits.display());
    let client = server.start().await?;
    let log = server.log();
    let loud =
        log.lines().any(|line| line.contains("WARN") && line.contains("THE SECURITY GATE IS PERMISSIVE"));
    ensure!(loud != closed, "closed {closed}:\n{log}");
    let malformed = format!("{}:", access.path("acl.toml").display());
    ensure!(
        log.lines().any(|line| line.contains("WARN") && line.contains(&malformed) && line.contains("ALOW")),
        "{log}"
    );
    let health = client.admin("/admin/health").await?.json()?;
    ensure!(health["gate"] == if closed { "closed" } else { "permissive" }, "{health}");
    let open = client.admin_with("GET", "/admin/health", &[]).await?.expect(200)?.json()?;
    ensure!(open.get("gate").is_none(), "{open}");

    let ann = of(&client, "A/ann");
    ann.subscribed(&Subscribe::load_balance("c", "t").ack_timeout_ms(600_000)).await?;
    ann.published("t", [event(1)]).await?;
    let held = ann.receive("c", 1, SOON).await?;
    of(&client, "Q/kim").subscribed(&Subscribe::load_balance("first", "t")).await?;
    for row in rows(&held[0].delivery_id) {
        let before = verdicts(&client).await?;
        let body = if row.body.is_null() { String::new() } else { row.body.to_string() };
        let caller = if row.who.is_empty() { client.clone() } else { of(&client, row.who) };
        let kind = if row.target.contains("publish") { EVENT } else { "application/json" };
        let reply = caller.call(row.method, row.target, &[("content-type", kind)], body, SOON).await?;
        let what = format!("{} where closed is {closed}: {reply}", row.what);
        if closed {
            ensure!((reply.status, reply.code().as_str()) == row.closed, "{what}");
        } else {
            ensure!(reply.status == row.permissive, "{what}");
        }
        ensure!((reply.status == 429) == reply.header("retry-after").is_some(), "{what}");
        let after = verdicts(&client).await?;
        let verdict = if closed { row.verdicts.0 } else { row.verdicts.1 };
        let count = |of: &BTreeMap<_, _>| {
            of.get(&(row.filter.to_owned(), verdict.to_owned())).copied().unwrap_or_default()
        };
        ensure!(
            count(&after) == count(&before) + 1,
            "{what}: {} {verdict} went from {} to {}",
            row.filter,
            count(&before),
            count(&after)
        );
    }
    let passed = verdicts(&client).await?;
    for filter in ["token", "acl"] {
        let allowed = passed.get(&(filter.to_owned(), "allow".to_owned()));
        ensure!(allowed.is_some_and(|count| *count > 0), "{passed:?}");
    }
    // Every objection is in the log's audit, with the word for how it ended and without any token.
    let log = server.log();
    let outcome = if closed { "denied" } else { "failed_open" };
    for filter in ["token", "acl", "owner"] {
        let said = log.lines().any(|line| {
            line.contains("audit") && line.contains(outcome) && line.contains(&format!("\"{filter}\""))
        });
        ensure!(said, "no {outcome} of {filter}:\n{log}");
    }
    ensure!(!log.contains("token-of-"), "a token is in the log");
    Ok(())
}

#[tokio::test]
async fn each_cause_ends_as_the_table_says_in_a_closed_gate() -> Result<()> {
    // covers: U109 U111  proves: SG-1 SG-3 SG-4 SG-6
    decide(true).await
}

#[tokio::test]
async fn each_cause_ends_as_the_table_says_in_a_permissive_gate() -> Result<()> {
    // covers: U109 U111  proves: SG-2 SG-3 SG-4 SG-6 CF-2
    decide(false).await
}

#[tokio::test]
async fn a_gate_that_has_nothing_to_check_against_or_cannot_load_does_not_start() -> Result<()> {
    // covers: U10 U96  proves: SG-2 SG-3
    let access = access()?;
    let missing = access.path("none-such.toml").display().to_string();
    let half = access.write(
        "half.toml",
        "[[token]]\nname = \"a\"\nvalue = \"${TOKEN_OF_SOMEBODY}\"\ntenant = \"A\"\nprincipal = \"a\"\n",
    )?;
    let torn = access.write("torn.toml", "[[rule]\nprincipal = ")?;
    let empty = access.write("empty.toml", "")?;
    let path = |path: &std::path::Path| path.display().to_string();
    let token = "eventmesh.security.gate.token.file";
    let acl = "eventmesh.security.gate.acl.file";
    let cases = [
        ("nothing to check against", vec![], 64, vec!["failClosed".to_owned()]),
        ("a blank value", vec![(token, String::new())], 64, vec![token.to_owned()]),
        ("only blanks", vec![(acl, "  ".to_owned())], 64, vec![acl.to_owned()]),
        ("a placeholder", vec![(token, "${TOKEN_FILE}".to_owned())], 64, vec![token.to_owned()]),
        ("a token file that is not there", vec![(token, missing.clone())], 1, vec![missing]),
        ("a placeholder in it", vec![(token, path(&half))], 1, vec![path(&half)]),
        ("nothing in it", vec![(token, path(&empty))], 1, vec![path(&empty)]),
        ("rules that are not TOML", vec![(acl, path(&torn))], 1, vec![path(&torn)]),
    ];
    for (what, keys, code, parts) in cases {
        // A filter that is configured and cannot load stops the start in both modes.
        for closed in [true, false] {
            if keys.is_empty() && !closed {
                continue;
            }
            let home = tempfile::tempdir()?;
            let mut arguments = vec![
                "standalone".to_owned(),
                format!("-Deventmesh.data.dir={}", home.path().join("data").display()),
                format!("-Deventmesh.http.port={}", free_port()),
                format!("-Deventmesh.admin.port={}", free_port()),
                format!("-Deventmesh.security.gate.failClosed={closed}"),
            ];
            arguments.extend(keys.iter().map(|(key, value)| format!("-D{key}={value}")));
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let output = run_to_end(&arguments, &[], home.path(), SOON).await.context(what)?;
            ensure!(output.code == Some(code), "{what} ended with {:?}:\n{}", output.code, output.text);
            for part in &parts {
                ensure!(output.text.contains(part), "{what} does not name {part}:\n{}", output.text);
            }
            ensure!(!output.text.contains("TOKEN_OF_SOMEBODY"), "{what} shows a token:\n{}", output.text);
        }
    }
    Ok(())
}

/// What bob of the same tenant, or cat of another one, is told of ann's client `c` and her deliveries: nothing.
async fn is_not_there(server: &Server, stranger: &Client, name: &str, held: &[Delivery]) -> Result<()> {
    stranger.poll_reply("c", 10, 0).await?.expect_error(404, "unknown_client")?;
    let mut refused = stream(server, "c", name, 404).await?;
    ensure!(refused.read_until("unknown_client", 1, SOON).await.contains("unknown_client"), "{name}");
    let invented = "made-up-id";
    for (path, more) in [
        ("ack", json!({})),
        ("nack", json!({})),
        ("extend", json!({"extendMs": 1_000})),
        ("reject", json!({})),
    ] {
        let path = format!("/events/{path}");
        let mut bodies = Vec::new();
        for id in [held[0].delivery_id.as_str(), invented] {
            let mut body = more.clone();
            body["deliveryId"] = id.into();
            bodies.push(stranger.post(&path, &body).await?.expect_error(404, "unknown_delivery")?.body);
        }
        ensure!(bodies[0] == bodies[1], "a real id is answered like an invented one");
        let mut body = more;
        body["deliveryId"] = json!([held[0].delivery_id, invented, held[1].delivery_id]);
        let results = stranger.post(&path, &body).await?.expect(200)?.json()?;
        let results = results["results"].as_array().context("results")?;
        ensure!(results.len() == 3, "{results:?}");
        ensure!(results.iter().all(|result| result["error"] == "unknown_delivery"), "{results:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_a_principal_made_is_not_there_for_anybody_else() -> Result<()> {
    // covers: U101
    let access = access()?;
    let mut server = access.guard(Server::new()?, true);
    let client = server.start().await?;
    let (ann, bob, cat) = (of(&client, "A/ann"), of(&client, "A/bob"), of(&client, "B/cat"));
    let subscribe = Subscribe::load_balance("c", "t").ack_timeout_ms(600_000);
    ann.subscribed(&subscribe).await?;
    ann.published("t", [event(1), event(2), event(3)]).await?;
    let held = ann.receive("c", 2, SOON).await?;

    bob.subscribe(&subscribe).await?.expect_error(409, "client_conflict")?;
    bob.subscribe(&Subscribe::broadcast("c", "other")).await?.expect_error(409, "client_conflict")?;
    is_not_there(&server, &bob, "A/bob", &held).await?;
    bob.unsubscribe("c", "t").await?.expect_error(404, "unknown_client")?;
    // In another tenant the id is free, and what has it there is something else.
    is_not_there(&server, &cat, "B/cat", &held).await?;
    cat.subscribed(&Subscribe::load_balance("c", "t").from("earliest")).await?;
    let of_cat = cat.receive("c", 3, SOON).await?;
    for delivery in &of_cat {
        ann.ack(&delivery.delivery_id).await?.expect_error(404, "unknown_delivery")?;
    }
    cat.acked(&of_cat).await?;
    cat.unsubscribe("c", "t").await?.expect(200)?;
    // Bob's own client in ann's group: he gets what is left of it, and neither touches what the other holds.
    bob.subscribed(&Subscribe::load_balance("d", "t")).await?;
    let of_bob = bob.receive("d", 1, SOON).await?;
    ann.ack(&of_bob[0].delivery_id).await?.expect_error(404, "unknown_delivery")?;
    bob.acked(&of_bob).await?;

    // It was all still hers, and is after a kill.
    server.kill9();
    let client = server.start().await?;
    let (ann, bob) = (of(&client, "A/ann"), of(&client, "A/bob"));
    bob.subscribe(&subscribe).await?.expect_error(409, "client_conflict")?;
    is_not_there(&server, &bob, "A/bob", &held).await?;
    ann.acked(&held).await?;
    // With the last subscription the id is free.
    ann.unsubscribe("c", "t").await?.expect(200)?;
    bob.subscribed(&Subscribe::load_balance("c", "u")).await?;
    ann.poll_reply("c", 1, 0).await?.expect_error(404, "unknown_client")?;
    ann.subscribe(&Subscribe::load_balance("c", "u")).await?.expect_error(409, "client_conflict")?;
    Ok(())
}

#[tokio::test]
async fn what_was_made_without_a_gate_goes_to_the_first_who_may_have_it() -> Result<()> {
    let access = access()?;
    let mut server = Server::new()?.key("eventmesh.tenant.default", "A");
    let client = server.start().await?;
    for name in ["polled", "streamed", "again", "ended"] {
        client.subscribed(&Subscribe::load_balance(name, name)).await?;
        client.published(name, [event(1)]).await?;
    }
    let held = client.receive("polled", 1, SOON).await?;
    server.kill9();

    let mut server = access.guard(server, true);
    let client = server.start().await?;
    let (ann, bob, eve) = (of(&client, "A/ann"), of(&client, "A/bob"), of(&client, "A/eve"));
    // Who has no right to it does not become its owner, and ends nothing.
    for name in ["polled", "streamed", "again", "ended"] {
        eve.poll_reply(name, 1, 0).await?.expect_error(403, "forbidden")?;
        eve.unsubscribe(name, name).await?.expect_error(403, "forbidden").context("nobody's is not eve's")?;
    }
    eve.ack(&held[0].delivery_id).await?.expect_error(403, "forbidden")?;

    ann.poll("polled", 1, 0).await?;
    let mut open = stream(&server, "streamed", "A/ann", 200).await?;
    ensure!(open.read_until("\ndata: ", 1, SOON).await.contains("\ndata: "), "it is streamed to ann");
    ann.subscribed(&Subscribe::load_balance("again", "again")).await?;
    for name in ["polled", "streamed", "again"] {
        bob.poll_reply(name, 1, 0).await?.expect_error(404, "unknown_client")?;
        let reply = bob.subscribe(&Subscribe::load_balance(name, name)).await?;
        reply.expect_error(409, "client_conflict")?;
        bob.unsubscribe(name, name).await?.expect_error(404, "unknown_client")?;
    }
    // What nobody has taken yet may be ended by whoever may use it.
    let removed = bob.unsubscribe("ended", "ended").await?.expect(200)?.json()?;
    ensure!(removed["removed"] == true, "{removed}");
    drop(open);
    server.kill9();

    let client = server.start().await?;
    let (ann, bob) = (of(&client, "A/ann"), of(&client, "A/bob"));
    for name in ["polled", "streamed", "again"] {
        bob.poll_reply(name, 1, 0).await?.expect_error(404, "unknown_client")?;
        ann.poll(name, 1, 0).await?;
    }
    // What was handed out to nobody in particular can be finished by whoever has its id and the right.
    ann.ack(&held[0].delivery_id).await?.expect(200)?;
    Ok(())
}

#[tokio::test]
async fn a_right_that_is_withdrawn_stops_what_is_open_and_one_that_is_given_lets_it_go_on() -> Result<()> {
    // covers: U102
    let access = access()?;
    let mut server = access.guard(Server::new()?, true);
    let client = server.start().await?;
    let (ann, bob) = (of(&client, "A/ann"), of(&client, "A/bob"));
    for name in ["s", "p"] {
        ann.subscribed(&Subscribe::load_balance(name, name).ack_timeout_ms(600_000)).await?;
    }
    let mut open = stream(&server, "s", "A/ann", 200).await?;
    bob.published("s", [event(1)]).await?;
    ensure!(open.read_until("\"id\":\"1\"", 1, SOON).await.contains("\"id\":\"1\""), "the stream works");
    let held = {
        bob.published("p", [event(1)]).await?;
        ann.receive("p", 1, SOON).await?
    };
    let impatient = waiting_poll(&client, &ann, "p", 6_000).await?;
    let patient = waiting_poll(&client, &ann, "p", 60_000).await?;

    access.rules(&[("ALLOW", "bob", "ANY", "*")])?;
    let withdrawn = until("the right to be withdrawn", SOON, async || {
        ann.poll_reply("p", 1, 0).await.ok().filter(|reply| reply.status == 403)
    });
    withdrawn.await?;
    bob.published("s", [event(2), event(3)]).await?;
    bob.published("p", [event(2)]).await?;
    let late = open.read_until("\ndata: ", 1, Duration::from_secs(2)).await;
    ensure!(!late.contains("\ndata: "), "handed out without a right: {late}");
    ann.ack(&held[0].delivery_id).await?.expect_error(403, "forbidden")?;
    drop(stream(&server, "s", "A/ann", 403).await.context("a new stream is refused")?);
    // It waited before and after: it is answered, with nothing.
    let answered = answer_of(impatient).await?;
    ensure!(answered.status == 200 && answered.body == "[]\n", "{answered}");

    // A file that cannot be used changes nothing, and is said to be one.
    access.write("acl.toml", "[[rule]\n")?;
    let told = until("the ERROR about the rules", SOON, async || {
        server.log().lines().any(|line| line.contains("ERROR") && line.contains("acl.toml")).then_some(())
    });
    told.await?;
    bob.publish("s", &event(4)).await?.expect(202).context("the old rules hold")?;
    ann.poll_reply("p", 1, 0).await?.expect_error(403, "forbidden").context("the old rules hold")?;

    access.rules(&[("ALLOW", "bob", "ANY", "*"), ("ALLOW", "ann", "SUBSCRIBE", "*")])?;
    // What was held back comes without a new event.
    let got = open.read_until("\ndata: ", 3, SOON).await;
    ensure!(got.matches("\ndata: ").count() == 3, "the open stream goes on: {got}");
    let got: Vec<Delivery> = answer_of(patient).await?.read()?;
    ensure!(got.iter().any(|delivery| delivery.id() == "2"), "{got:?}");
    ann.acked(&held).await
}

#[tokio::test]
async fn a_token_that_is_taken_away_ends_the_streams_that_were_opened_with_it() -> Result<()> {
    // covers: U102
    let access = access()?;
    let mut server = access.guard(Server::new()?, true);
    let client = server.start().await?;
    let (ann, bob) = (of(&client, "A/ann"), of(&client, "A/bob"));
    for name in ["by-token", "by-ticket", "polls"] {
        ann.subscribed(&Subscribe::load_balance(name, name)).await?;
    }
    bob.subscribed(&Subscribe::load_balance("bobs", "bobs")).await?;
    let ticket = async || -> Result<String> {
        let ticket = ann.call("POST", "/events/ticket", &[], "", SOON).await?.expect(200)?.json()?;
        Ok(ticket["ticket"].as_str().context("a ticket")?.to_owned())
    };
    let with_ticket = async |ticket: &str| -> Result<(Raw, String)> {
        let mut raw = Raw::connect(server.traffic_port()).await?;
        let target = format!("/events/stream?clientId=by-ticket&ticket={ticket}");
        raw.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
        let head = raw.read_head(SOON).await;
        Ok((raw, head))
    };
    let mut by_token = stream(&server, "by-token", "A/ann", 200).await?;
    let (mut by_ticket, head) = with_ticket(&ticket().await?).await?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut of_bob = stream(&server, "bobs", "A/bob", 200).await?;
    let unused = ticket().await?;
    let waiting = waiting_poll(&client, &ann, "polls", 60_000).await?;

    access.tokens(&["A/bob"])?;
    for (what, raw) in [("the token", &mut by_token), ("a ticket for it", &mut by_ticket)] {
        let rest = raw.read_until("\r\n0\r\n\r\n", 1, SOON).await;
        ensure!(
            rest.ends_with(": the credential has ended\n\n\r\n0\r\n\r\n"),
            "the stream by {what}: {rest:?}"
        );
    }
    ann.publish("t", &event(1)).await?.expect_error(401, "unauthenticated")?;
    ann.poll_reply("polls", 1, 0).await?.expect_error(401, "unauthenticated")?;
    let (_, head) = with_ticket(&unused).await?;
    ensure!(head.starts_with("HTTP/1.1 401"), "a ticket outlives what it stands for: {head}");
    bob.published("polls", [event(1)]).await?;
    bob.published("bobs", [event(2)]).await?;
    let answered = answer_of(waiting).await?;
    ensure!(answered.status == 200 && answered.body == "[]\n", "handed out after the end: {answered}");
    let got = of_bob.read_until("\ndata: ", 1, SOON).await;
    ensure!(got.contains("\ndata: "), "the others go on: {got}");
    Ok(())
}

#[tokio::test]
async fn a_right_to_one_topic_opens_no_other_by_any_way_round() -> Result<()> {
    // covers: U101
    let access = access()?;
    access.rules(&[("ALLOW", "ann", "ANY", "a"), ("ALLOW", "cat", "ANY", "*")])?;
    let mut server = access.guard(Server::new()?, true);
    let client = server.start().await?;
    let (ann, cat) = (of(&client, "A/ann"), of(&client, "B/cat"));
    ann.subscribed(&Subscribe::load_balance("c", "a")).await?;

    // What an event says of itself routes nothing and names nobody.
    let mut sly = event("sly");
    for (name, value) in [("topic", "b"), ("emtopic", "b"), ("emtenantid", "B"), ("emprincipal", "cat")] {
        sly[name] = value.into();
    }
    ann.publish("a", &sly).await?.expect(202)?;
    let got = ann.receive("c", 1, SOON).await?;
    ensure!(got[0].topic == "a" && got[0].event()["emtenantid"] == "A", "{}", got[0].event());
    // Nor do headers, for one event in binary mode.
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "binary"),
        ("ce-source", "/t"),
        ("ce-type", "t"),
        ("ce-topic", "b"),
        ("x-topic", "b"),
        ("x-tenant-id", "B"),
        ("content-type", "text/plain"),
    ];
    ann.call("POST", "/events/publish?topic=a", &headers, "x", SOON).await?.expect(202)?;
    ensure!(ann.receive("c", 1, SOON).await?[0].topic == "a");

    for topic in ["b", "%62", "A", "a.x", "a%2Ex", "secret", "a-"] {
        for route in ["publish", "publish-batch"] {
            let path = format!("/events/{route}?topic={topic}");
            let body = if route == "publish" {
                event(1).to_string()
            } else {
                json!([event(1), event(2)]).to_string()
            };
            let reply = ann.call("POST", &path, &[("content-type", "application/json")], body, SOON).await?;
            reply.expect_error(403, "forbidden").with_context(|| path)?;
        }
    }
    for (path, status) in [
        ("/events/publish?topic=a&topic=b", 400),
        ("/events/publish?topic=b&topic=a", 400),
        ("/events/publish?topic=a%00b", 400),
        ("/events/publish?topic=a_DLQ", 403),
        ("/events/publish?topic=__a", 400),
        ("/events/publish/?topic=a", 404),
        ("/events//publish?topic=a", 404),
        ("/Events/publish?topic=a", 404),
        ("/events/publish/../publish?topic=a", 404),
    ] {
        let reply = ann.call("POST", path, &[("content-type", EVENT)], event(1).to_string(), SOON).await?;
        ensure!(reply.status == status, "{path}: {reply}");
    }
    for body in [
        json!({"clientId": "c", "topic": "b", "mode": "LOAD_BALANCE"}),
        json!({"clientId": "x", "topic": "b", "mode": "BROADCAST"}),
        json!({"clientId": "x", "topic": "b", "mode": "MULTICAST", "filters": []}),
    ] {
        ann.post("/events/subscribe", &body)
            .await?
            .expect_error(403, "forbidden")
            .with_context(|| body.to_string())?;
    }
    // What a body says of tenant and principal is not who calls.
    let body =
        json!({"clientId": "c", "topic": "a", "mode": "LOAD_BALANCE", "tenant": "B", "principal": "cat"});
    ann.post("/events/subscribe", &body).await?;
    cat.poll_reply("c", 1, 0).await?.expect_error(404, "unknown_client")?;

    let topics = client.admin("/admin/topics").await?.json()?;
    let names: Vec<&str> =
        topics.as_array().context("topics")?.iter().filter_map(|topic| topic["topic"].as_str()).collect();
    ensure!(names == ["a"], "a denied request made one of {names:?}");
    Ok(())
}
