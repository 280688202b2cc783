//! Groups and clients over the admin port.

use mesh_delivery::{AskedSettings, Mode};
use serde_json::json;

use crate::rig::Rig;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_shows_its_lag_and_is_sought_while_its_member_stays() {
    let rig = Rig::new().await;
    rig.subscribe("c", Some("a/b"), Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish(0..5).await;
    assert_eq!(rig.poll("c").await.len(), 5);
    let (status, groups) = rig.ask("GET", "/admin/groups?topic=t", "").await;
    let group = &groups[0];
    assert_eq!((status, &group["group"], &group["mode"]), (200, &json!("a/b"), &json!("LOAD_BALANCE")));
    assert_eq!((&group["lag"], &group["pending"], &group["generation"]), (&json!(5), &json!(5), &json!(0)));
    assert_eq!(group["members"][0]["clientId"], "c");
    assert_eq!(group["settings"]["ackTimeoutMs"], 30_000);
    assert!(group["partitions"][0]["lagMs"].is_u64(), "{group}");
    let path = "/admin/groups/t/a%2Fb/seek";
    let dry = rig.ask("POST", path, r#"{"to":"latest","dryRun":true}"#).await;
    let expected = json!({"topic": "t", "group": "a/b", "generation": 0, "from": {"0": "0"},
        "to": {"0": "5"}, "dryRun": true});
    assert_eq!(dry, (200, expected));
    let sought = rig.ask("POST", path, r#"{"to":{"offsets":{"0":"3"}}}"#).await;
    assert_eq!((sought.0, &sought.1["generation"], &sought.1["to"]), (200, &json!(1), &json!({"0": "3"})));
    assert_eq!(rig.poll("c").await, ["3", "4"]);
    for (to, count) in [("earliest", 5), ("1999-01-01T00:00:00Z", 5), ("latest", 0)] {
        assert_eq!(rig.ask("POST", path, &json!({"to": to}).to_string()).await.0, 200, "{to}");
        assert_eq!(rig.poll("c").await.len(), count, "{to}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_seek_cannot_do_is_refused() {
    let rig = Rig::new().await;
    rig.subscribe("c", Some("g"), Mode::LoadBalance, AskedSettings::default()).await;
    rig.subscribe("g", None, Mode::Broadcast, AskedSettings::default()).await;
    for (path, body, status, code) in [
        ("t/g/seek", r#"{"to":"latest"}"#, 400, "invalid_argument"),
        ("t/g/seek?kind=xx", r#"{"to":"latest"}"#, 400, "invalid_argument"),
        ("t/g/seek?kind=lb", "{}", 400, "missing_parameter"),
        ("t/g/seek?kind=lb", r#"{"to":"soon"}"#, 400, "invalid_argument"),
        ("t/g/seek?kind=lb", r#"{"to":"latest","dryRun":1}"#, 400, "invalid_argument"),
        ("t/g/seek?kind=lb", r#"{"to":{"offsets":{"7":"0"}}}"#, 400, "invalid_argument"),
        ("t/g/seek?kind=lb", r#"{"to":{"offsets":{"0":"99"}}}"#, 400, "invalid_argument"),
        ("t/nobody/seek", r#"{"to":"latest"}"#, 404, "not_found"),
        ("t/g/seek?tenant=other", r#"{"to":"latest"}"#, 404, "not_found"),
    ] {
        let path = format!("/admin/groups/{path}");
        assert_eq!(rig.refused("POST", &path, body).await, (status, code.to_owned()), "{path} {body}");
    }
    let removed = rig.ask("DELETE", "/admin/groups/t/g?kind=bc", "").await;
    assert_eq!(removed, (200, json!({"topic": "t", "group": "g", "deleted": true, "members": 1})));
    assert_eq!(rig.ask("POST", "/admin/groups/t/g/seek", r#"{"to":"latest"}"#).await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejecting_a_client_counts_what_it_ended() {
    // covers: U116
    let rig = Rig::new().await;
    rig.subscribe("c", Some("g"), Mode::LoadBalance, AskedSettings::default()).await;
    rig.subscribe("c", Some("h"), Mode::LoadBalance, AskedSettings::default()).await;
    let reject = "/admin/client/reject?clientId=c";
    assert_eq!(rig.ask("POST", reject, "").await, (200, json!({"clientId": "c", "removed": 2})));
    assert_eq!(rig.refused("POST", reject, "").await, (404, "unknown_client".to_owned()));
    assert_eq!(rig.refused("POST", "/admin/client/reject", "").await.1, "missing_parameter");
    assert_eq!(rig.ask("GET", "/admin/subscriptions?topic=t", "").await.1, json!([]));
    assert_eq!(rig.ask("GET", "/admin/groups", "").await.1.as_array().map(Vec::len), Some(2), "groups stay");
}
