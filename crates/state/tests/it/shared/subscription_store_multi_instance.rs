//! Two instances on one Meta, changing the same subscriptions at the same time.

use std::sync::Arc;

use mesh_base::Tasks;
use mesh_state::shared::{ClusterSubscriptionStore, GroupId, Removed, SubscriptionStore};
use tokio::task::JoinSet;

use super::arrange::{client, eventually, group, local, member, writer};

/// What a store shows: each member with the instance of its membership.
fn shown(store: &ClusterSubscriptionStore) -> Vec<(GroupId, String, String)> {
    store
        .all_members()
        .into_iter()
        .map(|(group, member)| (group, member.record.client.to_string(), member.record.instance.to_string()))
        .collect()
}

/// One of eight threads: subscribes and unsubscribes the same few clients as all the others.
async fn storm(store: Arc<ClusterSubscriptionStore>, name: &'static str, thread: usize) {
    for round in 0..100 {
        let group = group(&format!("g{}", round % 3));
        let name_of_client = format!("c{}", (round + thread) % 5);
        if (round + thread).is_multiple_of(3) {
            if let Some(there) = store.member(&group, &client(&name_of_client)) {
                // Another thread may have been first.
                match store.remove_member(&group, &there).await.expect("answers") {
                    Removed::Removed(_) | Removed::Stale(_) => {}
                }
            }
        } else {
            let own = store.put_member(&group, member(&name_of_client, name)).await.expect("subscribes");
            // An own write shows at once, unless somebody has changed it since.
            let there = store.member(&group, &client(&name_of_client));
            assert!(there.is_none_or(|there| there.revision >= own.revision));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn two_instances_converge_on_same_view() {
    // proves: CV-2, MB-6  covers: U34
    let folder = tempfile::tempdir().expect("a folder");
    let (meta, tasks) = (local(&folder), Tasks::new());
    let mut stores = Vec::new();
    for name in ["a", "b"] {
        let store = ClusterSubscriptionStore::load(&meta, &writer(name)).await.expect("loads");
        store.follow(&tasks);
        stores.push((name, Arc::new(store)));
    }
    let mut threads = JoinSet::new();
    for thread in 0..8 {
        let (name, store) = &stores[thread % 2];
        threads.spawn(storm(store.clone(), name, thread));
    }
    threads.join_all().await;

    let truth = ClusterSubscriptionStore::load(&meta, &writer("c")).await.expect("loads");
    let expected = shown(&truth);
    assert!(!expected.is_empty());
    for (name, store) in &stores {
        eventually(&format!("{name} to show {expected:?}"), || {
            let seen = shown(store);
            if seen == expected { Ok(()) } else { Err(seen) }
        })
        .await;
    }
    assert!(tasks.shut_down(std::time::Duration::from_secs(5)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remove_is_observed_by_all_instances() {
    // proves: CV-2
    let folder = tempfile::tempdir().expect("a folder");
    let (meta, tasks) = (local(&folder), Tasks::new());
    let mut stores = Vec::new();
    for name in ["a", "b", "c"] {
        let store = ClusterSubscriptionStore::load(&meta, &writer(name)).await.expect("loads");
        store.follow(&tasks);
        stores.push(store);
    }
    let group = group("billing");
    let there = stores[0].put_member(&group, member("c1", "a")).await.expect("subscribes");
    for store in &stores {
        eventually("the member everywhere", || store.member(&group, &client("c1")).map(|_| ()).ok_or(()))
            .await;
    }
    let outcome = stores[1].remove_member(&group, &there).await.expect("removes");
    assert!(matches!(outcome, Removed::Removed(_)), "{outcome:?}");
    for store in &stores {
        eventually("no member anywhere", || match store.members(&group) {
            none if none.is_empty() => Ok(()),
            some => Err(some),
        })
        .await;
    }
    assert!(tasks.shut_down(std::time::Duration::from_secs(5)).await);
}
