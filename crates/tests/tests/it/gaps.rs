//! What a group is told of events that it does not get: ranges that are gone, and what its filters leave out.

use std::time::Duration;

use anyhow::{Result, ensure};
use mesh_tests::{Client, Server, Subscribe, event, until};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);

async fn group(client: &Client) -> Result<Value> {
    let mut groups = client.admin("/admin/groups?topic=t").await?.expect(200)?.json()?;
    Ok(groups[0].take())
}

#[tokio::test]
async fn what_was_dropped_is_told_with_the_next_delivery_and_to_operators() -> Result<()> {
    let mut server = Server::new()?
        .key("eventmesh.storage.partitions", 1)
        .key("eventmesh.storage.backlog.maxBytes", "1MiB")
        .key("eventmesh.storage.retention.checkInterval", "100ms");
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    ensure!(group(&client).await?["partitions"][0].get("gap").is_none(), "nothing was skipped yet");
    let mut large = event("large");
    large["data"] = "x".repeat(256 << 10).into();
    client.published("t", vec![large; 12]).await?;
    let start = until("the backlog to be cut", SOON, async || {
        let topic = client.admin("/admin/topics/t").await.ok()?.json().ok()?;
        topic["partitions"][0]["start"].as_str().filter(|start| *start != "0").map(str::to_owned)
    });
    start.await?;
    // It may be cut once more until nobody looks.
    let told = until("a delivery", SOON, async || client.poll("c", 1, 1_000).await.ok()?.pop()).await?;
    let expected = json!({"from": "0", "to": told.offset, "reason": "dropped_backlog"});
    assert_eq!(told.gap, Some(expected.clone()), "{told:?}");
    assert_eq!(group(&client).await?["partitions"][0]["gap"], expected);
    let next = client.receive("c", 1, SOON).await?;
    assert_eq!(next[0].gap, None, "it is told once");
    Ok(())
}

#[tokio::test]
async fn lag_says_how_much_of_it_the_filters_want() -> Result<()> {
    let mut server = Server::new()?.key("eventmesh.storage.partitions", 2);
    let client = server.start().await?;
    let wanted = json!([{"exact": {"type": "wanted"}}]);
    client.subscribed(&Subscribe::load_balance("c", "t").set("filters", wanted)).await?;
    let typed = |number: u32, kind: &str| {
        let mut event = event(number);
        event["type"] = kind.into();
        event
    };
    for number in 0..12 {
        client.published("t", [typed(number, if number % 4 == 0 { "wanted" } else { "other" })]).await?;
    }
    let seen = group(&client).await?;
    assert_eq!(json!([seen["lag"], seen["lagMatching"]]), json!([12, 3]), "{seen}");
    let lanes = seen["partitions"].as_array().map_or(&[][..], Vec::as_slice);
    let matching: u64 = lanes.iter().filter_map(|lane| lane["lagMatching"].as_u64()).sum();
    assert_eq!(matching, 3);
    let got = client.receive("c", 3, SOON).await?;
    assert_eq!(group(&client).await?["lagMatching"], 3, "what is with a member is not done");
    client.acked(&got).await?;
    // What follows the last of them was not looked at yet, and is not for it.
    assert_eq!(group(&client).await?["lagMatching"], 0);
    // Without filters both are the same.
    client.subscribed(&Subscribe::load_balance("d", "u")).await?;
    client.published("u", [event(1)]).await?;
    let groups = client.admin("/admin/groups?topic=u").await?.expect(200)?.json()?;
    assert_eq!(json!([groups[0]["lag"], groups[0]["lagMatching"]]), json!([1, 1]));
    Ok(())
}

#[tokio::test]
async fn silence_ends_subscriptions_where_that_is_configured_and_nothing_else_does() -> Result<()> {
    // shows: eventmesh.subscription.idleTimeout
    let mut server = Server::new()?.key("eventmesh.subscription.idleTimeout", "1500ms");
    let client = server.start().await?;
    client.subscribed(&Subscribe::broadcast("silent", "t")).await?;
    client.subscribed(&Subscribe::load_balance("asleep", "t").group("g")).await?;
    for name in ["streams", "waits", "acks"] {
        client.subscribed(&Subscribe::load_balance(name, "u").group(name)).await?;
    }
    let _stream = client.stream("streams").await?;
    client.published("u", (0..200).map(event)).await?;
    let held = client.receive("acks", 200, SOON).await?;
    let names = async || -> Result<Vec<String>> {
        let list = client.admin("/admin/subscriptions").await?.expect(200)?.json()?;
        let mut names: Vec<String> = list
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| one["clientId"].as_str().unwrap_or("").to_owned())
            .collect();
        names.sort();
        Ok(names)
    };
    let active = async {
        for delivery in &held {
            client.ack(&delivery.delivery_id).await?.expect(200)?;
            mesh_tests::pause(Duration::from_millis(30)).await;
        }
        anyhow::Ok(())
    };
    // One waits all the while.
    client.poll_reply("waits", 1_000, 0).await?.expect(200)?;
    let waiting = client.poll_reply("waits", 1, 60_000);
    tokio::pin!(waiting);
    tokio::select! {
        reply = &mut waiting => anyhow::bail!("the poll ended: {reply:?}"),
        acked = active => acked?,
    }
    assert_eq!(names().await?, ["acks", "streams", "waits"]);
    for name in ["silent", "asleep"] {
        client.poll_reply(name, 1, 0).await?.expect_error(410, "subscription_expired")?;
    }
    // The group that was the client's own is gone, the shared one keeps its place.
    client.published("t", [event(1)]).await?;
    let groups = client.admin("/admin/groups?topic=t").await?.expect(200)?.json()?;
    assert_eq!(json!([groups[0]["group"], groups[0]["lag"], groups[1]]), json!(["g", 1, null]), "{groups}");
    client.subscribed(&Subscribe::load_balance("asleep", "t").group("g")).await?;
    assert_eq!(client.receive("asleep", 1, SOON).await?[0].id(), "1");
    Ok(())
}
