//! The admin router over a dispatcher with a real position database, and the log and Meta in memory.

use std::{sync::Arc, time::Duration};

use axum::{Router, body::Body};
use http::{Request, StatusCode, header::AUTHORIZATION};
use http_body_util::BodyExt;
use mesh_admin::{AdminAccess, AdminState, AdminTokens, Health, PublishCounters, RateLimits};
use mesh_base::{Clock, Signals, Tasks};
use mesh_delivery::{
    AskedSettings, DeliveryLimits, DeliverySignals, DeliveryTopology, Foundations, GroupStores, Groups, Mode,
    Receiver, ReliableDispatcher, StartAt, Subscribe,
};
use mesh_frame::{ClientId, EventBuilder, GroupName, InstanceId, TenantId, TopicName};
use mesh_gate::SecurityGate;
use mesh_meta::{MetaStore, memory::MemoryMeta};
use mesh_rocks::Machine;
use mesh_server::Readiness;
use mesh_state::{
    positions::{Positions, PositionsSettings, RocksDbPositions},
    shared::{
        ClusterSubscriptionStore, DeadLetterKeys, IdentityStore, MetaBackedDeadLetterStore, RateLimitStore,
        Writer,
    },
};
use mesh_storage::{AppendItem, Memory, Storage, StorageLimits, TopicRules};
use serde_json::Value;
use tower::ServiceExt;

/// Everything a test needs.
pub(crate) struct Rig {
    router: Router,
    storage: Storage,
    pub(crate) dispatcher: ReliableDispatcher,
    groups: Groups,
    _tasks: Tasks,
    _folder: tempfile::TempDir,
}

pub(crate) fn topic() -> TopicName {
    TopicName::new("t").expect("a legal name")
}

pub(crate) fn tenant() -> TenantId {
    TenantId::new("default").expect("a legal name")
}

pub(crate) fn anybody() -> Receiver {
    Receiver::anybody(tenant())
}

pub(crate) fn client(name: &str) -> ClientId {
    ClientId::new(name).expect("a legal name")
}

/// One attempt of a tenth of a second.
pub(crate) fn once() -> AskedSettings {
    AskedSettings {
        ack_timeout_ms: Some(100),
        backoff_ms: Some(10),
        max_attempts: Some(1),
        ..AskedSettings::default()
    }
}

impl Rig {
    pub(crate) async fn new() -> Self {
        let tokens = AdminTokens { admin: Some("secret"), ..AdminTokens::default() };
        Self::behind(AdminAccess::load(tokens).expect("no file")).await
    }

    /// With other tokens; `secret` has to be an admin's for [`Self::ask`].
    pub(crate) async fn behind(access: AdminAccess) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (clock, signals, machine) = (Clock::system(), Signals::new(), Machine::default());
        let (tail, announcements) = Storage::tail(4 << 20);
        let log = Arc::new(Memory::new(clock, mesh_base::Chance::system(), tail.clone(), &signals));
        let limits = StorageLimits { partitions: 1, topics: 4, rules: TopicRules::default() };
        let storage = Storage::new(log, tail, limits, None, &Signals::new()).expect("topics");
        let path = folder.path().to_owned();
        let database = RocksDbPositions::open(&PositionsSettings { path }, &machine).expect("positions");
        let store = MetaStore::new(Arc::new(MemoryMeta::new()), clock, &signals);
        let instance = InstanceId::new("one").expect("a legal name");
        let writer = Writer::new(&instance, &mesh_base::Chance::system());
        let subscriptions = ClusterSubscriptionStore::load(&store, &writer).await.expect("loads");
        let delivery = DeliverySignals::new(&signals);
        let identities = IdentityStore::new(&store, &writer);
        let identity = identities.begin(&instance, &database).await.expect("an identity");
        let positions = Positions::start(Arc::new(database), &signals);
        let dispatcher = ReliableDispatcher::new(Foundations {
            clock,
            chance: mesh_base::Chance::system(),
            storage: storage.clone(),
            positions: Arc::new(positions),
            dead_letters: MetaBackedDeadLetterStore::new(&store, &writer, DeadLetterKeys::OneForAll),
            polled: DeliveryTopology::LocalStickyPull.polled(),
            instance,
            delivery_id_key: identity.delivery_id_key,
            epoch: identity.epoch,
            stream_tasks: Tasks::new(),
            limits: DeliveryLimits {
                stream_unread: Duration::from_secs(30),
                outstanding: 1_000,
                outstanding_total: 10_000,
                subscriptions_per_client: 10,
                idle_timeout: None,
                answer_bytes: 8 << 20,
                publish_timeout: Duration::from_secs(2),
            },
            signals: delivery.clone(),
        });
        dispatcher.show_lag(&signals);
        let groups = dispatcher.groups(GroupStores {
            subscriptions: Arc::new(subscriptions),
            identities,
            auto_create: true,
        });
        groups.recover().await.expect("nothing to bring back");
        let told = dispatcher.clone();
        announcements.listen(Box::new(move |topic, records| told.appended(topic, records)));
        let tasks = Tasks::new();
        tasks.spawn("ticker", dispatcher.clone().tick(tasks.stop()));
        tasks.spawn("waker", dispatcher.clone().attend(tasks.stop()));
        tasks.spawn("dead letters", dispatcher.clone().write_dead_letters(tasks.stop()));
        let gate = SecurityGate::open(tenant(), &signals);
        let health = Health::new(Readiness::new());
        health.started();
        let state =
            AdminState::new(access, gate.clone(), health, clock, signals.clone(), "LOCAL_STICKY_PULL");
        let rate_limits = RateLimits::new(RateLimitStore::new(&store, &writer), gate);
        state.serve(
            dispatcher.clone(),
            groups.clone(),
            rate_limits,
            delivery,
            PublishCounters {
                stored: signals.counter("publish", "Events stored"),
                failed: signals.counter("publish_failed", "Events that could not be stored"),
                rate_limited: signals.counter("rate_limited", "Requests refused"),
            },
            || 0,
        );
        let router = mesh_admin::router(state);
        Self { router, storage, dispatcher, groups, _tasks: tasks, _folder: folder }
    }

    /// A request with the token; the status and the JSON of the answer.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header(AUTHORIZATION, "Bearer secret");
        let (status, bytes) = self.send(request.body(Body::from(body.to_owned())).expect("legal")).await;
        let json = serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        (status.as_u16(), json)
    }

    /// The same, refused: the status and the code.
    pub(crate) async fn refused(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let (status, json) = self.ask(method, path, body).await;
        assert!(json["message"].as_str().is_some_and(|text| !text.is_empty()), "{method} {path}: {json}");
        (status, json["error"].as_str().unwrap_or_default().to_owned())
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> (StatusCode, Vec<u8>) {
        let answer = self.router.clone().oneshot(request).await.expect("the router answers");
        let (head, body) = answer.into_parts();
        (head.status, body.collect().await.expect("a body").to_bytes().to_vec())
    }

    pub(crate) async fn subscribe(&self, name: &str, group: Option<&str>, mode: Mode, asked: AskedSettings) {
        let request = Subscribe {
            tenant: tenant(),
            client: client(name),
            topic: topic(),
            mode,
            group: group.map(|group| GroupName::new(group).expect("a legal name")),
            asked,
            max_in_flight: None,
            start: StartAt::Latest,
            principal: None,
            over_others: false,
            most_of_tenant: None,
        };
        self.groups.subscribe(request).await.expect("subscribed");
    }

    pub(crate) async fn publish(&self, ids: std::ops::Range<u32>) {
        let topic = self.storage.ensure_topic(&topic(), true, None).await.expect("a topic");
        for id in ids {
            let event = EventBuilder::new(&id.to_string(), "/t", "t").build().expect("an event");
            let item = AppendItem { partition: topic.next_partition(), event };
            self.storage.appended(self.storage.append(vec![item])).await.expect("stored");
        }
    }

    /// The event ids of one poll, taken as delivered.
    pub(crate) async fn poll(&self, name: &str) -> Vec<String> {
        let wait = Duration::from_millis(300);
        let mut answer =
            self.dispatcher.poll(&anybody(), &client(name), 1_000, wait).await.expect("an answer");
        answer.delivered();
        let id = |delivery: &mesh_delivery::Delivery| delivery.record.record().event.id().to_owned();
        answer.deliveries().iter().map(id).collect()
    }

    /// Publishes events and lets a client's group fail them.
    pub(crate) async fn dead(&self, name: &str, ids: std::ops::Range<u32>) {
        let before = self.dispatcher.letters().count(&topic()).await.expect("counted");
        let wanted = before + u64::from(ids.end - ids.start);
        self.publish(ids).await;
        for _ in 0..100 {
            self.poll(name).await;
            if self.dispatcher.letters().count(&topic()).await.expect("counted") == wanted {
                return;
            }
        }
        panic!("the events do not die");
    }
}
