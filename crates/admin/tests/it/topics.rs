//! Topics over the admin port.

use axum::body::Body;
use http::Request;
use mesh_admin::ROUTES;
use mesh_delivery::{AskedSettings, Mode};
use serde_json::json;

use crate::rig::Rig;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_made_grown_described_and_deleted() {
    let rig = Rig::new().await;
    let post = |body| rig.ask("POST", "/admin/topics", body);
    let made = post(r#"{"topic":"t","partitions":2}"#).await;
    let settings = json!({
        "retention": {"maxAgeMs": 604_800_000, "maxBytes": null},
        "backlog": {"maxAgeMs": 1_209_600_000, "maxBytes": null},
        "dedupWindowMs": 0,
    });
    let two = json!({"topic": "t", "partitions": 2, "settings": settings, "own": []});
    assert_eq!(made, (201, two.clone()));
    assert_eq!(post(r#"{"topic":"t"}"#).await, (200, two));
    let grown = post(r#"{"topic":"t","partitions":3}"#).await;
    assert_eq!((grown.0, &grown.1["partitions"], &grown.1["added"]), (200, &json!(3), &json!(1)));
    assert!(grown.1["warning"].as_str().is_some_and(|text| text.contains("key")));
    let fewer = rig.refused("POST", "/admin/topics", r#"{"topic":"t","partitions":1}"#).await;
    assert_eq!(fewer, (409, "topic_conflict".to_owned()));
    rig.subscribe("c", None, Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish(0..3).await;
    let (status, topic) = rig.ask("GET", "/admin/topics/t", "").await;
    assert_eq!((status, topic["partitions"].as_array().map(Vec::len)), (200, Some(3)));
    let first = &topic["partitions"][0];
    assert_eq!((&first["partition"], &first["start"], &first["end"]), (&json!(0), &json!("0"), &json!("1")));
    assert!(first["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{first}");
    assert_eq!(topic["groups"], json!([{"tenant": "default", "group": "default", "kind": "lb"}]));
    let list = rig.ask("GET", "/admin/topics", "").await;
    let row = json!({"topic": "t", "partitions": 3, "groups": 1, "deadLetterTopic": false,
        "settings": settings, "own": []});
    assert_eq!(list, (200, json!([row])));
    let refused = rig.refused("DELETE", "/admin/topics/t", "").await;
    assert_eq!(refused, (409, "groups_exist".to_owned()));
    let deleted = rig.ask("DELETE", "/admin/topics/t?force=true", "").await;
    let expected = json!({"topic": "t", "deleted": true, "groups": 1, "deadLetters": 0});
    assert_eq!(deleted, (200, expected));
    for method in ["GET", "DELETE"] {
        let unknown = rig.refused(method, "/admin/topics/t", "").await;
        assert_eq!(unknown, (404, "unknown_topic".to_owned()));
    }
    for empty in ["subscriptions", "offsets", "clients", "groups", "dlq/browse"] {
        let (status, json) = rig.ask("GET", &format!("/admin/{empty}?topic=t"), "").await;
        assert!(status == 200 && (json == json!([]) || json == json!({})), "{empty}: {json}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_has_settings_of_its_own_until_they_are_given_back_or_it_is_deleted() {
    let rig = Rig::new().await;
    let post = |body| rig.ask("POST", "/admin/topics", body);
    let (status, made) = post(
        r#"{"topic":"t","retention":{"maxAgeMs":60000,"maxBytes":1048576},"backlog":{"maxAgeMs":0},"dedupWindowMs":1000}"#,
    )
    .await;
    let settings = json!({
        "retention": {"maxAgeMs": 60_000, "maxBytes": 1_048_576},
        "backlog": {"maxAgeMs": 0, "maxBytes": null},
        "dedupWindowMs": 1_000,
    });
    assert_eq!((status, &made["settings"]), (201, &settings));
    let all = ["retention.maxAgeMs", "retention.maxBytes", "backlog.maxAgeMs", "dedupWindowMs"];
    assert_eq!(made["own"], json!(all));
    // What is not named stays; `null` gives back.
    let (status, changed) =
        post(r#"{"topic":"t","retention":{"maxAgeMs":null},"backlog":null,"dedupWindowMs":0}"#).await;
    let settings = json!({
        "retention": {"maxAgeMs": 604_800_000, "maxBytes": 1_048_576},
        "backlog": {"maxAgeMs": 1_209_600_000, "maxBytes": null},
        "dedupWindowMs": 0,
    });
    let own = json!(["retention.maxBytes", "dedupWindowMs"]);
    assert_eq!((status, &changed["settings"], &changed["own"]), (200, &settings, &own));
    for path in ["/admin/topics/t", "/admin/topics"] {
        let (_, shown) = rig.ask("GET", path, "").await;
        let shown = shown.get(0).unwrap_or(&shown);
        assert_eq!((&shown["settings"], &shown["own"]), (&settings, &own), "{path}");
    }
    assert_eq!(rig.ask("DELETE", "/admin/topics/t", "").await.0, 200);
    assert_eq!(post(r#"{"topic":"t"}"#).await.1["own"], json!([]));
    for (body, range) in [
        (
            r#"{"topic":"t","retention":{"maxAgeMs":59999}}"#,
            "`retention.maxAgeMs` must be a whole number from 60000 to 3153600000000",
        ),
        (
            r#"{"topic":"t","retention":{"maxBytes":1}}"#,
            "`retention.maxBytes` must be a whole number from 1048576 to 9007199254740991",
        ),
        (
            r#"{"topic":"t","backlog":{"maxAgeMs":1}}"#,
            "`backlog.maxAgeMs` must be 0 (for ever) or a whole number from 60000",
        ),
        (
            r#"{"topic":"t","backlog":{"maxBytes":"2MiB"}}"#,
            "`backlog.maxBytes` must be a whole number from 1048576",
        ),
        (r#"{"topic":"t","backlog":7}"#, "`backlog` must be an object, not a number"),
        (r#"{"topic":"t","retention":{"maxBytes":2000000,"maxBytes":2000000}}"#, "`maxBytes` is given twice"),
        (
            r#"{"topic":"t","dedupWindowMs":86400001}"#,
            "`dedupWindowMs` must be 0 (off) or a whole number from 1000 to 86400000",
        ),
        (r#"{"topic":"t","dedupWindowMs":1.5}"#, "`dedupWindowMs` must be 0 (off) or"),
    ] {
        let (status, refused) = post(body).await;
        assert_eq!((status, &refused["error"]), (400, &json!("invalid_argument")), "{body}");
        assert!(refused["message"].as_str().is_some_and(|text| text.contains(range)), "{body}: {refused}");
    }
    assert_eq!(post(r#"{"topic":"t"}"#).await.1["own"], json!([]), "nothing of it was done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_a_topic_is_refused_by_name() {
    // covers: U119
    let rig = Rig::new().await;
    for (body, status, code) in [
        ("", 400, "invalid_argument"),
        ("[]", 400, "invalid_argument"),
        ("{}", 400, "missing_parameter"),
        (r#"{"topic":7}"#, 400, "invalid_argument"),
        (r#"{"topic":"a/b"}"#, 400, "invalid_argument"),
        (r#"{"topic":"t_DLQ"}"#, 403, "reserved_topic"),
        (r#"{"topic":"t","partitions":0}"#, 400, "invalid_argument"),
        (r#"{"topic":"t","partitions":1025}"#, 400, "invalid_argument"),
        (r#"{"topic":"t","partitions":"4"}"#, 400, "invalid_argument"),
    ] {
        assert_eq!(rig.refused("POST", "/admin/topics", body).await, (status, code.to_owned()), "{body}");
    }
    let long = format!(r#"{{"topic":"{}"}}"#, "x".repeat(70_000));
    assert_eq!(rig.refused("POST", "/admin/topics", &long).await, (413, "too_large".to_owned()));
    for topic in ["a", "b", "c", "d"] {
        assert_eq!(rig.ask("POST", "/admin/topics", &json!({"topic": topic}).to_string()).await.0, 201);
    }
    let many = rig.refused("POST", "/admin/topics", r#"{"topic":"e"}"#).await;
    assert_eq!(many, (429, "quota_exceeded".to_owned()));
    for (method, path, status, code) in [
        ("DELETE", "/admin/topics/a_DLQ", 403, "reserved_topic"),
        ("DELETE", "/admin/topics/a?force=1", 400, "invalid_argument"),
        ("GET", "/admin/topics/%ff", 400, "invalid_argument"),
        ("PUT", "/admin/topics", 405, "method_not_allowed"),
    ] {
        assert_eq!(rig.refused(method, path, "").await, (status, code.to_owned()), "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_but_the_open_ones_needs_the_token_and_says_its_methods() {
    // covers: U112
    let rig = Rig::new().await;
    for route in ROUTES {
        let path = route.path.replace(['{', '}'], "");
        let request = Request::builder().method(route.method).uri(&path).body(Body::empty()).expect("legal");
        let (status, _) = rig.send(request).await;
        assert_eq!(
            status == 401,
            route.needs != mesh_admin::Needs::Nothing,
            "{} {path}: {status}",
            route.method
        );
        let wrong = rig.refused("PATCH", &path, "").await;
        assert_eq!(wrong, (405, "method_not_allowed".to_owned()), "{path}");
    }
}
