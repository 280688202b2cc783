//! The settings of a group: who may change them, in which ranges, and what is refused.

use anyhow::{Result, ensure};
use mesh_tests::{Subscribe, event};
use serde_json::{Value, json};

use crate::subscribe::{SOON, nothing_for, started};

#[tokio::test]
async fn a_mode_that_is_none_is_refused_with_the_list_of_modes() -> Result<()> {
    // covers: U32
    let (_server, client) = started().await?;
    let modes = [json!("LOAD_BALANCE_STICKY"), json!("broadcast"), json!(""), json!(3), Value::Null];
    for mode in modes {
        let body = json!({"clientId": "c", "topic": "t", "mode": mode});
        let reply = client.post("/events/subscribe", &body).await?.expect(400)?;
        let named =
            ["LOAD_BALANCE", "BROADCAST", "MULTICAST"].iter().all(|mode| reply.to_string().contains(mode));
        ensure!(named, "the modes are not listed for {mode}: {reply}");
    }
    client.post("/events/subscribe", &json!({"clientId": "c", "topic": "t"})).await?.expect(400)?;
    for body in ["[]", "null", "not JSON", ""] {
        let headers = [("content-type", "application/json")];
        let reply = client.call("POST", "/events/subscribe", &headers, body, SOON).await?.expect(400)?;
        ensure!(!reply.code().is_empty(), "{reply}");
    }
    let list = client.admin("/admin/subscriptions").await?.expect(200)?.json()?;
    assert_eq!(list, json!([]));
    Ok(())
}

#[tokio::test]
async fn an_automatic_ack_needs_no_ack_and_takes_none() -> Result<()> {
    let (mut server, client) = started().await?;
    client.subscribed(&Subscribe::load_balance("c", "t").set("ack", "auto")).await?;
    client.published("t", [event(1)]).await?;
    let got = client.receive("c", 1, SOON).await?;
    assert_eq!(client.pending().await?, 0);
    client.ack(&got[0].delivery_id).await?.expect_error(404, "unknown_delivery")?;
    server.kill9();
    let client = server.start().await?;
    nothing_for(&client, "c").await
}

#[tokio::test]
async fn subscribing_again_is_idempotent_and_settings_of_a_shared_group_hold() -> Result<()> {
    let (_server, client) = started().await?;
    let one = Subscribe::load_balance("one", "t").ack_timeout_ms(5_000);
    let first = client.subscribed(&one).await?;
    for name in ["subscriptionId", "instanceUrl", "group"] {
        ensure!(first.get(name).is_some_and(Value::is_string), "no {name} in {first}");
    }
    assert_eq!(first["group"], "default");
    assert_eq!(client.subscribed(&one).await?["subscriptionId"], first["subscriptionId"]);
    assert_eq!(
        client.subscribed(&Subscribe::load_balance("one", "t")).await?["subscriptionId"],
        first["subscriptionId"]
    );
    // The only member may change it; then it is shared and holds.
    client.subscribed(&Subscribe::load_balance("one", "t").ack_timeout_ms(6_000)).await?;
    client.subscribed(&Subscribe::load_balance("two", "t")).await?;
    let other = Subscribe::load_balance("two", "t").ack_timeout_ms(7_000);
    let reply = client.subscribe(&other).await?.expect_error(409, "group_conflict")?;
    ensure!(reply.to_string().contains("ackTimeoutMs"), "the setting is not named: {reply}");
    let list = client.admin("/admin/subscriptions?topic=t").await?.expect(200)?.json()?;
    assert_eq!(list.as_array().map(Vec::len), Some(2), "{list}");
    // A group has one mode.
    client.subscribed(&Subscribe::broadcast("alone", "t")).await?;
    client.subscribe(&Subscribe::multicast("alone", "t")).await?.expect_error(409, "group_conflict")?;
    Ok(())
}

#[tokio::test]
async fn how_acks_are_given_cannot_change_while_something_is_outstanding() -> Result<()> {
    let (_server, client) = started().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    client.published("t", [event(1)]).await?;
    let got = client.receive("c", 1, SOON).await?;
    let automatic = Subscribe::load_balance("c", "t").set("ack", "auto");
    client.subscribe(&automatic).await?.expect_error(409, "group_conflict")?;
    client.acked(&got).await?;
    client.subscribed(&automatic).await?;
    Ok(())
}

#[tokio::test]
async fn a_setting_out_of_its_range_is_refused_with_the_range() -> Result<()> {
    let (_server, client) = started().await?;
    let cases = [
        ("ackTimeoutMs", json!(99), "100"),
        ("ackTimeoutMs", json!(43_200_001), "43200000"),
        ("backoffMs", json!(3_600_001), "3600000"),
        ("maxInFlight", json!(0), "1"),
        ("maxInFlight", json!(10_001), "10000"),
        ("maxAttempts", json!(-1), "0"),
        ("ackTimeoutMs", json!("1000"), "ackTimeoutMs"),
        ("ackTimeoutMs", json!(1e30), "ackTimeoutMs"),
        ("ack", json!("sometimes"), "explicit"),
    ];
    for (name, value, part) in cases {
        let asked = Subscribe::load_balance("c", "t").set(name, value.clone());
        let reply = client.subscribe(&asked).await?.expect_error(400, "invalid_argument")?;
        let text = reply.to_string().replace([',', '_'], "");
        ensure!(text.contains(name) && text.contains(part), "{name}={value}: {reply}");
    }
    let reply = client.subscribe(&Subscribe::load_balance("c", "t").backoff_ms(500, 400)).await?;
    reply.expect_error(400, "invalid_argument")?;
    for id in ["", &"x".repeat(256), "a\nb"] {
        client.subscribe(&Subscribe::load_balance(id, "t")).await?.expect_error(400, "invalid_argument")?;
    }
    client.subscribe(&Subscribe::load_balance("c", "t_DLQ")).await?.expect_error(403, "reserved_topic")?;
    Ok(())
}
