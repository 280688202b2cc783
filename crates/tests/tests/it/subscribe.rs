//! Subscribing: modes, filters, where a group starts, who holds a key.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use mesh_tests::{Client, Server, Subscribe, event, keyed, pause, until};
use serde_json::{Value, json};

pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) async fn started() -> Result<(Server, Client)> {
    let mut server = Server::new()?.key("eventmesh.storage.partitions", 1);
    let client = server.start().await?;
    Ok((server, client))
}

async fn ids(client: &Client, name: &str, count: usize) -> Result<Vec<String>> {
    let got = client.receive(name, count, SOON).await.with_context(|| format!("receiving as {name}"))?;
    client.acked(&got).await?;
    Ok(got.iter().map(|delivery| delivery.id()).collect())
}

pub(crate) async fn nothing_for(client: &Client, name: &str) -> Result<()> {
    let got = client.poll(name, 10, 300).await?;
    ensure!(got.is_empty(), "{name} got {:?}", got.iter().map(|delivery| delivery.id()).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn members_of_a_group_share_and_broadcast_clients_each_get_everything() -> Result<()> {
    let (_server, client) = started().await?;
    for name in ["l1", "l2"] {
        client.subscribed(&Subscribe::load_balance(name, "t")).await?;
    }
    for subscribe in
        [Subscribe::broadcast("b1", "t"), Subscribe::broadcast("b2", "t"), Subscribe::multicast("m", "t")]
    {
        client.subscribed(&subscribe).await?;
    }
    client.published("t", (0..20).map(event)).await?;
    let all: BTreeSet<String> = (0..20).map(|number| number.to_string()).collect();
    for name in ["b1", "b2", "m"] {
        assert_eq!(ids(&client, name, 20).await?.into_iter().collect::<BTreeSet<_>>(), all, "{name}");
    }
    let mut shared = BTreeSet::new();
    let mut both = [0, 0];
    while shared.len() < 20 {
        for (count, name) in both.iter_mut().zip(["l1", "l2"]) {
            let got = client.poll(name, 3, 500).await?;
            client.acked(&got).await?;
            *count += got.len();
            for delivery in got {
                ensure!(shared.insert(delivery.id()), "{} came to both members", delivery.id());
            }
        }
    }
    ensure!(both.iter().all(|count| *count > 0), "one member got nothing: {both:?}");
    assert_eq!(shared, all);
    Ok(())
}

#[tokio::test]
async fn a_silent_member_holds_nothing_back() -> Result<()> {
    // covers: U36
    let (_server, client) = started().await?;
    for name in ["silent", "busy"] {
        client
            .subscribed(&Subscribe::load_balance(name, "t").ack_timeout_ms(1_000).backoff_ms(50, 50))
            .await?;
    }
    // It polled once and went away with what it got.
    client.published("t", [event("held")]).await?;
    client.receive("silent", 1, SOON).await?;
    client.published("t", (0..10).map(event)).await?;
    let mut got = BTreeSet::new();
    until("everything to come to the member that is there", SOON, async || {
        let deliveries = client.poll("busy", 100, 200).await.ok()?;
        client.acked(&deliveries).await.ok()?;
        got.extend(deliveries.iter().map(|delivery| delivery.id()));
        (got.len() == 11).then_some(())
    })
    .await?;
    assert_eq!(client.dead_letters("t").await?, Vec::<Value>::new());
    assert_eq!(client.pending().await?, 0);
    Ok(())
}

#[tokio::test]
async fn the_events_of_a_key_are_with_one_member_at_a_time_and_in_order() -> Result<()> {
    // covers: U37
    let (_server, client) = started().await?;
    let member =
        |name| Subscribe::load_balance(name, "t").ack_timeout_ms(20_000).backoff_ms(50, 50).max_attempts(0);
    for name in ["a", "b"] {
        client.subscribed(&member(name)).await?;
    }
    client.published("t", (0..5).map(|number| keyed(number, "k"))).await?;
    // One member takes the head alone; nobody else gets anything of the key while it has it.
    let first = client.receive("a", 1, SOON).await?;
    assert_eq!(first[0].id(), "0");
    client.subscribed(&member("late")).await?;
    for name in ["b", "late"] {
        nothing_for(&client, name).await?;
    }
    // It leaves: the key goes on elsewhere, from the head, in order.
    client.unsubscribe("a", "t").await?.expect(200)?;
    let mut order = Vec::new();
    let holder = until("the key to move", SOON, async || {
        for name in ["b", "late"] {
            let got = client.poll(name, 2, 100).await.ok()?;
            if !got.is_empty() {
                return Some((name, got));
            }
        }
        None
    });
    let (holder, got) = holder.await?;
    ensure!(got[0].id() == "0" && got[0].attempt == 2, "the head does not come first: {got:?}");
    let other = if holder == "b" { "late" } else { "b" };
    nothing_for(&client, other).await?;
    order.extend(got.iter().map(|delivery| delivery.id()));
    client.acked(&got).await?;
    while order.len() < 5 {
        for name in ["late", "b"] {
            let got = client.poll(name, 1, 100).await?;
            order.extend(got.iter().map(|delivery| delivery.id()));
            client.acked(&got).await?;
        }
    }
    assert_eq!(order, ["0", "1", "2", "3", "4"]);
    Ok(())
}

#[tokio::test]
async fn filters_match_what_is_there_and_what_can_never_match_is_refused() -> Result<()> {
    // covers: U38
    let (_server, client) = started().await?;
    let filtered = |name: &str, filters: Value| Subscribe::multicast(name, "t").set("filters", filters);
    client.subscribed(&filtered("exact", json!([{"exact": {"type": "wanted"}}]))).await?;
    client.subscribed(&filtered("prefix", json!([{"prefix": {"e1": "a"}}]))).await?;
    client.subscribed(&filtered("not", json!([{"not": {"exact": {"subject": "s"}}}]))).await?;
    client
        .subscribed(&filtered(
            "both",
            json!([{"any": [{"suffix": {"e1": "z"}}, {"exact": {"subject": "s"}}]}]),
        ))
        .await?;
    for broken in [
        json!([{"exact": {"subject": ""}}]),
        json!([{"exact": {"e1": ""}}]),
        json!([{"like": {"a": "b"}}]),
        json!("x"),
        json!([{}]),
    ] {
        let reply = client.subscribe(&filtered("broken", broken.clone())).await?;
        ensure!(reply.status == 400 && reply.code() == "invalid_argument", "{broken}: {reply}");
    }
    let with = |id: &str, members: Value| {
        let mut event = event(id);
        for (name, value) in members.as_object().into_iter().flatten() {
            event[name] = value.clone();
        }
        event
    };
    let events = [
        with("plain", json!({})),
        with("wanted", json!({"type": "wanted"})),
        with("subject", json!({"subject": "s"})),
        with("az", json!({"e1": "az"})),
    ];
    client.published("t", events).await?;
    for (name, wanted) in [
        ("exact", &["wanted"][..]),
        ("prefix", &["az"]),
        ("not", &["plain", "wanted", "az"]),
        ("both", &["subject", "az"]),
    ] {
        assert_eq!(ids(&client, name, wanted.len()).await?, wanted, "{name}");
        nothing_for(&client, name).await?;
    }
    assert_eq!(client.pending().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_group_starts_where_it_asked_and_misses_nothing_after_its_answer() -> Result<()> {
    // covers: U39
    let (_server, client) = started().await?;
    client.published("t", (0..3).map(event)).await?;
    pause(Duration::from_millis(50)).await;
    let mut stamp = event("stamp");
    stamp["type"] = json!("stamp");
    let second = client.publish("t", &stamp).await?.expect(202)?.json()?;
    let offset = second["offset"].as_str().map_or_else(|| second["offset"].to_string(), str::to_owned);
    client.published("t", [event(4)]).await?;
    let start = |name: &str, from: Value| Subscribe::broadcast(name, "t").from(from);
    client.subscribed(&Subscribe::broadcast("default", "t")).await?;
    client.subscribed(&start("latest", json!("latest"))).await?;
    client.subscribed(&start("earliest", json!("earliest"))).await?;
    client.subscribed(&start("offset", json!(offset))).await?;
    client.subscribed(&start("offsets", json!({"offsets": {"0": offset}}))).await?;
    client.subscribed(&start("long-ago", json!("2020-01-01T00:00:00Z"))).await?;
    client.subscribed(&start("one-day", json!("2199-01-01T00:00:00Z"))).await?;
    for wrong in [
        json!("soon"),
        json!(1.5),
        json!({"offsets": {"7": "0"}}),
        json!({"offsets": {"0": "x"}}),
        json!("-1"),
    ] {
        let reply = client.subscribe(&start("wrong", wrong.clone())).await?;
        ensure!(reply.status == 400 && reply.code() == "invalid_argument", "from {wrong}: {reply}");
    }
    client.published("t", [event(5)]).await?;
    for (name, wanted) in [
        ("default", &["5"][..]),
        ("latest", &["5"]),
        ("earliest", &["0", "1", "2", "stamp", "4", "5"]),
        ("offset", &["stamp", "4", "5"]),
        ("offsets", &["stamp", "4", "5"]),
        ("long-ago", &["0", "1", "2", "stamp", "4", "5"]),
        ("one-day", &["5"]),
    ] {
        assert_eq!(ids(&client, name, wanted.len()).await?, wanted, "{name}");
        nothing_for(&client, name).await?;
    }
    // For a group that exists `from` is ignored.
    client.subscribed(&start("latest", json!("earliest"))).await?;
    nothing_for(&client, "latest").await
}

#[tokio::test]
async fn expired_events_do_not_hold_up_the_fresh_one_behind_them() -> Result<()> {
    // covers: U41
    let (_server, client) = started().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    let mut short: Vec<Value> = (0..100).map(event).collect();
    short.iter_mut().for_each(|event| event["emttl"] = json!("1000"));
    client.publish_batch("t", &short).await?.expect(202)?;
    pause(Duration::from_millis(1_500)).await;
    client.published("t", [event("fresh")]).await?;
    let got = client.poll("c", 100, 1_000).await?;
    client.acked(&got).await?;
    assert_eq!(got.iter().map(|delivery| delivery.id()).collect::<Vec<_>>(), ["fresh"]);
    assert_eq!(client.pending().await?, 0);
    nothing_for(&client, "c").await
}
