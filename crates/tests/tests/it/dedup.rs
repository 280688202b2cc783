//! Publisher deduplication through the binary: in parallel, in batches, and over a kill.

use std::time::Duration;

use anyhow::{Result, ensure};
use mesh_tests::{Client, Server, Subscribe, event};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(10);

async fn started() -> Result<(Server, Client)> {
    let mut server = Server::new()?.key("eventmesh.publish.dedup.window", "10m");
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    Ok((server, client))
}

fn place(answer: &Value) -> (u64, String) {
    (
        answer["partition"].as_u64().unwrap_or(u64::MAX),
        answer["offset"].as_str().unwrap_or_default().to_owned(),
    )
}

#[tokio::test]
async fn an_event_published_again_is_answered_with_its_first_place_also_after_a_kill() -> Result<()> {
    let (mut server, client) = started().await?;
    let first = client.publish("t", &event(1)).await?.expect(202)?.json()?;
    ensure!(first.get("duplicate").is_none(), "{first}");
    let again = client.publish("t", &event(1)).await?.expect(202)?.json()?;
    ensure!(again["duplicate"] == true && place(&again) == place(&first), "{again}");
    server.kill9();
    let client = server.start().await?;
    let after = client.publish("t", &event(1)).await?.expect(202)?.json()?;
    ensure!(after["duplicate"] == true && place(&after) == place(&first), "{after}");
    let other = client.publish("u", &event(1)).await?.expect(202)?.json()?;
    ensure!(other.get("duplicate").is_none(), "another topic: {other}");
    assert_eq!(client.receive("c", 1, SOON).await?.len(), 1);
    assert_eq!(client.poll("c", 10, 200).await?.len(), 0);
    Ok(())
}

#[tokio::test]
async fn of_many_parallel_publishes_of_one_event_one_is_stored() -> Result<()> {
    let (_server, client) = started().await?;
    let (one, two, batch) = (event(1), event(2), [event(1), event(2), event(2), event(3)]);
    let (a, b, c, d, e) = tokio::try_join!(
        client.publish("t", &one),
        client.publish("t", &one),
        client.publish_batch("t", &batch),
        client.publish("t", &two),
        client.publish("t", &one),
    )?;
    for reply in [a, b, c, d, e] {
        reply.expect(202)?;
    }
    let mut ids: Vec<String> = Vec::new();
    while ids.len() < 3 {
        for delivery in client.receive("c", 1, SOON).await? {
            ids.push(delivery.event()["id"].as_str().unwrap_or_default().to_owned());
        }
    }
    ids.sort();
    assert_eq!(ids, ["1", "2", "3"]);
    assert_eq!(client.poll("c", 10, 200).await?.len(), 0);
    Ok(())
}
