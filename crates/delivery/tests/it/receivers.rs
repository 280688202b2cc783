//! Whose clients are whose, and what may be handed out to whom now.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use mesh_delivery::{
    AckMode, AskedSettings, HandOutTerms, Mode, PollError, Receiver, SettleOutcome, Subscribe,
    SubscribeError, Subscribed,
};
use mesh_frame::{GroupName, TenantId, TopicName};
use tokio::task::JoinSet;

use crate::{
    rig::{Got, Rig, anybody, client, events, got, request, tenant, topic},
    streams::Reader,
};

/// Terms that a test changes.
#[derive(Debug)]
struct Terms {
    may: AtomicBool,
    ended: AtomicBool,
    /// `u64::MAX`: unlimited.
    backlog: AtomicU64,
}

impl Terms {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            may: AtomicBool::new(true),
            ended: AtomicBool::new(false),
            backlog: AtomicU64::new(u64::MAX),
        })
    }
}

impl HandOutTerms for Terms {
    fn may_receive(&self, _topic: &TopicName) -> bool {
        self.may.load(Ordering::Acquire)
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn backlog_limit(&self) -> Option<u64> {
        Some(self.backlog.load(Ordering::Acquire)).filter(|limit| *limit != u64::MAX)
    }
}

fn named(name: &str, terms: &Arc<Terms>) -> Receiver {
    Receiver::new(tenant(), Some(name), terms.clone())
}

impl Rig {
    async fn subscribe_as(
        &self,
        principal: Option<&str>,
        name: &str,
        topic: &str,
        most_of_tenant: Option<u64>,
    ) -> Result<Subscribed, SubscribeError> {
        let principal = principal.map(str::to_owned);
        let request = Subscribe {
            principal,
            most_of_tenant,
            ..request(name, TopicName::new(topic).expect("a legal name"))
        };
        self.groups.subscribe(request).await
    }

    async fn poll_as(&self, receiver: &Receiver, name: &str, most: usize, wait_ms: u64) -> Vec<Got> {
        let wait = Duration::from_millis(wait_ms);
        let mut answer = self.dispatcher.poll(receiver, &client(name), most, wait).await.expect("an answer");
        answer.delivered();
        got(&answer)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_is_its_first_principals_until_its_last_subscription_ends() {
    let rig = Rig::new().await;
    let terms = Terms::new();
    let (alice, bob) = (named("alice", &terms), named("bob", &terms));
    rig.subscribe_as(Some("alice"), "c", "t", None).await.expect("subscribed");
    for topic in ["t", "other"] {
        let taken = rig.subscribe_as(Some("bob"), "c", topic, None).await;
        assert!(matches!(taken, Err(SubscribeError::NotYours)), "{taken:?}");
        let taken = rig.subscribe_as(None, "c", topic, None).await;
        assert!(matches!(taken, Err(SubscribeError::NotYours)), "{taken:?}");
    }
    let polled = rig.dispatcher.poll(&bob, &client("c"), 1, Duration::ZERO).await;
    assert!(matches!(polled, Err(PollError::NotYours)));
    assert!(matches!(rig.dispatcher.stream(&bob, &client("c")), Err(PollError::NotYours)));
    let left = rig.groups.unsubscribe(&bob, &client("c"), None, None, false).await;
    assert!(matches!(left, Err(SubscribeError::NotYours)), "{left:?}");
    rig.publish_ids(0..1).await;
    assert_eq!(events(&rig.poll_as(&bob.clone().over_others(), "c", 1, 1_000).await), ["0"]);
    assert!(rig.groups.unsubscribe(&alice, &client("c"), None, None, false).await.expect("left"));
    rig.subscribe_as(Some("bob"), "c", "t", None).await.expect("nobody's any more");
    assert_eq!(rig.dispatcher.client(&tenant(), &client("c")).expect("there").owner.as_deref(), Some("bob"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_nobodys_is_the_first_ones_that_comes_with_a_name() {
    let rig = Rig::new().await;
    let terms = Terms::new();
    for topic in ["t", "u"] {
        rig.subscribe_as(None, "c", topic, None).await.expect("subscribed");
    }
    let owner = || rig.dispatcher.client(&tenant(), &client("c")).expect("there").owner;
    rig.groups.adopt(&anybody(), &client("c")).await.expect("nothing to do");
    assert_eq!(owner(), None);
    rig.meta.fail_writes(1, mesh_base::BackendErrorKind::Unavailable);
    assert!(rig.groups.adopt(&named("alice", &terms), &client("c")).await.is_err());
    assert_eq!(owner(), None, "it is not hers before that is written");
    rig.groups.adopt(&named("alice", &terms), &client("c")).await.expect("adopted");
    rig.groups.adopt(&named("bob", &terms), &client("c")).await.expect("nothing to do");
    assert_eq!(owner().as_deref(), Some("alice"));
    for topic in ["t", "u"] {
        let taken = rig.subscribe_as(Some("bob"), "c", topic, None).await;
        assert!(matches!(taken, Err(SubscribeError::NotYours)), "{taken:?}");
    }
    // A subscribe adopts as well.
    rig.subscribe_as(None, "d", "t", None).await.expect("subscribed");
    rig.subscribe_as(Some("bob"), "d", "t", None).await.expect("adopted");
    assert_eq!(rig.dispatcher.client(&tenant(), &client("d")).expect("there").owner.as_deref(), Some("bob"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_is_of_the_principal_it_was_given_to() {
    let rig = Rig::new().await;
    let terms = Terms::new();
    rig.subscribe_as(Some("alice"), "c", "t", None).await.expect("subscribed");
    rig.publish_ids(0..2).await;
    let got = rig.poll_as(&named("alice", &terms), "c", 10, 1_000).await;
    let mut ids: Vec<String> = got.iter().map(|got| got.delivery.clone()).collect();
    ids.insert(1, "nothing".to_owned());
    let mut deliveries = rig.dispatcher.resolve(&tenant(), &ids);
    assert_eq!(deliveries.topics(), [Some(topic()), None, Some(topic())]);
    assert!(rig.dispatcher.of_others(&deliveries, Some("alice")).is_empty());
    for other in [Some("bob"), None] {
        assert_eq!(rig.dispatcher.of_others(&deliveries, other), [0, 2]);
    }
    deliveries.hide(0);
    assert_eq!(
        rig.dispatcher.ack(&deliveries).await,
        [SettleOutcome::Unknown, SettleOutcome::Unknown, SettleOutcome::Settled]
    );
    // What nobody in particular was given anybody may settle.
    rig.subscribe_as(None, "d", "t", None).await.expect("subscribed");
    rig.publish_ids(2..3).await;
    let got = rig.poll_as(&anybody(), "d", 10, 1_000).await;
    let deliveries = rig.dispatcher.resolve(&tenant(), &[got[0].delivery.clone()]);
    assert!(rig.dispatcher.of_others(&deliveries, Some("bob")).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_has_no_more_subscriptions_than_it_may_and_gets_them_back() {
    // proves: SG-6
    let rig = Rig::new().await;
    for name in ["a", "b"] {
        rig.subscribe_as(None, name, "t", Some(2)).await.expect("within the limit");
    }
    let full = rig.subscribe_as(None, "c", "t", Some(2)).await;
    assert!(matches!(full, Err(SubscribeError::TenantFull(2))), "{full:?}");
    rig.subscribe_as(None, "a", "t", Some(2)).await.expect("the same again is not one more");
    rig.groups.unsubscribe(&anybody(), &client("a"), None, None, false).await.expect("left");
    rig.subscribe_as(None, "c", "t", Some(2)).await.expect("one was given back");
    assert_eq!(rig.groups.reject(&tenant(), &client("c")).await.expect("evicted"), 1);
    assert_eq!(rig.dispatcher.subscriptions(&tenant()), 1);
    // Many at once do not pass it together.
    let many = (0..20).map(|n| {
        let rig = &rig;
        async move { rig.subscribe_as(None, &format!("m{n}"), "t", Some(6)).await.is_ok() }
    });
    let made = futures_util::future::join_all(many).await.into_iter().filter(|made| *made).count();
    assert_eq!((made, rig.dispatcher.subscriptions(&tenant())), (5, 6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenants_backlog_is_bounded_over_its_groups_and_comes_back_with_every_end() {
    // proves: SG-6
    let rig = Rig::new().await;
    let terms = Terms::new();
    terms.backlog.store(3, Ordering::Release);
    let receiver = Receiver::new(tenant(), None, terms.clone());
    let lasting = AskedSettings { ack_timeout_ms: Some(60_000), ..AskedSettings::default() };
    for name in ["a", "b"] {
        rig.subscribe(name, Mode::Broadcast, lasting.clone()).await;
    }
    rig.publish_ids(0..10).await;
    let (a, b) = tokio::join!(rig.poll_as(&receiver, "a", 10, 200), rig.poll_as(&receiver, "b", 10, 200));
    assert_eq!((a.len() + b.len(), rig.dispatcher.backlog(&tenant())), (3, 3));
    assert!(rig.poll_as(&receiver, "a", 10, 50).await.is_empty());
    // Every way a delivery can end gives its unit back: ack, nack (until it is handed out again), reject.
    let ids: Vec<&Got> = a.iter().chain(&b).collect();
    rig.ack(&[ids[0]]).await;
    rig.dispatcher
        .nack(
            &rig.dispatcher.resolve(&tenant(), &[ids[1].delivery.clone()]),
            Some(Duration::from_secs(600)),
            None,
        )
        .await;
    rig.dispatcher.reject(&rig.dispatcher.resolve(&tenant(), &[ids[2].delivery.clone()]), None).await;
    rig.until("the backlog to be empty", || rig.dispatcher.backlog(&tenant()) == 0).await;
    // A poll that waits gets something as soon as there is room, from whichever group.
    let first = rig.poll_as(&receiver, "a", 3, 1_000).await;
    assert_eq!(first.len(), 3);
    let (second, ()) = tokio::join!(rig.poll_as(&receiver, "b", 10, 15_000), async {
        rig.ack(&[&first[0]]).await;
    });
    assert_eq!(second.len(), 1);
    // An answer that is dropped, a group that is removed.
    rig.ack(&[&first[1]]).await;
    drop(rig.dispatcher.poll(&receiver, &client("a"), 1, Duration::from_secs(5)).await.expect("one"));
    rig.until("what was not delivered to be back", || rig.dispatcher.backlog(&tenant()) == 2).await;
    rig.groups.unsubscribe(&receiver, &client("b"), None, None, false).await.expect("left");
    assert_eq!(rig.dispatcher.backlog(&tenant()), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_backlog_holds_streams_but_not_what_is_done_when_it_is_handed_out() {
    let rig = Rig::new().await;
    let terms = Terms::new();
    terms.backlog.store(2, Ordering::Release);
    let receiver = Receiver::new(tenant(), None, terms.clone());
    let lasting = AskedSettings { ack_timeout_ms: Some(60_000), ..AskedSettings::default() };
    rig.subscribe("s", Mode::Broadcast, lasting.clone()).await;
    rig.subscribe("auto", Mode::Broadcast, AskedSettings { ack: Some(AckMode::Auto), ..lasting }).await;
    let explicit = Reader(rig.dispatcher.stream(&receiver, &client("s")).expect("open"));
    let auto = Reader(rig.dispatcher.stream(&receiver, &client("auto")).expect("open"));
    rig.publish_ids(0..10).await;
    assert_eq!(auto.read(10).await.len(), 10);
    let got = explicit.read(2).await;
    assert_eq!((got.len(), rig.dispatcher.backlog(&tenant())), (2, 2));
    rig.ack(&[&got[0], &got[1]]).await;
    assert_eq!(events(&explicit.read(2).await), ["2", "3"]);
    assert_eq!(rig.dispatcher.backlog(&tenant()), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_be_handed_out_is_asked_at_each_hand_out() {
    let rig = Rig::new().await;
    let terms = Terms::new();
    let receiver = Receiver::new(tenant(), None, terms.clone());
    for name in ["barred", "other"] {
        rig.subscribe(name, Mode::LoadBalance, AskedSettings::default()).await;
    }
    rig.publish_ids(0..1).await;
    assert_eq!(rig.poll_as(&receiver, "barred", 1, 1_000).await.len(), 1);
    let stream = Reader(rig.dispatcher.stream(&receiver, &client("barred")).expect("open"));
    terms.may.store(false, Ordering::Release);
    rig.dispatcher.terms_changed();
    // Its keys too are for those who may have them.
    for id in 1..6 {
        rig.publish(crate::rig::event(&id.to_string(), Some("k"))).await;
    }
    assert!(rig.poll_as(&receiver, "barred", 10, 0).await.is_empty());
    let others = rig.poll_as(&anybody(), "other", 10, 5_000).await;
    assert_eq!(events(&others), ["1", "2", "3", "4", "5"]);
    stream.reads_nothing().await;
    rig.ack(&others.iter().collect::<Vec<_>>()).await;
    rig.groups.unsubscribe(&anybody(), &client("other"), None, None, false).await.expect("left");
    rig.publish_ids(6..8).await;
    terms.may.store(true, Ordering::Release);
    rig.dispatcher.terms_changed();
    assert_eq!(events(&stream.read(2).await), ["6", "7"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_with_the_credential_it_was_opened_with() {
    let rig = Rig::new().await;
    let terms = Terms::new();
    let receiver = Receiver::new(tenant(), None, terms.clone());
    rig.subscribe("s", Mode::LoadBalance, AskedSettings::default()).await;
    let stream = Reader(rig.dispatcher.stream(&receiver, &client("s")).expect("open"));
    terms.ended.store(true, Ordering::Release);
    rig.publish_ids(0..1).await;
    assert_eq!(stream.end().await, "the credential has ended");
    assert_eq!(rig.poll_as(&anybody(), "s", 1, 1_000).await.len(), 1, "nothing was lost with it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_have_what_woke_him_wakes_the_others() {
    // covers: U102
    let rig = Arc::new(Rig::new().await);
    for name in ["barred", "other"] {
        rig.subscribe(name, Mode::LoadBalance, AskedSettings::default()).await;
    }
    for round in 0..3 {
        let terms = Terms::new();
        let waiting = |receiver: Receiver, name: &'static str| {
            let (rig, mut poll) = (rig.clone(), JoinSet::new());
            poll.spawn(async move { rig.poll_as(&receiver, name, 1, 20_000).await });
            poll
        };
        let answer = async |poll: &mut JoinSet<Vec<Got>>| {
            let got = tokio::time::timeout(Duration::from_secs(10), poll.join_next()).await;
            got.expect("an answer long before its time").expect("one poll").expect("no panic")
        };
        // It is woken first, having waited longer; nobody is told that it may have nothing any more.
        let mut barred = waiting(Receiver::new(tenant(), None, terms.clone()), "barred");
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut other = waiting(anybody(), "other");
        tokio::time::sleep(Duration::from_millis(50)).await;
        if round == 0 {
            terms.may.store(false, Ordering::Release);
        } else {
            terms.ended.store(true, Ordering::Release);
        }
        rig.publish_ids(round..round + 1).await;
        let got = answer(&mut other).await;
        assert_eq!(events(&got), [round.to_string()]);
        rig.ack(&[&got[0]]).await;
        if round == 0 {
            // Let in again, it gets what comes, within the second in which it looks again.
            terms.may.store(true, Ordering::Release);
            rig.publish_ids(100..101).await;
            let got = answer(&mut barred).await;
            assert_eq!(events(&got), ["100"]);
            rig.ack(&[&got[0]]).await;
        } else {
            assert!(answer(&mut barred).await.is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_lock_again_what_ran_out_takes_a_unit_of_the_backlog_again() {
    // covers: U105
    let rig = Rig::new().await;
    let terms = Terms::new();
    terms.backlog.store(2, Ordering::Release);
    let receiver = named("p", &terms);
    let asked = AskedSettings {
        ack_timeout_ms: Some(3_000),
        backoff_ms: Some(600_000),
        max_backoff_ms: Some(600_000),
        ..AskedSettings::default()
    };
    rig.subscribe("c", Mode::LoadBalance, asked).await;
    rig.publish_ids(0..4).await;
    let first = rig.poll_as(&receiver, "c", 10, 1_000).await;
    assert_eq!(first.len(), 2);
    let extend = async |got: &Got| {
        let ids = rig.dispatcher.resolve(&tenant(), std::slice::from_ref(&got.delivery));
        rig.dispatcher.extend(&ids, Duration::from_secs(600), Some(2)).await
    };
    // While it is locked it has its unit.
    assert_eq!(extend(&first[0]).await, [SettleOutcome::Settled]);
    rig.until("the other lock to run out", || rig.dispatcher.backlog(&tenant()) == 1).await;
    let second = rig.poll_as(&receiver, "c", 10, 1_000).await;
    assert_eq!((second.len(), rig.dispatcher.backlog(&tenant())), (1, 2));
    assert_eq!(extend(&first[1]).await, [SettleOutcome::Unknown], "there is no room for it any more");
    assert_eq!(rig.dispatcher.backlog(&tenant()), 2);
    rig.ack(&[&first[0]]).await;
    assert_eq!(extend(&first[1]).await, [SettleOutcome::Settled]);
    assert_eq!(rig.dispatcher.backlog(&tenant()), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_parks_all_it_can_leaves_room_for_others() {
    let rig = Rig::with_total(20_000, 100, 1).await;
    let other = TenantId::new("other").expect("a legal name");
    rig.subscribe_as(None, "hog", "t", None).await.expect("subscribed");
    let request = Subscribe { tenant: other.clone(), client: client("quiet"), ..request("quiet", topic()) };
    rig.groups.subscribe(request).await.expect("subscribed");
    rig.publish_ids(0..300).await;
    let mut parked = 0;
    loop {
        let got = rig.poll_as(&anybody(), "hog", 300, 0).await;
        if got.is_empty() {
            break;
        }
        parked += got.len();
        let ids: Vec<String> = got.into_iter().map(|got| got.delivery).collect();
        let deliveries = rig.dispatcher.resolve(&tenant(), &ids);
        rig.dispatcher.nack(&deliveries, Some(Duration::from_secs(3_600)), None).await;
    }
    assert_eq!(parked, 80, "four fifths of what there is");
    let quiet = rig.poll_as(&Receiver::anybody(other), "quiet", 300, 0).await;
    assert!(quiet.len() >= 10, "{}", quiet.len());
    // What is done makes room for whoever comes first.
    assert_eq!(rig.outstanding(), parked + quiet.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_wait_without_members_are_among_what_a_tenant_may_have() {
    // proves: SG-6
    let rig = Rig::new().await;
    let subscribe = async |name: &str, group: &str, topic: &str| {
        let group = Some(GroupName::new(group).expect("a legal name"));
        let request = Subscribe {
            group,
            most_of_tenant: Some(3),
            ..request(name, TopicName::new(topic).expect("a legal name"))
        };
        rig.groups.subscribe(request).await
    };
    for n in 0..3 {
        subscribe("c", &format!("g{n}"), "t").await.expect("within the limit");
        rig.groups.unsubscribe(&anybody(), &client("c"), None, None, false).await.expect("left");
    }
    let full = subscribe("c", "g3", "new").await;
    assert!(matches!(full, Err(SubscribeError::TenantFull(3))), "{full:?}");
    let made = TopicName::new("new").expect("a legal name");
    assert!(rig.storage.topic(&made).is_none(), "what is refused makes no topic");
    subscribe("c", "g0", "t").await.expect("it takes the place of the group that waited");
    rig.groups.unsubscribe(&anybody(), &client("c"), None, None, true).await.expect("left");
    subscribe("c", "g3", "new").await.expect("the group went with its last member");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_a_client_was_evicted_is_told_to_its_owner_alone() {
    let rig = Rig::new().await;
    let terms = Terms::new();
    rig.subscribe_as(Some("alice"), "c", "t", None).await.expect("subscribed");
    assert_eq!(rig.groups.reject(&tenant(), &client("c")).await.expect("evicted"), 1);
    let polled = async |name: &str| {
        rig.dispatcher.poll(&named(name, &terms), &client("c"), 1, Duration::ZERO).await.map(|_| ())
    };
    assert!(matches!(polled("alice").await, Err(PollError::Expired)));
    assert!(matches!(polled("bob").await, Err(PollError::UnknownClient)));
}
