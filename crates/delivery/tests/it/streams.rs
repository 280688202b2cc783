//! Streams: what a connected client is pushed, and what becomes of it when the connection ends.

use std::{future::poll_fn, time::Duration};

use mesh_delivery::{AckMode, AskedSettings, ClientStream, Mode, PollError, SettleOutcome, Waiting};
use mesh_frame::EventBuilder;

use crate::rig::{DEADLINE, Got, Rig, anybody, client, event, events, got_of, quick, tenant, topic};

/// A client that reads its stream.
pub(crate) struct Reader(pub(crate) ClientStream);

impl Reader {
    async fn waiting(&self, within: Duration) -> Option<Waiting> {
        tokio::time::timeout(within, poll_fn(|cx| self.0.poll_waiting(cx))).await.ok()
    }

    /// Takes that many bytes once there is something; nothing when there is nothing in time.
    async fn read_within(&self, bytes: usize, within: Duration) -> Vec<Got> {
        loop {
            match self.waiting(within).await {
                Some(Waiting::Items { .. }) => {
                    let got = got_of(&self.0.take(bytes));
                    if !got.is_empty() {
                        return got;
                    }
                }
                Some(Waiting::Comment(_)) => {}
                Some(Waiting::Closed(_)) | None => return Vec::new(),
            }
        }
    }

    pub(crate) async fn read(&self, count: usize) -> Vec<Got> {
        let mut all = Vec::new();
        while all.len() < count {
            let some = self.read_within(1, DEADLINE).await;
            assert!(!some.is_empty(), "{} of {count} came: {:?}", all.len(), events(&all));
            all.extend(some);
        }
        all
    }

    pub(crate) async fn reads_nothing(&self) {
        let got = self.read_within(1, Duration::from_millis(150)).await;
        assert!(got.is_empty(), "{got:?}");
    }

    pub(crate) async fn end(&self) -> &'static str {
        loop {
            match self.waiting(DEADLINE).await.expect("the end in time") {
                Waiting::Closed(reason) => return reason,
                Waiting::Items { .. } => drop(self.0.take(1)),
                Waiting::Comment(_) => {}
            }
        }
    }
}

impl Rig {
    pub(crate) fn stream(&self, name: &str) -> Reader {
        Reader(self.dispatcher.stream(&anybody(), &client(name)).expect("a stream"))
    }

    fn held(&self) -> usize {
        self.dispatcher.positions(&topic()).iter().map(|view| view.pending).sum()
    }
}

fn names(ids: std::ops::Range<u32>) -> Vec<String> {
    ids.map(|id| id.to_string()).collect()
}

fn attempts(got: &[Got]) -> Vec<u32> {
    got.iter().map(|got| got.attempt).collect()
}

fn patient() -> AskedSettings {
    AskedSettings { backoff_ms: Some(20), max_backoff_ms: Some(50), ..AskedSettings::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_gives_what_is_there_and_what_comes_in_order() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, patient()).await;
    rig.publish_ids(0..3).await;
    let reader = rig.stream("c");
    assert_eq!(events(&reader.read(3).await), ["0", "1", "2"]);
    for id in 3..20 {
        rig.publish_ids(id..id + 1).await;
    }
    let rest = reader.read(17).await;
    assert_eq!(events(&rest), names(3..20));
    assert_eq!(rig.held(), 20);
    assert!(rig.ack(&rest.iter().collect::<Vec<_>>()).await.iter().all(|o| *o == SettleOutcome::Settled));
    reader.reads_nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_more_gets_its_share_of_what_was_not_written_yet() {
    let rig = Rig::new().await;
    rig.subscribe("a", Mode::LoadBalance, patient()).await;
    rig.publish_ids(0..20).await;
    let a = rig.stream("a");
    rig.until("all to be in the mailbox of the first", || rig.held() == 20).await;
    rig.subscribe("b", Mode::LoadBalance, patient()).await;
    let b = rig.stream("b");
    let of_b = b.read(10).await;
    let of_a = a.read(10).await;
    b.reads_nothing().await;
    a.reads_nothing().await;
    let mut all = [events(&of_a), events(&of_b)].concat();
    all.sort_by_key(|id| id.parse::<u32>().expect("a number"));
    assert_eq!(all, names(0..20));
    assert_eq!([attempts(&of_a), attempts(&of_b)].concat(), [1; 20], "what was given back is not counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_break_everything_that_was_not_settled_comes_again_and_nothing_else() {
    // covers: U132
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, patient()).await;
    rig.publish_ids(0..100).await;
    let reader = rig.stream("c");
    let read = reader.read(10).await;
    rig.ack(&read[..5].iter().collect::<Vec<_>>()).await;
    drop(reader);
    let reader = rig.stream("c");
    let again = reader.read(95).await;
    assert_eq!(events(&again), names(5..100), "in order");
    assert_eq!(attempts(&again[..5]), [2; 5], "written before");
    assert_eq!(attempts(&again[5..]), [1; 90], "never written");
    reader.reads_nothing().await;
    assert_eq!(rig.ack(&[&read[5]]).await, [SettleOutcome::Settled], "the first id is good too");
    rig.ack(&again.iter().collect::<Vec<_>>()).await;
    assert_eq!(rig.dispatcher.pending_count(), 0);
    drop(reader);
    rig.stream("c").reads_nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_stream_is_due_at_once_the_first_time_then_with_backoff_then_dead() {
    let rig = Rig::new().await;
    let asked = AskedSettings {
        backoff_ms: Some(1_500),
        max_backoff_ms: Some(1_500),
        max_attempts: Some(3),
        ..AskedSettings::default()
    };
    rig.subscribe("c", Mode::LoadBalance, asked).await;
    rig.publish_ids(0..1).await;
    assert_eq!(attempts(&rig.stream("c").read(1).await), [1]);
    let start = rig.clock.elapsed();
    assert_eq!(attempts(&rig.stream("c").read(1).await), [2]);
    let lost = rig.clock.elapsed();
    assert!(lost - start < Duration::from_millis(1_100), "at once: {:?}", lost - start);
    assert_eq!(attempts(&rig.stream("c").read(1).await), [3]);
    let waited = rig.clock.elapsed() - lost;
    assert!(waited >= Duration::from_millis(1_150), "1.5 s less a fifth: {waited:?}");
    rig.until("the dead letter", || rig.dispatcher.pending_count() == 0).await;
    let letters = rig.dispatcher.dead_letters(&topic(), 10).await.expect("browsed");
    assert_eq!(letters[0].letter.attempts, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_stream_of_a_client_takes_over_and_the_end_of_the_first_changes_nothing() {
    // covers: U131
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, patient()).await;
    rig.publish_ids(0..20).await;
    let first = rig.stream("c");
    let read = first.read(3).await;
    let second = rig.stream("c");
    assert!(first.end().await.contains("took over"));
    let got = second.read(20).await;
    assert_eq!(events(&got), names(0..20));
    assert_eq!(attempts(&got[..3]), [2; 3]);
    assert_eq!(attempts(&got[3..]), [1; 17]);
    drop(first);
    rig.publish_ids(20..40).await;
    let more = second.read(20).await;
    assert_eq!(events(&more), names(20..40));
    second.reads_nothing().await;
    assert_eq!(rig.ack(&read.iter().collect::<Vec<_>>()).await, [SettleOutcome::Settled; 3]);
    let all: Vec<&Got> = got[3..].iter().chain(&more).collect();
    assert!(rig.ack(&all).await.iter().all(|outcome| *outcome == SettleOutcome::Settled));
    assert_eq!(rig.dispatcher.pending_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_and_polls_of_a_client_compete_and_share() {
    // covers: U131
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, patient()).await;
    let reader = rig.stream("c");
    let mut seen = Vec::new();
    for round in 0..30 {
        let (polled, ()) = tokio::join!(rig.poll("c", 10, 50), rig.publish_ids(round * 5..round * 5 + 5));
        seen.extend(polled);
    }
    while seen.len() < 150 {
        seen.extend(reader.read(1).await);
    }
    reader.reads_nothing().await;
    let mut ids: Vec<u32> = seen.iter().map(|got| got.event.parse().expect("a number")).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..150).collect::<Vec<_>>(), "each once");
    assert_eq!(attempts(&seen), [1; 150]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stands_still_holds_a_bounded_mailbox_and_nobody_up() {
    // covers: U124
    let rig = Rig::with(20_000, 2).await;
    rig.subscribe("stalled", Mode::LoadBalance, patient()).await;
    rig.subscribe("reads", Mode::LoadBalance, patient()).await;
    rig.subscribe("other", Mode::Broadcast, patient()).await;
    let stalled = rig.stream("stalled");
    let held_by = |name: &str| {
        let clients = rig.dispatcher.clients(&topic());
        clients.iter().find(|view| view.client.as_str() == name).map_or(0, |view| view.pending)
    };
    rig.publish_ids(0..4).await;
    rig.until("the first in its mailbox", || held_by("stalled") == 4).await;
    let (reads, other) = (rig.stream("reads"), rig.stream("other"));
    let (mut shared, mut own) = (0, other.read(4).await.len());
    for id in 4..600 {
        rig.publish_ids(id..id + 1).await;
        own += other.read(1).await.len();
        shared += reads.read_within(usize::MAX, Duration::from_millis(1)).await.len();
        assert!(held_by("stalled") <= 64, "{}", held_by("stalled"));
    }
    assert_eq!(own, 600);
    while shared + held_by("stalled") < 600 {
        shared += reads.read(1).await.len();
    }
    let kept = held_by("stalled");
    assert!(kept >= 2, "its share of the first four, and what it was given since");
    drop(stalled);
    let rest = reads.read(kept).await;
    assert_eq!(rest.len(), kept);
    assert_eq!(attempts(&rest), vec![1; kept], "they were never written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mailbox_is_bounded_in_bytes_and_takes_one_event_of_any_size() {
    let rig = Rig::with(20_000, 4).await;
    rig.subscribe("c", Mode::LoadBalance, patient()).await;
    let sized = |id: u32, bytes: usize| {
        EventBuilder::new(&id.to_string(), "/t", "t")
            .text("x".repeat(bytes).as_str())
            .build()
            .expect("an event")
    };
    for id in 0..40 {
        rig.publish(sized(id, 20 << 10)).await;
    }
    for id in 40..48 {
        rig.publish(sized(id, 600 << 10)).await;
    }
    let reader = rig.stream("c");
    let mut read = 0;
    while read < 48 {
        let Some(Waiting::Items { all, first }) = reader.waiting(DEADLINE).await else {
            panic!("{read} came");
        };
        assert!(all <= 256 << 10 || all == first, "{all} bytes wait, {first} of them in one");
        read += reader.0.take(1).len();
    }
    reader.reads_nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_a_mailbox_past_its_lock_is_not_counted_as_tried() {
    let rig = Rig::new().await;
    // What is counted as tried comes after the test; a read whose lock runs out before its ack is not seen.
    let asked = AskedSettings {
        ack_timeout_ms: Some(400),
        backoff_ms: Some(60_000),
        max_backoff_ms: Some(60_000),
        ..quick()
    };
    rig.subscribe("c", Mode::LoadBalance, asked).await;
    rig.publish_ids(0..100).await;
    let reader = rig.stream("c");
    // Two attempts would be all.
    let later = rig.clock.elapsed() + Duration::from_millis(1_500);
    rig.until("three locks ran out", || rig.clock.elapsed() > later).await;
    assert_eq!(rig.dispatcher.dead_letters(&topic(), 10).await.expect("browsed").len(), 0);
    let mut seen = Vec::new();
    while seen.len() < 100 {
        let got = reader.read(1).await;
        assert_eq!(attempts(&got), vec![1; got.len()]);
        assert_eq!(rig.ack(&got.iter().collect::<Vec<_>>()).await, vec![SettleOutcome::Settled; got.len()]);
        seen.extend(got);
    }
    // What returns while it is read comes after the others.
    let mut ids: Vec<u32> = seen.iter().map(|got| got.event.parse().expect("a number")).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_runs_out_brings_the_event_again_over_the_open_stream() {
    // covers: U50
    let rig = Rig::new().await;
    let asked = AskedSettings { ack_timeout_ms: Some(700), ..quick() };
    rig.subscribe("c", Mode::LoadBalance, asked).await;
    let reader = rig.stream("c");
    rig.publish_ids(0..2).await;
    let got = reader.read(2).await;
    assert_eq!(rig.ack(&[&got[1]]).await, [SettleOutcome::Settled]);
    let again = reader.read(1).await;
    assert_eq!((again[0].event.as_str(), again[0].attempt), ("0", 2));
    rig.until("the dead letter", || rig.dispatcher.pending_count() == 0).await;
    assert_eq!(rig.dispatcher.dead_letters(&topic(), 10).await.expect("browsed").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_window_holds_a_stream_until_something_is_settled() {
    let rig = Rig::new().await;
    let request = mesh_delivery::Subscribe {
        tenant: tenant(),
        client: client("c"),
        topic: topic(),
        mode: Mode::LoadBalance,
        group: None,
        asked: patient(),
        max_in_flight: Some(3),
        start: mesh_delivery::StartAt::Latest,
        principal: None,
        over_others: false,
        most_of_tenant: None,
    };
    rig.groups.subscribe(request).await.expect("subscribed");
    let reader = rig.stream("c");
    rig.publish_ids(0..10).await;
    let mut got = reader.read(3).await;
    reader.reads_nothing().await;
    while got.len() < 10 {
        let last = &got[got.len() - 1];
        assert_eq!(rig.ack(&[last]).await, [SettleOutcome::Settled]);
        got.extend(reader.read(1).await);
        assert_eq!(rig.held(), 3);
    }
    assert_eq!(events(&got), names(0..10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_stands_still_too_long_ends_and_one_with_nothing_to_read_does_not() {
    // covers: U124
    let rig = Rig::new().await;
    rig.subscribe("still", Mode::Broadcast, quick()).await;
    rig.subscribe("idle", Mode::LoadBalance, patient()).await;
    let (still, idle) = (rig.stream("still"), rig.stream("idle"));
    rig.publish_ids(0..10).await;
    let got = idle.read(10).await;
    rig.ack(&got.iter().collect::<Vec<_>>()).await;
    idle.reads_nothing().await;
    // Three seconds in this rig; the events' locks run out and are renewed many times meanwhile.
    let later = rig.clock.elapsed() + Duration::from_secs(5);
    rig.until("the end of patience", || rig.clock.elapsed() > later).await;
    assert!(still.end().await.contains("did not read"));
    rig.publish_ids(10..11).await;
    assert_eq!(events(&idle.read(1).await), ["10"]);
    drop(still);
    assert_eq!(attempts(&rig.stream("still").read(11).await), [1; 11]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_of_a_key_survives_the_loss_of_its_stream() {
    // covers: U37
    let rig = Rig::new().await;
    rig.subscribe("a", Mode::LoadBalance, patient()).await;
    rig.subscribe("b", Mode::LoadBalance, patient()).await;
    for id in 0..6 {
        rig.publish(event(&id.to_string(), Some("k"))).await;
    }
    let a = rig.stream("a");
    assert_eq!(events(&a.read(4).await), ["0", "1", "2", "3"], "a run, the rest of it waits in the mailbox");
    let b = rig.stream("b");
    b.reads_nothing().await;
    drop(a);
    let run = b.read(6).await;
    assert_eq!(events(&run), names(0..6));
    assert_eq!(attempts(&run), [2, 1, 1, 1, 1, 1], "withdrawn behind the first");
    // A nack pulls back what is behind it, in the mailbox too.
    for id in 6..9 {
        rig.publish(event(&id.to_string(), Some("k"))).await;
    }
    let first = b.read(1).await;
    rig.dispatcher
        .nack(
            &rig.dispatcher.resolve(&tenant(), &[first[0].delivery.clone()]),
            Some(Duration::from_millis(100)),
            None,
        )
        .await;
    let again = b.read(3).await;
    assert_eq!(events(&again), names(6..9));
    assert_eq!(attempts(&again), [2, 1, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn automatic_acks_are_bounded_by_the_mailbox_and_leave_no_rows() {
    let rig = Rig::new().await;
    let asked = AskedSettings { ack: Some(AckMode::Auto), ..AskedSettings::default() };
    rig.subscribe("c", Mode::LoadBalance, asked).await;
    rig.publish_ids(0..200).await;
    let reader = rig.stream("c");
    let next = || rig.dispatcher.positions(&topic())[0].next_to_read.0;
    rig.until("the mailbox is full", || next() == 64).await;
    let got = reader.read(200).await;
    assert_eq!(events(&got), names(0..200));
    assert_eq!(rig.outstanding(), 0);
    assert_eq!(next(), 200);
    assert_eq!(rig.ack(&[&got[0]]).await, [SettleOutcome::Unknown]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_follows_what_its_client_joins_and_ends_with_the_last_it_leaves() {
    // covers: U130
    let rig = Rig::new().await;
    let open = |name: &str| rig.dispatcher.stream(&anybody(), &client(name)).map(Reader);
    assert!(matches!(open("nobody"), Err(PollError::UnknownClient)));
    rig.subscribe("c", Mode::LoadBalance, patient()).await;
    let reader = rig.stream("c");
    rig.subscribe("c", Mode::Broadcast, patient()).await;
    rig.publish_ids(0..5).await;
    let got = reader.read(10).await;
    let mut ids = events(&got);
    ids.sort_unstable();
    assert_eq!(ids, ["0", "0", "1", "1", "2", "2", "3", "3", "4", "4"], "once for each group");

    let leave = |kind: Option<&'static str>| {
        let groups = &rig.groups;
        async move {
            let group = kind.map(|name| mesh_frame::GroupName::new(name).expect("legal"));
            groups.unsubscribe(&anybody(), &client("c"), None, group.as_ref(), false).await.expect("left")
        }
    };
    assert!(leave(Some("c")).await);
    rig.publish_ids(5..6).await;
    assert_eq!(events(&reader.read(1).await), ["5"]);
    reader.reads_nothing().await;
    assert!(leave(None).await);
    assert!(reader.end().await.contains("no subscription"));
    assert!(matches!(open("c"), Err(PollError::UnknownClient)));
    drop(reader);

    // What it had is for another member.
    rig.subscribe("d", Mode::LoadBalance, patient()).await;
    let other = rig.stream("d");
    assert_eq!(other.read(6).await.len(), 6);
    assert_eq!(rig.groups.reject(&tenant(), &client("d")).await.expect("evicted"), 1);
    assert!(!other.end().await.is_empty());
    assert!(matches!(open("d"), Err(PollError::Expired)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_to_many_streams_with_a_slow_one_loses_and_doubles_nothing() {
    // covers: U126
    const EVENTS: u32 = 3_000;
    let rig = Rig::with(20_000, 4).await;
    let mut readers = Vec::new();
    for place in 0..10 {
        let name = format!("c{place}");
        rig.subscribe(&name, Mode::LoadBalance, patient()).await;
        readers.push(rig.stream(&name));
    }
    let seen = parking_lot::Mutex::new(Vec::new());
    let read = |place: usize, reader: Reader| {
        let (rig, seen) = (&rig, &seen);
        async move {
            while seen.lock().len() < EVENTS as usize {
                if place == 0 {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                let got =
                    reader.read_within(if place == 0 { 1 } else { 8_192 }, Duration::from_millis(20)).await;
                rig.ack(&got.iter().collect::<Vec<_>>()).await;
                seen.lock().extend(got);
            }
        }
    };
    let reading = futures_util::future::join_all(
        readers.into_iter().enumerate().map(|(place, reader)| read(place, reader)),
    );
    let all = async { tokio::join!(reading, rig.publish_ids(0..EVENTS)) };
    tokio::time::timeout(DEADLINE * 2, all).await.expect("everything came in time");
    let mut ids: Vec<u32> = seen.lock().iter().map(|got| got.event.parse().expect("a number")).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..EVENTS).collect::<Vec<_>>());
    assert_eq!(rig.dispatcher.pending_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_stays_open_through_seeks_and_gets_what_they_bring() {
    let rig = Rig::with(20_000, 2).await;
    rig.subscribe("c", Mode::LoadBalance, AskedSettings::default()).await;
    let stream = rig.stream("c");
    rig.publish_ids(0..6).await;
    let which = mesh_delivery::GroupSelector {
        tenant: tenant(),
        topic: topic(),
        name: mesh_frame::GroupName::new("default").expect("a legal name"),
        kind: None,
    };
    let mut old = stream.read(6).await;
    for round in 0..10 {
        rig.groups.seek(&which, &mesh_delivery::StartAt::Earliest, false).await.expect("sought");
        assert_eq!(rig.ack(&[&old[0]]).await, [SettleOutcome::Unknown], "round {round}");
        old = stream.read(6).await;
        assert!(old.iter().all(|got| got.attempt == 1), "round {round}: {old:?}");
    }
    rig.ack(&old.iter().collect::<Vec<_>>()).await;
    assert_eq!((rig.held(), rig.outstanding()), (0, 0));
    rig.publish_ids(6..7).await;
    assert_eq!(events(&stream.read(1).await), ["6"]);
}
