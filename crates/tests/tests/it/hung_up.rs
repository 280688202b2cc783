//! Clients and operators that hang up in the middle of a change, or come too early: what they began is finished, what
//! was answered holds after a kill, and nothing is taken for absent that is not there yet.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, ensure};
use mesh_tests::{Client, Raw, Server, Subscribe, TOKEN, event, pause};
use serde_json::{Value, json};

use crate::recovery::SOON;

/// A request of which only the first bytes of the answer, if any, are waited for.
async fn begin(port: u16, path: &str, body: &Value, patience: Duration) -> Result<()> {
    let body = body.to_string();
    let mut connection = Raw::connect(port).await?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    connection.send(format!("{head}{body}").as_bytes()).await?;
    pause(patience).await;
    connection.reset()
}

#[tokio::test]
async fn whoever_hangs_up_in_a_subscribe_and_subscribes_again_loses_nothing_and_gets_nothing_twice()
-> Result<()> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    for round in 0..40u64 {
        let name = format!("c{round}");
        let topic = format!("t{round}");
        let wanted = Subscribe::load_balance(&name, &topic);
        begin(server.traffic_port(), "/events/subscribe", &wanted.body(), Duration::from_micros(round * 120))
            .await?;
        client.subscribed(&wanted).await?;
        client.published(&topic, [event(1), event(2)]).await?;
        let first = client.receive(&name, 2, SOON).await?;
        client.acked(first.iter().filter(|delivery| delivery.id() == "1")).await?;
    }
    server.kill9();
    let client = server.start().await?;
    for round in 0..40u64 {
        let name = format!("c{round}");
        client.published(&format!("t{round}"), [event(3)]).await?;
        let next = client.receive(&name, 1, SOON).await?;
        ensure!(
            next[0].id() == "3",
            "{name} got {:?}: it was acknowledged, or the group is another",
            next[0].id()
        );
    }
    Ok(())
}

/// The clients that are subscribed, by name.
async fn subscribed(client: &Client) -> Result<BTreeSet<String>> {
    let members = client.admin("/admin/subscriptions").await?.json()?;
    let members = members.as_array().map_or(&[][..], Vec::as_slice);
    ensure!(members.iter().all(|member| member["mode"] == "BROADCAST"), "{members:?}");
    Ok(members.iter().map(|member| member["clientId"].as_str().unwrap_or_default().to_owned()).collect())
}

#[tokio::test]
async fn who_is_a_member_after_a_hang_up_in_an_unsubscribe_is_one_after_a_kill_and_nobody_else() -> Result<()>
{
    let mut server = Server::new()?;
    let client = server.start().await?;
    for round in 0..40u64 {
        let (name, topic) = (format!("c{round}"), format!("t{round}"));
        let wanted = Subscribe::broadcast(&name, &topic);
        client.subscribed(&wanted).await?;
        let body = json!({"clientId": name, "topic": topic});
        begin(server.traffic_port(), "/events/unsubscribe", &body, Duration::from_micros(round * 120))
            .await?;
        client.subscribed(&wanted).await?;
    }
    // A request that was sent before may be read after the one behind it: which of the two is last is not known
    // here, but what came of them is.
    let mut before = subscribed(&client).await?;
    loop {
        pause(Duration::from_millis(300)).await;
        let now = subscribed(&client).await?;
        if now == before {
            break;
        }
        before = now;
    }
    server.kill9();
    let client = server.start().await?;
    ensure!(subscribed(&client).await? == before, "other clients are subscribed after the kill");
    for round in 0..40u64 {
        let (name, topic) = (format!("c{round}"), format!("t{round}"));
        client.published(&topic, [event(1)]).await?;
        if before.contains(&name) {
            client.receive(&name, 1, SOON).await?;
        } else {
            client.poll_reply(&name, 1, 0).await?.expect_error(404, "unknown_client")?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn before_recovery_is_done_an_operator_sees_and_changes_nothing() -> Result<()> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    for group in 0..300 {
        client.subscribed(&Subscribe::load_balance("c", "t").group(&format!("g{group}"))).await?;
        if group == 0 {
            client.published("t", (0..5).map(event)).await?;
        }
    }
    let token = format!("Bearer {TOKEN}");
    let known = [("authorization", token.as_str())];
    for _ in 0..3 {
        server.kill9();
        server.spawn()?;
        let early = server.client();
        let end = Duration::from_secs(60);
        let looked = mesh_tests::until("the server is ready", end, async || {
            let ready = early.admin("/admin/ready").await.ok().map(|reply| reply.status);
            let deleted = early.admin_with("DELETE", "/admin/topics/t", &known).await;
            let seen = early.admin("/admin/groups").await;
            let deleted = deleted.map_or(0, |reply| reply.status);
            let seen = match seen {
                Ok(reply) if reply.status == 200 => reply.json().ok()?.as_array().map(Vec::len),
                _ => None,
            };
            // What was asked before it was ready must have been refused, or seen everything.
            let is_right = matches!(deleted, 0 | 503 | 409) && seen.is_none_or(|seen| seen == 300);
            (!is_right || ready == Some(200)).then_some((is_right, deleted, seen))
        });
        let (is_right, deleted, seen) = looked.await?;
        ensure!(is_right, "before ready: the deletion answered {deleted}, {seen:?} of 300 groups were seen");
    }
    let got = server.client().receive("c", 5, SOON).await?;
    ensure!(got.len() == 5, "accepted events are gone: {}", got.len());
    Ok(())
}
