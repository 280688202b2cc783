//! A mesh in process: memory log, position database and Meta in a temporary folder, the traffic port on a real
//! socket.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use mesh_base::{Clock, Signals, Stop, Tasks};
use mesh_delivery::{
    DeliveryLimits, DeliverySignals, DeliveryTopology, Foundations, GroupStores, Groups, ReliableDispatcher,
};
use mesh_frame::{InstanceId, TenantId};
use mesh_gate::SecurityGate;
use mesh_ingress::{
    http::{HttpEdge, HttpEdgeSettings, Traffic},
    intake::{Intake, IntakeSettings, IntakeSignals},
};
use mesh_meta::{LocalMeta, LocalMetaSettings, MetaStore};
use mesh_rocks::Machine;
use mesh_server::{HttpServer, HttpServerSettings, HttpServerSignals, Readiness};
use mesh_state::{
    positions::{Positions, PositionsSettings, RocksDbPositions},
    shared::{ClusterSubscriptionStore, DeadLetterKeys, IdentityStore, MetaBackedDeadLetterStore, Writer},
};
use mesh_storage::{Memory, Storage, StorageLimits, TopicRules, faulty::Faulty};

/// What a test may want otherwise.
pub(crate) struct Wanted {
    pub(crate) edge: HttpEdgeSettings,
    pub(crate) server: HttpServerSettings,
    pub(crate) auto_create: bool,
    pub(crate) publish_timeout: Duration,
    pub(crate) gate: Option<SecurityGate>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            edge: HttpEdgeSettings::default(),
            server: HttpServerSettings::new("http", "127.0.0.1", 0),
            auto_create: true,
            publish_timeout: Duration::from_secs(10),
            gate: None,
        }
    }
}

/// A running mesh.
pub(crate) struct Mesh {
    pub(crate) address: SocketAddr,
    pub(crate) readiness: Readiness,
    pub(crate) signals: Signals,
    pub(crate) storage: Storage,
    pub(crate) log: Arc<Faulty>,
    pub(crate) groups: Groups,
    pub(crate) dispatcher: ReliableDispatcher,
    pub(crate) stop: Stop,
    tasks: Tasks,
    _home: tempfile::TempDir,
}

impl Mesh {
    pub(crate) async fn start() -> Self {
        Self::with(Wanted::default()).await
    }

    pub(crate) async fn with(wanted: Wanted) -> Self {
        let home = tempfile::tempdir().expect("a temporary folder");
        let (clock, signals, machine) = (Clock::system(), Signals::new(), Machine::default());
        let (tail, announcements) = Storage::tail(64 << 20);
        let log = Arc::new(Faulty::new(Arc::new(Memory::new(
            clock,
            mesh_base::Chance::system(),
            tail.clone(),
            &signals,
        ))));
        let limits = StorageLimits { partitions: 1, topics: 100, rules: TopicRules::default() };
        let storage = Storage::new(log.clone(), tail, limits, None, &signals).expect("an empty log");

        let path = home.path().join("positions");
        let database = RocksDbPositions::open(&PositionsSettings { path }, &machine).expect("positions");
        let driver =
            LocalMeta::open(&LocalMetaSettings::at(home.path().join("meta")), &machine).expect("meta");
        let meta = MetaStore::new(Arc::new(driver), clock, &signals);
        let instance = InstanceId::new("test").expect("legal");
        let writer = Writer::new(&instance, &mesh_base::Chance::system());
        let subscriptions = ClusterSubscriptionStore::load(&meta, &writer).await.expect("an empty store");
        let tasks = Tasks::new();
        let identities = IdentityStore::new(&meta, &writer);
        let identity = identities.begin(&instance, &database).await.expect("an identity");
        let positions = Positions::start(Arc::new(database), &signals);
        let dispatcher = ReliableDispatcher::new(Foundations {
            clock,
            chance: mesh_base::Chance::system(),
            storage: storage.clone(),
            positions: Arc::new(positions),
            dead_letters: MetaBackedDeadLetterStore::new(&meta, &writer, DeadLetterKeys::OneForAll),
            polled: DeliveryTopology::LocalStickyPull.polled(),
            instance,
            delivery_id_key: identity.delivery_id_key,
            epoch: identity.epoch,
            limits: DeliveryLimits {
                outstanding: 10_000,
                outstanding_total: 100_000,
                subscriptions_per_client: 3,
                idle_timeout: None,
                answer_bytes: 8 << 20,
                stream_unread: Duration::from_secs(30),
                publish_timeout: Duration::from_secs(5),
            },
            signals: DeliverySignals::new(&signals),
            stream_tasks: tasks.clone(),
        });
        let told = dispatcher.clone();
        announcements.listen(Box::new(move |topic, count| told.appended(topic, count)));
        let groups = dispatcher.groups(GroupStores {
            subscriptions: Arc::new(subscriptions),
            identities,
            auto_create: wanted.auto_create,
        });
        groups.recover().await.expect("nothing to bring back");

        let tenant = TenantId::new("default").expect("legal");
        let settings = IntakeSettings {
            auto_create: wanted.auto_create,
            publish_timeout: wanted.publish_timeout,
            ..IntakeSettings::new(tenant.clone())
        };
        let gate = wanted.gate.unwrap_or_else(|| SecurityGate::open(tenant, &signals));
        let intake = Intake::new(
            gate,
            storage.clone(),
            dispatcher.clone(),
            groups.clone(),
            settings,
            IntakeSignals::new(&signals),
        );
        let (readiness, stop) = (Readiness::new(), Stop::new());
        let edge = HttpEdge::new(intake, wanted.edge, readiness.clone(), stop.clone());
        let server = HttpServer::bind(wanted.server).expect("a free port");
        let address = server.local_addr();
        tasks.spawn("dead letters", dispatcher.clone().write_dead_letters(tasks.stop()));
        tasks.spawn("tick", dispatcher.clone().tick(tasks.stop()));
        tasks.spawn("waker", dispatcher.clone().attend(tasks.stop()));
        tasks.spawn("progress", dispatcher.clone().keep_progress(tasks.stop()));
        let serving =
            server.serve(Traffic::new(edge), clock, HttpServerSignals::new("http", &signals), stop.clone());
        tasks.spawn("serve", async move { serving.await.expect("the socket is fine") });
        readiness.open();
        Self { address, readiness, signals, storage, log, groups, dispatcher, stop, tasks, _home: home }
    }

    /// Waits until the gate has admitted this many requests, so that the last of them is past it.
    pub(crate) async fn admitted(&self, requests: u32) {
        let line = format!(r#"gate_verdicts_total{{filter="no_gate",verdict="allow"}} {requests}"#);
        for _ in 0..1_000 {
            if self.signals.text().lines().any(|found| found.ends_with(&line)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{requests} requests were not admitted in time:\n{}", self.signals.text());
    }

    /// Waits until the metrics have a line.
    pub(crate) async fn shows(&self, line: &str) {
        for _ in 0..1_000 {
            if self.signals.text().lines().any(|found| found == line) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never {line}:\n{}", self.signals.text());
    }

    /// Stops the server and waits until every connection has ended.
    pub(crate) async fn shut_down(self) {
        self.stop.signal();
        assert!(self.tasks.shut_down(Duration::from_secs(10)).await, "the server ends within its bound");
    }
}
