//! Dead letters over the admin port.

use mesh_delivery::{AskedSettings, Mode};
use serde_json::json;

use crate::rig::{Rig, anybody, client, once};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_counted_replayed_and_discarded_by_what_is_asked_for() {
    let rig = Rig::new().await;
    rig.subscribe("c", None, Mode::LoadBalance, once()).await;
    rig.dead("c", 0..4).await;
    let ask = |path| rig.ask("POST", path, "");
    let dry = ask("/admin/dlq/replay?topic=t&dryRun=true&max=3").await;
    assert_eq!(dry, (200, json!({"topic": "t", "replayed": 0, "dryRun": true, "wouldReplay": 3})));
    let dry = ask("/admin/dlq/discard?topic=t&dryRun=true&id=1").await;
    assert_eq!(dry, (200, json!({"topic": "t", "discarded": 0, "dryRun": true, "wouldDiscard": 1})));
    let one = ask("/admin/dlq/replay?topic=t&id=2&group=default&reason=attempts_exhausted&tenant=default");
    assert_eq!(one.await, (200, json!({"topic": "t", "replayed": 1})));
    assert_eq!(rig.poll("c").await, ["2"]);
    for none in ["id=2", "reason=rejected", "group=other", "tenant=other"] {
        let path = format!("/admin/dlq/replay?topic=t&{none}");
        assert_eq!(rig.ask("POST", &path, "").await.1["replayed"], 0, "{none}");
    }
    let gone = ask("/admin/dlq/discard?topic=t&max=2").await;
    assert_eq!(gone, (200, json!({"topic": "t", "discarded": 2})));
    assert_eq!(ask("/admin/dlq/replay?topic=nothing-here").await.1["replayed"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_to_a_group_that_is_gone_is_a_conflict() {
    let rig = Rig::new().await;
    rig.subscribe("c", None, Mode::LoadBalance, once()).await;
    rig.subscribe("d", Some("stays"), Mode::LoadBalance, AskedSettings::default()).await;
    rig.dead("c", 0..1).await;
    assert_eq!(rig.ask("DELETE", "/admin/groups/t/default", "").await.0, 200);
    let gone = rig.refused("POST", "/admin/dlq/replay?topic=t", "").await;
    assert_eq!(gone, (409, "group_gone".to_owned()));
    assert_eq!(rig.ask("GET", "/admin/dlq/browse?topic=t", "").await.1.as_array().map(Vec::len), Some(1));
    assert!(rig.dispatcher.poll(&anybody(), &client("d"), 1, std::time::Duration::ZERO).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_parameters_are_named_and_nothing_is_done() {
    // covers: U29
    let rig = Rig::new().await;
    for (path, code) in [
        ("/admin/dlq/replay", "missing_parameter"),
        ("/admin/dlq/replay?topic=t&max=0", "invalid_argument"),
        ("/admin/dlq/replay?topic=t&max=1001", "invalid_argument"),
        ("/admin/dlq/replay?topic=t&dryRun=yes", "invalid_argument"),
        ("/admin/dlq/replay?topic=t&reason=bored", "invalid_argument"),
        ("/admin/dlq/replay?topic=t&group=", "invalid_argument"),
        ("/admin/dlq/discard?topic=t&grup=g", "invalid_argument"),
        ("/admin/dlq/discard?topic=t&topic=t", "invalid_argument"),
    ] {
        assert_eq!(rig.refused("POST", path, "").await, (400, code.to_owned()), "{path}");
    }
    let wrong = rig.refused("GET", "/admin/dlq/replay?topic=t", "").await;
    assert_eq!(wrong, (405, "method_not_allowed".to_owned()));
}
