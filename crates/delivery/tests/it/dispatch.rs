//! Hand-outs, acks and waiting.

use std::time::Duration;

use mesh_delivery::{AskedSettings, Mode, PollError, SettleOutcome};
use mesh_frame::{EventBuilder, Filter};

use crate::rig::{Rig, anybody, client, event, events, got, quick, tenant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_is_given_once_and_ends_with_its_ack() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish_ids(0..3).await;
    let first = rig.poll("c", 10, 1_000).await;
    assert_eq!(events(&first), ["0", "1", "2"]);
    assert_eq!(rig.dispatcher.pending_count(), 3);
    assert_eq!(rig.poll("c", 10, 0).await.len(), 0);
    assert_eq!(rig.ack(&[&first[0], &first[1], &first[2]]).await, [SettleOutcome::Settled; 3]);
    assert_eq!(rig.ack(&[&first[0]]).await, [SettleOutcome::Unknown]);
    assert_eq!(rig.dispatcher.pending_count(), 0);
    assert_eq!(rig.outstanding(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_parallel_acks_one_succeeds() {
    // covers: U57
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish_ids(0..1).await;
    let taken = rig.poll("c", 1, 1_000).await;
    let delivery = [&taken[0]];
    let acks = (0..50).map(|_| rig.ack(&delivery));
    let outcomes = futures_util::future::join_all(acks).await;
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == [SettleOutcome::Settled]).count(), 1);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == [SettleOutcome::Unknown]).count(), 49);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_poll_gets_the_event_when_it_comes_and_another_waits_on() {
    // covers: U129, U171
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    for round in 0..15 {
        let publish = async {
            tokio::task::yield_now().await;
            rig.publish_ids(round..round + 1).await;
        };
        let polls = futures_util::future::select(
            Box::pin(rig.poll("c", 10, 20_000)),
            Box::pin(rig.poll("c", 10, 20_000)),
        );
        let (polled, ()) = tokio::join!(polls, publish);
        let (got, other) = polled.factor_first();
        assert_eq!(got.len(), 1, "round {round}");
        let other = tokio::time::timeout(Duration::from_millis(20), other).await;
        assert!(other.is_err(), "round {round}: the other one has {other:?}");
        rig.ack(&got.iter().collect::<Vec<_>>()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_never_left_comes_back_uncounted() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish_ids(0..2).await;
    let answer = rig.dispatcher.poll(&anybody(), &client("c"), 10, Duration::ZERO).await.expect("an answer");
    let void = got(&answer);
    assert_eq!(void.len(), 2);
    drop(answer);
    assert_eq!(rig.ack(&[&void[0]]).await, [SettleOutcome::Unknown], "the first id is void");
    let again = rig.poll("c", 10, 1_000).await;
    assert_eq!(again.iter().map(|got| got.attempt).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(rig.ack(&[&again[0]]).await, [SettleOutcome::Settled]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_poll_takes_nothing_and_passes_its_wake_up_on() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    for round in 0..20 {
        let cancelled =
            tokio::time::timeout(Duration::from_micros(500 * u64::from(round)), rig.poll("c", 10, 5_000));
        let given = parking_lot::Mutex::new(None);
        let cancelled = async { *given.lock() = Some(cancelled.await.unwrap_or_default()) };
        // Whoever waits gets it, unless the other one had it before it was cancelled.
        let other_has_it = async {
            rig.until("the other one's end", || given.lock().is_some()).await;
            if given.lock().as_ref().is_some_and(Vec::is_empty) {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let waiting = async {
            tokio::select! {
                got = rig.poll("c", 10, 20_000) => got,
                () = other_has_it => Vec::new(),
            }
        };
        let ((), waiting, ()) = tokio::join!(cancelled, waiting, rig.publish_ids(round..round + 1));
        let given = given.into_inner().unwrap_or_default();
        assert_eq!(given.len() + waiting.len(), 1, "round {round}");
        for got in given.iter().chain(&waiting) {
            assert_eq!(got.attempt, 1);
            rig.ack(&[got]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_ran_out_brings_the_event_back_with_its_attempt_counted() {
    // covers: U50
    let rig = Rig::new().await;
    // However late the ack is, the second attempt is not the last.
    let asked = AskedSettings { max_attempts: Some(100), ..quick() };
    rig.subscribe("c", Mode::LoadBalance, asked).await;
    rig.publish_ids(0..1).await;
    let first = rig.poll("c", 1, 1_000).await;
    let second = rig.poll("c", 1, 5_000).await;
    assert_eq!((first[0].attempt, second[0].attempt), (1, 2));
    assert_eq!(rig.ack(&[&first[0]]).await, [SettleOutcome::Settled], "any id of a live delivery will do");
    assert_eq!(rig.ack(&[&second[0]]).await, [SettleOutcome::Unknown]);
    assert_eq!(rig.poll("c", 1, 300).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_events_of_a_key_wait_for_each_other() {
    // covers: U37
    let rig = Rig::new().await;
    // Long enough for a few polls on a busy machine.
    let asked = AskedSettings { ack_timeout_ms: Some(2_000), ..quick() };
    rig.subscribe("a", Mode::LoadBalance, asked.clone()).await;
    rig.subscribe("b", Mode::LoadBalance, asked).await;
    for id in 0..5 {
        rig.publish(event(&id.to_string(), Some("k"))).await;
    }
    let run = rig.poll("a", 2, 1_000).await;
    assert_eq!(events(&run), ["0", "1"]);
    assert_eq!(rig.poll("b", 10, 0).await.len(), 0, "the key is with a");
    assert_eq!(events(&rig.poll("a", 10, 0).await), ["2", "3", "4"]);
    rig.until("the locks run out", || rig.dispatcher.positions(&crate::rig::topic())[0].pending == 1).await;
    let again = rig.poll("b", 10, 5_000).await;
    assert_eq!(events(&again), ["0", "1", "2", "3", "4"], "withdrawn behind the first");
    assert_eq!(again.iter().map(|got| got.attempt).collect::<Vec<_>>(), [2, 1, 1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_window_and_a_blocked_client_hold_up_nobody_else() {
    // covers: U36, U180
    let rig = Rig::with(8, 1).await;
    rig.subscribe("silent", Mode::Broadcast, AskedSettings::default()).await;
    rig.subscribe("busy", Mode::Broadcast, AskedSettings::default()).await;
    rig.publish_ids(0..100).await;
    assert_eq!(rig.poll("silent", 100, 0).await.len(), 8, "as many rows as a group may have");
    assert_eq!(rig.poll("silent", 100, 0).await.len(), 0);
    let mut received = 0;
    while received < 100 {
        let batch = rig.poll("busy", 100, 2_000).await;
        assert!(!batch.is_empty(), "the other group stands still at {received}");
        received += batch.len();
        rig.ack(&batch.iter().collect::<Vec<_>>()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_events_hold_nobody_up_and_leave_nothing_pending() {
    // covers: U41
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    for id in 0..50 {
        let short =
            EventBuilder::new(&id.to_string(), "/t", "t").attribute("emttl", "1").build().expect("an event");
        rig.publish(short).await;
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    rig.publish(event("fresh", None)).await;
    let taken = rig.poll("c", 10, 1_000).await;
    assert_eq!(events(&taken), ["fresh"]);
    rig.ack(&[&taken[0]]).await;
    assert_eq!(rig.dispatcher.pending_count(), 0);
    rig.until("the floor is at the end", || {
        let position = &rig.dispatcher.positions(&crate::rig::topic())[0];
        position.floor == position.end
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_filters_drop_moves_the_durable_cursor_within_a_second() {
    // covers: U38
    let rig = Rig::new().await;
    let filter = Filter::parse(&serde_json::json!({"exact": {"subject": "wanted"}})).expect("a filter");
    let asked = AskedSettings { filters: Some(vec![filter]), ..AskedSettings::default() };
    rig.subscribe("c", Mode::Multicast, asked).await;
    rig.publish_ids(0..20).await;
    assert_eq!(rig.poll("c", 10, 0).await.len(), 0);
    rig.until("progress without a hand-out", || {
        rig.dispatcher.positions(&crate::rig::topic())[0].floor.0 == 20
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn automatic_acks_leave_no_rows_and_give_an_event_once() {
    let rig = Rig::new().await;
    let asked = AskedSettings { ack: Some(mesh_delivery::AckMode::Auto), ..AskedSettings::default() };
    rig.subscribe("c", Mode::LoadBalance, asked).await;
    rig.publish_ids(0..3).await;
    let taken = rig.poll("c", 10, 1_000).await;
    assert_eq!(taken.len(), 3);
    assert_eq!(rig.outstanding(), 0);
    assert_eq!(rig.ack(&[&taken[0]]).await, [SettleOutcome::Unknown]);
    assert_eq!(rig.poll("c", 10, 50).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn polling_creates_nothing_and_says_who_was_evicted() {
    // covers: U130
    let rig = Rig::new().await;
    let poll = |name: &'static str| {
        let rig = &rig;
        async move { rig.dispatcher.poll(&anybody(), &client(name), 1, Duration::ZERO).await }
    };
    assert!(matches!(poll("nobody").await, Err(PollError::UnknownClient)));
    assert_eq!(rig.dispatcher.client(&tenant(), &client("nobody")), None);
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    assert_eq!(rig.groups.reject(&tenant(), &client("c")).await.expect("evicted"), 1);
    assert!(matches!(poll("c").await, Err(PollError::Expired)));
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    assert!(poll("c").await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_read_of_the_log_skips_nothing() {
    // covers: U69
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    // More than the tail cache holds.
    let data = "x".repeat(64 << 10);
    for id in 0..100 {
        let large =
            EventBuilder::new(&id.to_string(), "/t", "t").text(data.as_str()).build().expect("an event");
        rig.publish(large).await;
    }
    rig.log.fail_reads([mesh_storage::faulty::Fault::Fail(mesh_base::BackendErrorKind::Unavailable)]);
    let failed = rig.dispatcher.poll(&anybody(), &client("c"), 10, Duration::ZERO).await;
    assert!(matches!(failed, Err(PollError::Ledger(_))), "{failed:?}");
    let mut seen = Vec::new();
    while seen.len() < 100 {
        let batch = rig.poll("c", 30, 1_000).await;
        assert!(!batch.is_empty());
        seen.extend(batch.into_iter().map(|got| got.event));
    }
    assert_eq!(seen, (0..100).map(|id| id.to_string()).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_stays_with_the_member_that_had_it_last_while_that_one_waits_and_goes_on_without_it() {
    let rig = Rig::new().await;
    rig.subscribe("a", Mode::LoadBalance, AskedSettings::default()).await;
    rig.subscribe("b", Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish(event("0", Some("k"))).await;
    let first = rig.poll("b", 10, 1_000).await;
    rig.ack(&[&first[0]]).await;
    for round in 1..20_u32 {
        // However long the other one has waited already.
        let waiting = async {
            let a = Box::pin(rig.poll("a", 10, 20_000));
            let b = Box::pin(async {
                tokio::task::yield_now().await;
                rig.poll("b", 10, 20_000).await
            });
            match futures_util::future::select(a, b).await {
                futures_util::future::Either::Left(_) => panic!("round {round}: a has it"),
                futures_util::future::Either::Right((got, _)) => got,
            }
        };
        let publish = async {
            tokio::time::sleep(Duration::from_millis(1 + u64::from(round) % 5)).await;
            rig.publish(event(&round.to_string(), Some("k"))).await;
        };
        let (got, ()) = tokio::join!(waiting, publish);
        assert_eq!(events(&got), [round.to_string()], "with b");
        rig.ack(&[&got[0]]).await;
    }
    // Nothing of the key is in flight and b asks for nothing: a is not held up.
    rig.publish(event("last", Some("k"))).await;
    let got = rig.poll("a", 10, 1_000).await;
    assert_eq!(events(&got), ["last"]);
    rig.ack(&[&got[0]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_filters_hold_for_what_is_handed_out_again_too() {
    let rig = Rig::new().await;
    let asked = AskedSettings { max_attempts: Some(0), ..quick() };
    rig.subscribe("c", Mode::LoadBalance, asked.clone()).await;
    for subject in ["wanted", "other"] {
        let event = EventBuilder::new(subject, "/t", "t").attribute("subject", subject);
        rig.publish(event.build().expect("an event")).await;
    }
    assert_eq!(rig.poll("c", 10, 1_000).await.len(), 2, "without filters");
    let filter = Filter::parse(&serde_json::json!({"exact": {"subject": "wanted"}})).expect("a filter");
    rig.subscribe("c", Mode::LoadBalance, AskedSettings { filters: Some(vec![filter]), ..asked }).await;
    // Their locks run out, and one of them is wanted still.
    let again = rig.poll("c", 10, 5_000).await;
    assert_eq!(events(&again), ["wanted"]);
    rig.ack(&[&again[0]]).await;
    // The lock of the other runs out a little later; it is looked at, and ends.
    let end = rig.clock.elapsed() + crate::rig::DEADLINE;
    while rig.dropped("filtered") == 0 {
        assert!(rig.clock.elapsed() < end, "the other is not counted");
        assert_eq!(events(&rig.poll("c", 10, 50).await), Vec::<&str>::new());
    }
    assert_eq!((rig.outstanding(), rig.poll("c", 10, 0).await.len()), (0, 0));
}
