//! What the subscription store promises, on every backend.

use mesh_base::{BackendErrorKind, Tasks};
use mesh_state::shared::{ClusterSubscriptionStore, Created, Removed, Replaced, SubscriptionStore};

use super::arrange::{
    backends, client, eventually, faulty, group, group_of, group_record, local, member, topic, writer,
};

#[tokio::test]
async fn a_group_is_made_once_and_changed_by_whoever_read_it_last() {
    // proves: ST-2, MB-3
    let folder = tempfile::tempdir().expect("a folder");
    for (backend, meta) in backends(&folder) {
        let store = ClusterSubscriptionStore::load(&meta, &writer("a")).await.expect("loads");
        let id = group("billing");
        let Created::Written(first) = store.create_group(&id, group_record("a")).await.expect("writes")
        else {
            panic!("{backend}: the group is new");
        };
        let Created::AlreadyThere(there) = store.create_group(&id, group_record("b")).await.expect("answers")
        else {
            panic!("{backend}: the group is there");
        };
        assert_eq!(there.record.home.as_str(), "a", "{backend}");

        let mut raised = first.record.clone();
        raised.generation = 1;
        let Replaced::Replaced(second) =
            store.update_group(&id, &first, raised.clone()).await.expect("writes")
        else {
            panic!("{backend}: nobody changed it");
        };
        let Replaced::Stale(Some(there)) = store.update_group(&id, &first, raised).await.expect("answers")
        else {
            panic!("{backend}: it was changed");
        };
        assert_eq!(there.stamp, second.stamp, "{backend}");
        assert_eq!(store.group(&id).expect("shows").record.generation, 1, "{backend}");
        let stale = store.remove_group(&id, &first).await.expect("answers");
        assert!(matches!(stale, Removed::Stale(Some(_))), "{backend}");
        assert!(matches!(store.remove_group(&id, &second).await.expect("removes"), Removed::Removed(_)));
        assert!(store.group(&id).is_none(), "{backend}");
    }
}

#[tokio::test]
async fn own_writes_show_at_once_without_a_watch() {
    // proves: ST-2
    let folder = tempfile::tempdir().expect("a folder");
    for (backend, meta) in backends(&folder) {
        let store = ClusterSubscriptionStore::load(&meta, &writer("a")).await.expect("loads");
        let (one, other) = (group("g"), group("g2"));
        for name in ["c2", "c1", "a/b"] {
            store.put_member(&one, member(name, "a")).await.expect("subscribes");
        }
        let there = store.put_member(&other, member("c1", "a")).await.expect("subscribes");
        let members: Vec<String> =
            store.members(&one).iter().map(|member| member.record.client.to_string()).collect();
        assert_eq!(members, ["a/b", "c1", "c2"], "{backend}");
        let outcome = store.remove_member(&other, &there).await.expect("removes");
        assert!(matches!(outcome, Removed::Removed(_)), "{outcome:?}");
        assert_eq!(store.members(&other).len(), 0, "{backend}");
        assert_eq!(store.all_members().len(), 3, "{backend}");
    }
}

#[tokio::test]
async fn groups_are_found_by_topic_across_tenants() {
    // covers: U94
    let folder = tempfile::tempdir().expect("a folder");
    for (backend, meta) in backends(&folder) {
        let store = ClusterSubscriptionStore::load(&meta, &writer("a")).await.expect("loads");
        for id in [group_of("t", "a", "g"), group_of("u/v", "a", "g"), group_of("t", "ab", "g")] {
            let outcome = store.create_group(&id, group_record("a")).await.expect("writes");
            assert!(matches!(outcome, Created::Written(_)), "{outcome:?}");
        }
        let found: Vec<String> =
            store.groups_of(&topic("a")).into_iter().map(|(id, _)| id.to_string()).collect();
        assert_eq!(found, ["t/a/lb/g", "u/v/a/lb/g"], "{backend}");
        assert_eq!(store.groups().len(), 3);
    }
}

#[tokio::test]
async fn a_late_unsubscribe_does_not_end_a_membership_made_elsewhere() {
    // proves: MB-3
    let (meta, _driver) = faulty();
    let a = ClusterSubscriptionStore::load(&meta, &writer("a")).await.expect("loads");
    let b = ClusterSubscriptionStore::load(&meta, &writer("b")).await.expect("loads");
    let id = group("g");
    let old = a.put_member(&id, member("c", "a")).await.expect("subscribes");
    let new = b.put_member(&id, member("c", "b")).await.expect("moves");
    let Removed::Stale(Some(there)) = a.remove_member(&id, &old).await.expect("answers") else {
        panic!("it is another's by now");
    };
    assert_eq!(there.stamp, new.stamp);
    assert_eq!(a.member(&id, &client("c")).expect("learned").record.instance.as_str(), "b");
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    // proves: MB-5
    let folder = tempfile::tempdir().expect("a folder");
    let id = group("g");
    {
        let store = ClusterSubscriptionStore::load(&local(&folder), &writer("a")).await.expect("loads");
        let outcome = store.create_group(&id, group_record("a")).await.expect("writes");
        assert!(matches!(outcome, Created::Written(_)), "{outcome:?}");
        store.put_member(&id, member("c", "a")).await.expect("subscribes");
    }
    let store = ClusterSubscriptionStore::load(&local(&folder), &writer("a")).await.expect("loads");
    assert_eq!(store.group(&id).expect("kept").record, group_record("a"));
    assert_eq!(store.member(&id, &client("c")).expect("kept").record, member("c", "a"));
}

#[tokio::test]
async fn a_view_that_diverged_converges_on_refresh() {
    // proves: MB-6
    // covers: U91
    let (meta, driver) = faulty();
    let tasks = Tasks::new();
    let a = ClusterSubscriptionStore::load(&meta, &writer("a")).await.expect("loads");
    let b = ClusterSubscriptionStore::load(&meta, &writer("b")).await.expect("loads");
    b.follow(&tasks);
    let id = group("g");
    let ghost = a.put_member(&id, member("ghost", "a")).await.expect("subscribes");
    eventually("the member at b", || b.member(&id, &client("ghost")).map(|_| ()).ok_or(())).await;

    driver.mute_watches(true);
    let outcome = a.remove_member(&id, &ghost).await.expect("removes");
    assert!(matches!(outcome, Removed::Removed(_)), "{outcome:?}");
    a.put_member(&id, member("missed", "a")).await.expect("subscribes");
    b.refresh().await.expect("lists");
    let seen: Vec<String> = b.members(&id).iter().map(|member| member.record.client.to_string()).collect();
    assert_eq!(seen, ["missed"]);
    assert!(tasks.shut_down(std::time::Duration::from_secs(5)).await);
}

#[tokio::test]
async fn a_view_catches_up_by_itself_after_a_partition() {
    // proves: MB-2, MB-5, MB-6
    let (meta, driver) = faulty();
    let tasks = Tasks::new();
    let store = ClusterSubscriptionStore::load(&meta, &writer("b")).await.expect("loads");
    store.follow(&tasks);
    let id = group("g");
    let mine = store.put_member(&id, member("mine", "b")).await.expect("subscribes");

    driver.partition(true);
    let error = store.put_member(&id, member("new", "b")).await.expect_err("partitioned");
    assert_eq!(error.kind(), BackendErrorKind::Unavailable);
    let error = store.remove_member(&id, &mine).await.expect_err("partitioned");
    assert_eq!(error.kind(), BackendErrorKind::Unavailable);
    assert_eq!(store.members(&id).len(), 1, "the view stays as it was");
    let mut changes = store.changes();
    // What another instance does meanwhile, past the partition.
    let elsewhere = driver.inner();
    let there = elsewhere.get("/em/subs/acme/orders/lb/g/mine").await.expect("reads").expect("is there");
    elsewhere.put("/em/subs/acme/orders/lb/g/other", other(&there.value)).await.expect("writes");

    driver.partition(false);
    assert!(changes.changed().await);
    eventually("the other's member", || store.member(&id, &client("other")).map(|_| ()).ok_or(())).await;
    let outcome = store.remove_member(&id, &mine).await.expect("healed");
    assert!(matches!(outcome, Removed::Removed(_)), "{outcome:?}");
    assert!(tasks.shut_down(std::time::Duration::from_secs(5)).await);
}

fn other(mine: &[u8]) -> bytes::Bytes {
    let text = std::str::from_utf8(mine).expect("JSON").replace("\"mine\"", "\"other\"");
    text.into_bytes().into()
}

#[tokio::test]
async fn a_lost_answer_is_recognised_as_the_own_success() {
    // proves: MB-2
    let (meta, driver) = faulty();
    let store = ClusterSubscriptionStore::load(&meta, &writer("a")).await.expect("loads");
    let id = group("g");
    driver.lose_answers(1);
    let Created::Written(made) = store.create_group(&id, group_record("a")).await.expect("recognised") else {
        panic!("it was ours");
    };
    driver.lose_answers(1);
    let Replaced::Replaced(changed) =
        store.update_group(&id, &made, group_record("b")).await.expect("recognised")
    else {
        panic!("it was ours");
    };
    assert_eq!(store.group(&id).expect("shows").record.home.as_str(), "b");
    driver.lose_answers(1);
    assert!(matches!(store.remove_group(&id, &changed).await.expect("recognised"), Removed::Removed(_)));
    assert!(store.group(&id).is_none());

    for kind in [BackendErrorKind::Unavailable, BackendErrorKind::Full] {
        driver.fail_writes(1, kind);
        let error = store.create_group(&id, group_record("a")).await.expect_err("did not happen");
        assert_eq!(error.kind(), kind);
        assert!(store.group(&id).is_none());
    }
}

#[tokio::test]
async fn a_record_of_a_newer_version_is_left_out_and_not_overwritten() {
    // covers: U83
    let (meta, _driver) = faulty();
    let tasks = Tasks::new();
    let store = ClusterSubscriptionStore::load(&meta, &writer("a")).await.expect("loads");
    store.follow(&tasks);
    meta.put("/em/groups/acme/orders/lb/newer", r#"{"v":2,"shape":"other"}"#).await.expect("writes");
    meta.put("/em/groups/acme/orders/lb/damaged", "{").await.expect("writes");
    meta.put("/em/groups/nonsense", "{}").await.expect("writes");
    let outcome = store.create_group(&group("good"), group_record("a")).await.expect("writes");
    assert!(matches!(outcome, Created::Written(_)), "{outcome:?}");
    let again = ClusterSubscriptionStore::load(&meta, &writer("b")).await.expect("lists");
    assert_eq!(again.groups().len(), 1);
    meta.put("/em/groups/acme/orders/lb/last", meta_value(&meta).await).await.expect("writes");
    eventually("the watch to go on", || store.group(&group("last")).map(|_| ()).ok_or(())).await;
    let refused = store.create_group(&group("newer"), group_record("a")).await.expect_err("not ours to read");
    assert_eq!(refused.kind(), BackendErrorKind::Refused);
    assert!(tasks.shut_down(std::time::Duration::from_secs(5)).await);
}

async fn meta_value(meta: &mesh_meta::MetaStore) -> bytes::Bytes {
    meta.get("/em/groups/acme/orders/lb/good").await.expect("reads").expect("is there").value
}
