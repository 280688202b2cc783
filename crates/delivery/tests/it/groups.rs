//! Groups and members: subscribe, conflicts, leaving, and what a restart brings back.

use mesh_delivery::{AckMode, AskedSettings, Mode, SettleOutcome, SubscribeError};

use crate::rig::{Rig, anybody, client, events, quick, topic};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_a_group_share_and_broadcast_clients_each_get_everything() {
    let rig = Rig::new().await;
    for name in ["a", "b"] {
        rig.subscribe(name, Mode::LoadBalance, AskedSettings::default()).await;
    }
    for name in ["x", "y"] {
        rig.subscribe(name, Mode::Broadcast, AskedSettings::default()).await;
    }
    rig.publish_ids(0..10).await;
    let (a, b) = (rig.poll("a", 5, 1_000).await, rig.poll("b", 10, 1_000).await);
    let mut shared: Vec<&str> = events(&a);
    shared.extend(events(&b));
    shared.sort_unstable();
    assert_eq!(shared, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    assert_eq!(rig.poll("x", 100, 1_000).await.len(), 10);
    assert_eq!(rig.poll("y", 100, 1_000).await.len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribing_again_changes_nothing_and_a_conflict_is_named() {
    let rig = Rig::new().await;
    let first = rig.subscribe("a", Mode::LoadBalance, quick()).await;
    let again = rig.subscribe("a", Mode::LoadBalance, AskedSettings::default()).await;
    assert_eq!(first.subscription, again.subscription);
    assert!(first.created && !again.created);
    rig.subscribe("b", Mode::LoadBalance, AskedSettings::default()).await;
    let other = AskedSettings { ack_timeout_ms: Some(5_000), ..AskedSettings::default() };
    let conflict = rig.try_subscribe("b", Mode::LoadBalance, None, other.clone()).await;
    assert!(
        matches!(conflict, Err(SubscribeError::GroupConflict { setting: "ackTimeoutMs" })),
        "{conflict:?}"
    );
    assert!(rig.groups.unsubscribe(&anybody(), &client("b"), None, None, false).await.expect("left"));
    rig.try_subscribe("a", Mode::LoadBalance, None, other).await.expect("a sole member may change it");
    rig.publish_ids(0..1).await;
    assert_eq!(rig.poll("a", 1, 1_000).await.len(), 1);
    let auto = AskedSettings { ack: Some(AckMode::Auto), ..AskedSettings::default() };
    let conflict = rig.try_subscribe("a", Mode::LoadBalance, None, auto).await;
    assert!(matches!(conflict, Err(SubscribeError::AckConflict)), "{conflict:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_leaves_gives_its_deliveries_back_at_once_and_the_group_stays() {
    // covers: U71
    let rig = Rig::new().await;
    rig.subscribe("a", Mode::LoadBalance, AskedSettings::default()).await;
    rig.subscribe("b", Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish_ids(0..2).await;
    let with_a = rig.poll("a", 2, 1_000).await;
    assert!(
        rig.groups.unsubscribe(&anybody(), &client("a"), Some(&topic()), None, false).await.expect("left")
    );
    assert!(
        !rig.groups
            .unsubscribe(&anybody(), &client("a"), Some(&topic()), None, false)
            .await
            .expect("was gone")
    );
    let with_b = rig.poll("b", 2, 1_000).await;
    assert_eq!(with_b.iter().map(|got| got.attempt).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(rig.ack(&[&with_a[0]]).await, [SettleOutcome::Settled], "its ids still ack");
    rig.groups.unsubscribe(&anybody(), &client("b"), None, None, false).await.expect("left");
    rig.publish_ids(2..4).await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    let mut rest = Vec::new();
    while rest.len() < 3 {
        rest.extend(rig.poll("c", 10, 2_000).await);
    }
    let mut ids = events(&rest);
    ids.sort_unstable();
    assert_eq!(ids, ["1", "2", "3"], "the backlog waited");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_group_is_forgotten_with_its_positions() {
    let rig = Rig::new().await;
    rig.subscribe("a", Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish_ids(0..2).await;
    let taken = rig.poll("a", 1, 1_000).await;
    rig.groups.unsubscribe(&anybody(), &client("a"), None, None, true).await.expect("deleted");
    assert_eq!(rig.dispatcher.pending_count(), 0);
    assert_eq!(rig.ack(&[&taken[0]]).await, [SettleOutcome::Unknown]);
    let again = rig.subscribe("a", Mode::LoadBalance, AskedSettings::default()).await;
    assert!(again.created);
    assert_eq!(rig.poll("a", 10, 50).await.len(), 0, "a new group starts at the latest");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_meta_is_gone_a_subscribe_fails_and_then_succeeds() {
    let rig = Rig::new().await;
    rig.subscribe("a", Mode::LoadBalance, AskedSettings::default()).await;
    rig.meta.partition(true);
    let failed = rig.try_subscribe("b", Mode::Broadcast, None, AskedSettings::default()).await;
    assert!(matches!(failed, Err(SubscribeError::Meta(_))), "{failed:?}");
    rig.publish_ids(0..1).await;
    assert_eq!(rig.poll("a", 1, 1_000).await.len(), 1, "traffic goes on");
    rig.meta.partition(false);
    rig.try_subscribe("b", Mode::Broadcast, None, AskedSettings::default()).await.expect("healed");
    assert_eq!(rig.groups.members(Some(&topic())).len(), 2);
}
