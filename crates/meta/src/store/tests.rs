//! What the handle adds, through the faulty wrapper.

use super::*;
use crate::{Probe, WatchEvent, faulty::FaultyMeta, memory::MemoryMeta};

fn faulty() -> (MetaStore, Arc<FaultyMeta>, Signals) {
    let driver = FaultyMeta::new(Arc::new(MemoryMeta::new()));
    let signals = Signals::new();
    let store =
        MetaStore::new(driver.clone(), Clock::system(), &signals).with_time_limit(Duration::from_millis(50));
    (store, driver, signals)
}

#[tokio::test]
async fn an_operation_without_an_answer_ends_as_unavailable() {
    // proves: MB-2
    let (store, driver, signals) = faulty();
    driver.hang(1);
    let error = store.put("k", "v").await.expect_err("no answer comes");
    assert_eq!(error.kind(), BackendErrorKind::Unavailable);
    assert!(error.chain().contains("no answer within 50ms"), "{}", error.chain());
    let text = signals.text();
    assert!(
        text.contains(r#"meta_operation_failures_total{operation="put",kind="unavailable"} 1"#),
        "{text}"
    );
}

#[tokio::test]
async fn a_value_over_the_limit_is_refused_and_not_cut() {
    let (store, _driver, _signals) = faulty();
    let limit = store.value_limit();
    store.put("k", vec![0; limit]).await.expect("fits");
    let too_large = vec![1; limit + 1];
    for error in [
        store.put("k", too_large.clone()).await.expect_err("too large"),
        store.put_if_absent("l", too_large.clone()).await.expect_err("too large"),
        store.try_acquire("k", &vec![0; limit], too_large).await.expect_err("too large"),
    ] {
        assert_eq!(error.kind(), BackendErrorKind::TooLarge);
    }
    assert_eq!(store.get("k").await.expect("reads").map(|v| v.value), Some(vec![0; limit].into()));
}

#[tokio::test]
async fn writes_fail_while_partitioned_and_the_next_one_after_healing_succeeds() {
    // proves: MB-2, MB-5
    let (store, driver, signals) = faulty();
    let mut watch = store.watch("k").await.expect("watches");
    driver.partition(true);
    for _ in 0..3 {
        let error = store.put("k", "v").await.expect_err("partitioned");
        assert_eq!(error.kind(), BackendErrorKind::Unavailable);
        assert!(store.down_since().is_some());
        assert!(signals.text().contains("eventmesh_meta_available 0"));
    }
    driver.partition(false);
    store.put("k", "v").await.expect("healed");
    assert_eq!(store.down_since(), None);
    assert!(signals.text().contains("eventmesh_meta_available 1"));
    assert_eq!(watch.next().await, Some(WatchEvent::Lost));
}

#[tokio::test]
async fn a_lost_answer_is_an_error_although_the_write_happened() {
    let (store, driver, _signals) = faulty();
    driver.lose_answers(1);
    store.put_if_absent("k", "v").await.expect_err("the answer is lost");
    assert_eq!(store.get("k").await.expect("reads").map(|v| v.value), Some("v".into()));
    driver.fail_writes(1, BackendErrorKind::Full);
    let error = store.put("k", "w").await.expect_err("full");
    assert_eq!(error.kind(), BackendErrorKind::Full);
    assert_eq!(store.get("k").await.expect("reads").map(|v| v.value), Some("v".into()));
    assert_eq!(store.down_since(), None, "a full disk is not a lost connection");
}

#[tokio::test]
async fn a_full_listing_goes_through_all_pages() {
    let (store, _driver, _signals) = faulty();
    for n in 0..2_500 {
        store.put(&format!("/l/{n:05}"), "v").await.expect("writes");
    }
    let listing = store.list("/l/").await.expect("lists");
    assert_eq!(listing.entries.len(), 2_500);
    assert!(!listing.more);
}

#[tokio::test]
async fn a_server_that_says_yes_to_every_compare_and_set_is_found_out() {
    // covers: U84
    let (store, driver, _signals) = faulty();
    assert_eq!(store.probe("/probe/a").await.expect("answers"), Probe::Holds);
    driver.always_yes(true);
    let found = store.probe("/probe/a").await.expect("answers");
    assert_eq!(found, Probe::Broken("try_acquire of a key that is not there"));
    assert_eq!(store.get("/probe/a").await.expect("reads"), None, "nothing is left behind");
    driver.partition(true);
    store.probe("/probe/a").await.expect_err("partitioned");
}
