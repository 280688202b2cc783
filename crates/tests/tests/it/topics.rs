//! Topics with settings of their own, through the binary: what one loses the other keeps, and a restart changes
//! nothing.

use std::time::Duration;

use anyhow::{Result, ensure};
use mesh_tests::{Client, Server, Subscribe, event, pause, until};
use serde_json::{Value, json};

/// Retention looks every 30 s.
const RETENTION: Duration = Duration::from_secs(90);

async fn make(client: &Client, body: Value) -> Result<Value> {
    let reply = client.administer("POST", "/admin/topics", &body).await?;
    ensure!(reply.status == 200 || reply.status == 201, "{body}: {reply}");
    reply.json()
}

async fn settings(client: &Client, topic: &str) -> Result<(Value, Value)> {
    let topic = client.admin(&format!("/admin/topics/{topic}")).await?.expect(200)?.json()?;
    Ok((topic["settings"].clone(), topic["own"].clone()))
}

/// An event of about 64 KiB.
fn large(n: u64) -> Value {
    let mut event = event(n);
    event["data"] = json!({"n": n, "filler": "x".repeat(64 << 10)});
    event
}

#[tokio::test]
async fn of_two_topics_only_the_one_with_a_backlog_limit_drops_and_says_so_also_after_a_kill() -> Result<()> {
    let mut server = Server::new()?.key("eventmesh.storage.partitions", 1);
    let client = server.start().await?;
    make(&client, json!({"topic": "limited", "backlog": {"maxBytes": 1 << 20}})).await?;
    make(&client, json!({"topic": "free"})).await?;
    let before = settings(&client, "limited").await?;
    ensure!(
        before.1 == json!(["backlog.maxBytes"]) && before.0["backlog"]["maxBytes"] == 1 << 20,
        "{before:?}"
    );
    server.kill9();
    let client = server.start().await?;
    assert_eq!(settings(&client, "limited").await?, before, "a kill keeps them");
    ensure!(settings(&client, "free").await?.1 == json!([]));
    for topic in ["limited", "free"] {
        client.subscribed(&Subscribe::load_balance(topic, topic)).await?;
        client.published(topic, (0..32).map(large)).await?;
    }
    let start = until("the backlog limit", RETENTION, async || {
        let topic = client.admin("/admin/topics/limited").await.ok()?.json().ok()?;
        let start: u64 = topic["partitions"][0]["start"].as_str()?.parse().ok()?;
        (start > 0).then_some(start)
    })
    .await?;
    ensure!((16..32).contains(&start), "1 MiB of 2 MiB should be left; it starts at {start}");
    // The group goes on behind the gap; the other topic has everything.
    let left = usize::try_from(32 - start)?;
    let got = client.receive("limited", left, Duration::from_secs(20)).await?;
    ensure!(got.first().map(|delivery| delivery.offset.clone()) == Some(start.to_string()), "{start}");
    assert_eq!(client.receive("free", 32, Duration::from_secs(20)).await?.len(), 32);
    let free = client.admin("/admin/topics/free").await?.json()?;
    assert_eq!(free["partitions"][0]["start"], "0");
    ensure!(client.metric("eventmesh_dropped_total").await? >= start as f64, "each is counted");
    let warned = server.log();
    let line = warned.lines().find(|line| line.contains("backlog limits dropped"));
    ensure!(line.is_some_and(|line| line.contains("WARN") && line.contains("limited")), "{line:?}");
    let half: Vec<&str> = warned.lines().filter(|line| line.contains("half as old or as large")).collect();
    ensure!(half.len() == 1 && half[0].contains("limited"), "{half:?}");
    Ok(())
}

#[tokio::test]
async fn a_topic_that_is_deleted_while_retention_looks_is_no_loss() -> Result<()> {
    let mut server = Server::new()?.key("eventmesh.storage.retention.checkInterval", "100ms");
    let client = server.start().await?;
    for round in 0..5 {
        for topic in (0..20).map(|number| format!("t{number}")) {
            client.subscribed(&Subscribe::load_balance(&topic, &topic)).await?;
            client.publish_batch(&topic, &(0..20).map(event).collect::<Vec<_>>()).await?.expect(202)?;
        }
        pause(Duration::from_millis(60 * (round + 1))).await;
        for topic in (0..20).map(|number| format!("/admin/topics/t{number}?force=true")) {
            client.administer("DELETE", &topic, &json!({})).await?.expect(200)?;
        }
    }
    // One more look of retention.
    pause(Duration::from_millis(300)).await;
    ensure!(client.metric("eventmesh_dropped_total").await.unwrap_or(0.0) == 0.0, "nothing was lost");
    let log = server.log();
    let told: Vec<&str> =
        log.lines().filter(|line| line.contains("backlog") || line.contains("retention failed")).collect();
    ensure!(told.is_empty(), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn a_topic_has_its_own_deduplication_window_whatever_the_default_is_also_after_a_restart() -> Result<()>
{
    for (default, with, without) in [("0", json!(600_000), Value::Null), ("10m", Value::Null, json!(0))] {
        let mut server = Server::new()?.key("eventmesh.publish.dedup.window", default);
        let mut client = server.start().await?;
        make(&client, json!({"topic": "with", "dedupWindowMs": with})).await?;
        make(&client, json!({"topic": "without", "dedupWindowMs": without})).await?;
        let mut stored = Vec::new();
        for start in 0..3 {
            for (topic, duplicate) in [("with", start > 0), ("without", false)] {
                let answer = client.publish(topic, &event(1)).await?.expect(202)?.json()?;
                let is_duplicate = answer["duplicate"] == true;
                ensure!(is_duplicate == duplicate, "default {default}, start {start}, {topic}: {answer}");
                if topic == "with" {
                    stored.push((answer["partition"].clone(), answer["offset"].clone()));
                }
            }
            if start == 0 {
                server.kill9();
            } else {
                server.stop().await?;
            }
            client = server.start().await?;
        }
        ensure!(stored.iter().all(|place| *place == stored[0]), "{stored:?}");
        // A window given to a topic that had none knows what was stored before.
        make(&client, json!({"topic": "without", "dedupWindowMs": 600_000})).await?;
        let answer = client.publish("without", &event(1)).await?.expect(202)?.json()?;
        ensure!(answer["duplicate"] == true, "{answer}");
        // Made again it has the configuration's.
        client.administer("DELETE", "/admin/topics/with", &json!({})).await?.expect(200)?;
        let again = make(&client, json!({"topic": "with"})).await?;
        let expected = if default == "0" { 0 } else { 600_000 };
        ensure!(again["settings"]["dedupWindowMs"] == expected && again["own"] == json!([]), "{again}");
    }
    Ok(())
}
