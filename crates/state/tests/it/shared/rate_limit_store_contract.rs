//! Rates of topics in Meta: changed by several at once, kept over a restart, untouched by a failure.

use mesh_base::BackendErrorKind;
use mesh_frame::{InstanceId, TopicName};
use mesh_state::shared::{RateLimit, RateLimitStore, Writer};

use super::arrange::{faulty, local};

fn topic(name: &str) -> TopicName {
    TopicName::new(name).expect("legal")
}

fn writer(name: &str) -> Writer {
    Writer::new(&InstanceId::new(name).expect("legal"), &mesh_base::Chance::system())
}

#[tokio::test]
async fn rates_are_kept_over_a_restart_and_removed_for_good() {
    let folder = tempfile::tempdir().expect("a folder");
    let (slow, fast) = (RateLimit { capacity: 1, rate: 0.5 }, RateLimit { capacity: 100, rate: 1e6 });
    {
        let store = RateLimitStore::new(&local(&folder), &writer("one"));
        assert!(store.all().await.expect("read").is_empty());
        store.put(&topic("a"), fast).await.expect("kept");
        store.put(&topic("b"), fast).await.expect("kept");
        assert_eq!(store.put(&topic("a"), slow).await.expect("kept")[&topic("a")], slow);
        store.remove(&topic("b")).await.expect("removed");
        store.remove(&topic("never")).await.expect("nothing to do");
    }
    let store = RateLimitStore::new(&local(&folder), &writer("one"));
    assert_eq!(store.all().await.expect("read").into_iter().collect::<Vec<_>>(), [(topic("a"), slow)]);
}

#[tokio::test]
async fn changes_at_once_are_all_kept_and_a_failure_changes_nothing() {
    let (meta, driver) = faulty();
    let limit = RateLimit { capacity: 1, rate: 1.0 };
    let names: Vec<TopicName> = (0..20).map(|n| topic(&format!("t{n}"))).collect();
    let stores: Vec<RateLimitStore> =
        (0..20).map(|n| RateLimitStore::new(&meta, &writer(&format!("w{n}")))).collect();
    let changes = names.iter().zip(&stores).map(|(name, store)| store.put(name, limit));
    for changed in futures_util::future::join_all(changes).await {
        changed.expect("kept");
    }
    assert_eq!(stores[0].all().await.expect("read").len(), 20);
    driver.fail_writes(1, BackendErrorKind::Unavailable);
    assert!(stores[0].remove(&names[0]).await.is_err());
    assert_eq!(stores[1].all().await.expect("read").len(), 20);
    driver.lose_answers(1);
    assert_eq!(stores[0].remove(&names[0]).await.expect("it knows its own write").len(), 19);
}
