//! Nack, extend and reject: what each does to a delivery, and which ids it takes.

use std::time::Duration;

use mesh_delivery::{AskedSettings, Change, Mode, SettingsChange, SettleOutcome};
use mesh_frame::TenantId;

use crate::rig::{Got, Rig, anybody, event, events, quick, tenant, topic};

const NOW: Option<Duration> = Some(Duration::ZERO);

fn ids(got: &[&Got]) -> Vec<String> {
    got.iter().map(|got| got.delivery.clone()).collect()
}

impl Rig {
    pub(crate) async fn nack(&self, got: &[&Got], delay: Option<Duration>) -> Vec<SettleOutcome> {
        self.dispatcher.nack(&self.dispatcher.resolve(&tenant(), &ids(got)), delay, None).await
    }

    async fn extend(&self, got: &[&Got], by_ms: u64) -> Vec<SettleOutcome> {
        self.dispatcher
            .extend(&self.dispatcher.resolve(&tenant(), &ids(got)), Duration::from_millis(by_ms), None)
            .await
    }

    async fn reject(&self, got: &[&Got]) -> Vec<SettleOutcome> {
        self.dispatcher.reject(&self.dispatcher.resolve(&tenant(), &ids(got)), None).await
    }

    async fn reasons(&self) -> Vec<(String, String, u32)> {
        let letters = self.dispatcher.dead_letters(&topic(), 100).await.expect("browsed");
        letters
            .into_iter()
            .map(|view| {
                let letter = view.letter;
                (letter.event_id, letter.reason.as_str().to_owned(), letter.attempts)
            })
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nack_brings_the_event_back_when_its_delay_is_over_with_its_attempt_counted() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish_ids(0..2).await;
    let first = rig.poll("c", 10, 1_000).await;
    let delay = Duration::from_millis(150);
    let start = rig.clock.elapsed();
    assert_eq!(rig.nack(&[&first[0]], Some(delay)).await, [SettleOutcome::Settled]);
    assert_eq!(rig.nack(&[&first[1]], NOW).await, [SettleOutcome::Settled]);
    let at_once = rig.poll("c", 10, 1_000).await;
    assert_eq!((at_once[0].event.as_str(), at_once[0].attempt), ("1", 2));
    let later = rig.poll("c", 10, 5_000).await;
    assert_eq!((later[0].event.as_str(), later[0].attempt), ("0", 2));
    assert!(rig.clock.elapsed() - start >= delay, "{:?}", rig.clock.elapsed() - start);
    assert_ne!(later[0].delivery, first[0].delivery);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_delay_of_a_nack_holds_also_after_the_lock_ran_out_and_the_event_was_due() {
    // covers: U50
    let rig = Rig::new().await;
    let asked = AskedSettings { max_attempts: Some(100), ..quick() };
    for key in [None, Some("k")] {
        rig.subscribe("c", Mode::LoadBalance, asked.clone()).await;
        rig.publish(event("1", key)).await;
        let taken = rig.poll("c", 1, 1_000).await;
        // The lock of 100 ms and the wait of at most 60 behind it.
        let due = rig.clock.elapsed() + Duration::from_millis(400);
        rig.until("the event to be due", || rig.clock.elapsed() > due).await;
        let outcome = rig.nack(&[&taken[0]], Some(Duration::from_secs(60))).await;
        assert_eq!(outcome, [SettleOutcome::Settled], "{key:?}");
        assert_eq!(rig.poll("c", 1, 200).await.len(), 0, "{key:?}: it came before its delay was over");
        assert_eq!(rig.ack(&[&taken[0]]).await, [SettleOutcome::Settled], "{key:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_and_void_ids_nack_and_extend_nothing_and_any_live_id_acks_or_rejects() {
    // covers: U50
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish_ids(0..2).await;
    let first = rig.poll("c", 10, 1_000).await;
    assert_eq!(rig.nack(&[&first[0], &first[1]], NOW).await, [SettleOutcome::Settled; 2]);
    let second = rig.poll("c", 10, 1_000).await;
    assert_eq!(second.len(), 2);
    // The ids of the first hand-out are late now.
    assert_eq!(rig.nack(&[&first[0]], NOW).await, [SettleOutcome::Unknown]);
    assert_eq!(rig.extend(&[&first[0]], 60_000).await, [SettleOutcome::Unknown]);
    assert_eq!(rig.poll("c", 10, 100).await.len(), 0, "the counter did not move");
    assert_eq!(rig.ack(&[&first[0]]).await, [SettleOutcome::Settled]);
    assert_eq!(rig.reject(&[&first[1]]).await, [SettleOutcome::Settled]);
    for got in &second {
        assert_eq!(rig.ack(&[got]).await, [SettleOutcome::Unknown]);
        assert_eq!(rig.nack(&[got], NOW).await, [SettleOutcome::Unknown]);
        assert_eq!(rig.extend(&[got], 60_000).await, [SettleOutcome::Unknown]);
        assert_eq!(rig.reject(&[got]).await, [SettleOutcome::Unknown]);
    }
    assert_eq!(rig.reasons().await, [("1".to_owned(), "rejected".to_owned(), 2)]);
    assert_eq!(rig.poll("c", 10, 100).await.len(), 0);

    // An answer that never left voids its ids for every verb.
    rig.publish_ids(2..3).await;
    let answer = rig.dispatcher.poll(&anybody(), &crate::rig::client("c"), 1, Duration::ZERO).await;
    let answer = answer.expect("an answer");
    let void = crate::rig::got(&answer);
    drop(answer);
    assert_eq!(rig.nack(&[&void[0]], NOW).await, [SettleOutcome::Unknown]);
    assert_eq!(rig.extend(&[&void[0]], 60_000).await, [SettleOutcome::Unknown]);
    assert_eq!(rig.reject(&[&void[0]]).await, [SettleOutcome::Unknown]);
    let again = rig.poll("c", 1, 1_000).await;
    assert_eq!(again[0].attempt, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_tenants_ids_settle_nothing() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish_ids(0..1).await;
    let taken = rig.poll("c", 1, 1_000).await;
    let (other, its) = (TenantId::new("other").expect("legal"), ids(&[&taken[0]]));
    assert_eq!(rig.dispatcher.ack(&rig.dispatcher.resolve(&other, &its)).await, [SettleOutcome::Unknown]);
    assert_eq!(
        rig.dispatcher.nack(&rig.dispatcher.resolve(&other, &its), NOW, None).await,
        [SettleOutcome::Unknown]
    );
    assert_eq!(
        rig.dispatcher.extend(&rig.dispatcher.resolve(&other, &its), Duration::from_secs(1), None).await,
        [SettleOutcome::Unknown]
    );
    assert_eq!(
        rig.dispatcher.reject(&rig.dispatcher.resolve(&other, &its), None).await,
        [SettleOutcome::Unknown]
    );
    assert_eq!(rig.ack(&[&taken[0]]).await, [SettleOutcome::Settled]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nack_of_the_last_attempt_makes_a_dead_letter_at_once() {
    let rig = Rig::new().await;
    let patient = AskedSettings { max_attempts: Some(2), ..AskedSettings::default() };
    rig.subscribe("c", Mode::LoadBalance, patient).await;
    rig.publish_ids(0..1).await;
    for attempt in 1..=2 {
        let taken = rig.poll("c", 1, 5_000).await;
        assert_eq!(taken[0].attempt, attempt);
        assert_eq!(rig.nack(&[&taken[0]], NOW).await, [SettleOutcome::Settled]);
    }
    rig.until("the dead letter", || rig.dispatcher.pending_count() == 0).await;
    assert_eq!(rig.reasons().await, [("0".to_owned(), "attempts_exhausted".to_owned(), 2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extend_keeps_a_delivery_also_after_its_lock_ran_out_while_nobody_else_has_it() {
    let rig = Rig::new().await;
    // Its lock is short, the wait for the next attempt long.
    let asked = AskedSettings {
        ack_timeout_ms: Some(100),
        backoff_ms: Some(20_000),
        max_backoff_ms: Some(20_000),
        ..AskedSettings::default()
    };
    rig.subscribe("c", Mode::LoadBalance, asked).await;
    rig.publish_ids(0..2).await;
    let taken = rig.poll("c", 10, 1_000).await;
    assert_eq!(rig.extend(&[&taken[0]], 60_000).await, [SettleOutcome::Settled]);
    let held = || rig.dispatcher.clients(&topic()).iter().map(|client| client.pending).sum::<usize>();
    assert_eq!(held(), 2);
    let out = rig.clock.elapsed() + Duration::from_millis(250);
    rig.until("the other lock ran out", || rig.clock.elapsed() > out).await;
    assert_eq!(rig.extend(&[&taken[1]], 60_000).await, [SettleOutcome::Settled]);
    assert_eq!(rig.poll("c", 10, 200).await.len(), 0, "both are locked");
    assert_eq!(rig.ack(&[&taken[0], &taken[1]]).await, [SettleOutcome::Settled; 2]);
    assert_eq!(rig.dispatcher.pending_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reject_is_answered_when_its_dead_letter_is_stored() {
    // covers: U53
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish_ids(0..300).await;
    let taken = rig.poll("c", 300, 1_000).await;
    let all: Vec<&Got> = taken.iter().collect();
    assert_eq!(rig.reject(&all[..1]).await, [SettleOutcome::Settled]);
    assert_eq!(rig.reasons().await, [("0".to_owned(), "rejected".to_owned(), 1)]);
    let outcomes = rig.reject(&all).await;
    assert_eq!(outcomes[0], SettleOutcome::Unknown);
    assert!(outcomes[1..].iter().all(|outcome| *outcome == SettleOutcome::Settled), "{outcomes:?}");
    assert_eq!(rig.dispatcher.pending_count(), 0);
    assert_eq!(rig.poll("c", 10, 100).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reject_whose_dead_letter_cannot_be_stored_says_so_and_is_done_later() {
    // covers: U45
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, quick()).await;
    rig.publish_ids(0..1).await;
    let taken = rig.poll("c", 1, 1_000).await;
    rig.meta.partition(true);
    assert_eq!(rig.reject(&[&taken[0]]).await, [SettleOutcome::Unavailable { full: false }]);
    assert_eq!(rig.dispatcher.pending_count(), 1);
    rig.meta.partition(false);
    rig.until("the dead letter", || rig.dispatcher.pending_count() == 0).await;
    assert_eq!(rig.reasons().await, [("0".to_owned(), "rejected".to_owned(), 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reject_of_what_the_backlog_limits_took_is_not_called_done() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish_ids(0..3).await;
    let taken = rig.poll("c", 10, 1_000).await;
    let limits = SettingsChange { backlog_max_bytes: Change::Set(1), ..SettingsChange::default() };
    rig.groups.topics().make(&topic(), None, limits).await.expect("changed");
    let log = rig.storage.topic(&topic()).expect("a topic");
    rig.dispatcher.retain_topic(&log).await.expect("retained");
    rig.publish_ids(3..4).await;
    let fresh = rig.poll("c", 10, 1_000).await;
    // Some of it has a dead letter and some cannot have one any more.
    let outcomes = rig.reject(&[&taken[0], &fresh[0], &taken[1]]).await;
    assert_eq!(outcomes, [SettleOutcome::Unknown, SettleOutcome::Settled, SettleOutcome::Unknown]);
    assert_eq!(rig.reasons().await, [("3".to_owned(), "rejected".to_owned(), 1)]);
    assert_eq!(rig.ack(&[&taken[2]]).await, [SettleOutcome::Settled], "an ack needs no event");
    assert_eq!(rig.dispatcher.pending_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nack_withdraws_what_comes_behind_it_of_its_key() {
    // covers: U37
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    for id in 0..3 {
        rig.publish(event(&id.to_string(), Some("k"))).await;
    }
    let run = rig.poll("c", 10, 1_000).await;
    assert_eq!(rig.nack(&[&run[0]], NOW).await, [SettleOutcome::Settled]);
    assert_eq!(rig.nack(&[&run[1]], NOW).await, [SettleOutcome::Unknown], "it was withdrawn");
    assert_eq!(rig.extend(&[&run[1]], 60_000).await, [SettleOutcome::Unknown], "it was withdrawn");
    assert_eq!(rig.ack(&[&run[1]]).await, [SettleOutcome::Settled], "who goes on all the same loses nothing");
    let again = rig.poll("c", 10, 1_000).await;
    assert_eq!(events(&again), ["0", "2"], "what was acknowledged does not come again");
    assert_eq!(again.iter().map(|got| got.attempt).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(rig.ack(&[&run[2]]).await, [SettleOutcome::Unknown], "it was handed out again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_given_back_uncounted_leaves_the_ids_before_it_good() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, quick()).await;
    rig.publish_ids(0..1).await;
    let by_poll = rig.poll("c", 1, 1_000).await;
    // Its lock runs out, and an answer that never leaves takes it.
    let given = loop {
        let wait = Duration::from_millis(1_000);
        let answer =
            rig.dispatcher.poll(&anybody(), &crate::rig::client("c"), 1, wait).await.expect("an answer");
        if !answer.deliveries().is_empty() {
            break crate::rig::got(&answer);
        }
    };
    assert_eq!(given.len(), 1);
    assert_eq!(rig.ack(&[&by_poll[0]]).await, [SettleOutcome::Settled]);
    assert_eq!(rig.poll("c", 1, 200).await.len(), 0, "it does not come again");
}
