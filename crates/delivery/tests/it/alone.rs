//! Events whose lock was lost twice go out alone.

use std::time::Duration;

use mesh_delivery::{AskedSettings, Mode, SettleOutcome};

use crate::{
    rig::{Got, Rig, event, events, quick},
    streams::Reader,
};

/// A group with locks that run out soon, and attempts enough.
fn asked() -> AskedSettings {
    AskedSettings { max_attempts: Some(0), backoff_ms: Some(0), max_backoff_ms: Some(0), ..quick() }
}

impl Rig {
    /// Polls until something comes that lost its lock before.
    async fn again(&self, name: &str, attempt: u32) -> Vec<Got> {
        let got = self.poll(name, 100, 5_000).await;
        assert!(!got.is_empty() && got.iter().all(|got| got.attempt == attempt), "{got:?}");
        got
    }

    /// Every event of the topic has lost its lock twice.
    async fn lose_twice(&self, name: &str, count: usize) {
        for attempt in 1..=2 {
            assert_eq!(self.again(name, attempt).await.len(), count);
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_two_lost_locks_a_member_has_one_such_event_at_a_time_and_other_events_beside_it() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, asked()).await;
    rig.publish_ids(0..3).await;
    rig.lose_twice("c", 3).await;
    rig.publish_ids(3..5).await;
    let first = rig.poll("c", 100, 1_000).await;
    assert_eq!((events(&first), first[0].attempt), (vec!["0"], 3), "nothing new beside it");
    // The others that go alone wait; what never failed does not.
    assert_eq!(events(&rig.poll("c", 100, 0).await), ["3", "4"]);
    assert_eq!(rig.ack(&[&first[0]]).await, [SettleOutcome::Settled]);
    assert_eq!(events(&rig.poll("c", 100, 1_000).await), ["1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_member_that_waits_is_woken_for_what_one_cannot_have() {
    let rig = Rig::new().await;
    rig.subscribe("one", Mode::LoadBalance, AskedSettings { ack_timeout_ms: Some(1_000), ..asked() }).await;
    rig.subscribe("two", Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish_ids(0..2).await;
    for _ in 0..2 {
        assert_eq!(rig.poll("one", 100, 5_000).await.len(), 2);
        tokio::time::sleep(Duration::from_millis(1_050)).await;
    }
    let (first, other) = (rig.poll("one", 100, 5_000).await, rig.poll("two", 100, 5_000).await);
    assert_eq!((events(&first), events(&other)), (vec!["0"], vec!["1"]));
    rig.nack(&[&other[0]], Some(Duration::from_millis(200))).await;
    // The first that waits is woken first, and has one already.
    let cannot = rig.poll("one", 100, 500);
    let can = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        rig.poll("two", 100, 500).await
    };
    let (cannot, can) = tokio::join!(cannot, can);
    assert_eq!((events(&cannot), events(&can)), (vec![], vec!["1"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nack_is_no_lost_lock_and_one_that_comes_late_takes_it_back() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, asked()).await;
    rig.publish_ids(0..2).await;
    for attempt in 1..=4 {
        let got = rig.again("c", attempt).await;
        assert_eq!(got.len(), 2, "attempt {attempt}");
        if attempt % 2 == 0 {
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        rig.nack(&got.iter().collect::<Vec<_>>(), Some(Duration::ZERO)).await;
    }
    assert_eq!(rig.again("c", 5).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_events_of_a_key_stay_in_order_when_one_of_them_goes_alone() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, asked()).await;
    for id in ["0", "1", "2"] {
        rig.publish(event(id, Some("k"))).await;
    }
    // Only the first of the key loses its lock: the later ones are withdrawn, uncounted.
    for _ in 0..2 {
        assert_eq!(events(&rig.poll("c", 100, 5_000).await), ["0", "1", "2"]);
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    let alone = rig.poll("c", 100, 5_000).await;
    assert_eq!((events(&alone), alone[0].attempt), (vec!["0"], 3));
    rig.ack(&[&alone[0]]).await;
    let rest = rig.poll("c", 100, 5_000).await;
    assert_eq!(
        rest.iter().map(|got| (got.event.as_str(), got.attempt)).collect::<Vec<_>>(),
        [("1", 1), ("2", 1)]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_stream_nothing_goes_beside_it_until_it_is_settled() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings { ack_timeout_ms: Some(60_000), ..asked() }).await;
    rig.publish_ids(0..3).await;
    for _ in 0..2 {
        let reader: Reader = rig.stream("c");
        assert_eq!(reader.read(3).await.len(), 3);
    }
    let reader = rig.stream("c");
    rig.publish_ids(3..5).await;
    for expected in ["0", "1", "2"] {
        let got = reader.read(1).await;
        assert_eq!(events(&got), [expected]);
        reader.reads_nothing().await;
        rig.ack(&[&got[0]]).await;
    }
    assert_eq!(events(&reader.read(2).await), ["3", "4"], "what never failed goes together");
}
