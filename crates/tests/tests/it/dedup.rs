//! Publisher deduplication through the binary: in parallel, in batches, and over kills in the middle of publishing.
//! `ADMIN_ROUNDS` sets how many, `ADMIN_SEED` replays the moments.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use mesh_tests::{Client, Seed, Server, Subscribe, event, pause, rounds};
use rand::RngExt;
use serde_json::Value;
use tokio::task::JoinSet;

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

#[tokio::test]
async fn what_publishers_repeat_after_a_kill_is_there_once() -> Result<()> {
    const EVENTS: usize = 40;
    let seed = Seed::from_environment("ADMIN_SEED");
    let (mut server, mut client) = started().await?;
    let mut draw = seed.generator(5);
    let mut kept = 0;
    for round in 0..rounds("ADMIN_ROUNDS", 6) {
        let what = || format!("round {round}, seed {}", seed.0);
        let events: Vec<Value> = (0..EVENTS).map(|number| event(format!("{round}-{number}"))).collect();
        let mut publishing = JoinSet::new();
        for some in events.chunks(4) {
            let (client, some) = (client.clone(), some.to_vec());
            publishing.spawn(async move {
                for (place, event) in some.iter().enumerate() {
                    let answer = match place {
                        0 => client.publish_batch("t", &some[..2]).await,
                        _ => client.publish("t", event).await,
                    };
                    // The kill takes the answers of what is under way.
                    if answer.is_err() {
                        return;
                    }
                }
            });
        }
        pause(Duration::from_micros(draw.random_range(0..30_000))).await;
        server.kill9();
        publishing.join_all().await;
        client = server.start().await.with_context(what)?;
        for event in &events {
            let answer = client.publish("t", event).await?.expect(202)?.json()?;
            kept += usize::from(answer["duplicate"] == true);
        }
        let mut came: BTreeMap<String, usize> = BTreeMap::new();
        loop {
            let got = client.poll("c", 1_000, 300).await?;
            if got.is_empty() {
                break;
            }
            for delivery in &got {
                ensure!(delivery.attempt == 1, "{delivery:?}: {}", what());
                *came.entry(delivery.id()).or_default() += 1;
            }
            client.acked(&got).await?;
        }
        ensure!(came.len() == EVENTS, "{} of {EVENTS} came: {}", came.len(), what());
        ensure!(came.values().all(|times| *times == 1), "{came:?}: {}", what());
    }
    println!("{kept} events were there when they were repeated");
    Ok(())
}
