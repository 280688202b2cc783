//! The line in process: a real position database, the log and Meta in memory, each behind a faulty wrapper.
//!
//! A restart closes the position database and opens it again; what was written of log and Meta stays as it is.

use std::{sync::Arc, time::Duration};

use mesh_base::{Clock, Signals, Tasks};
use mesh_delivery::{
    Answer, AskedSettings, Delivery, DeliveryLimits, DeliverySignals, DeliveryTopology, Foundations,
    GroupStores, Groups, Mode, Receiver, Recovered, ReliableDispatcher, StartAt, Subscribe, SubscribeError,
    Subscribed,
};
use mesh_frame::{ClientId, Event, EventBuilder, GroupName, InstanceId, Offset, TenantId, TopicName};
use mesh_meta::{MetaStore, faulty::FaultyMeta, memory::MemoryMeta};
use mesh_rocks::{Durability, Machine};
use mesh_state::{
    positions::{
        PositionBatch, PositionLog, Positions, PositionsSettings, RocksDbPositions, faulty::FaultyPositions,
    },
    shared::{
        ClusterSubscriptionStore, DeadLetter, DeadLetterKeys, DeadLetterStore, IdentityStore,
        MetaBackedDeadLetterStore, Writer,
    },
};
use mesh_storage::{AppendItem, Memory, Storage, StorageLimits, TopicRules, faulty::Faulty};
use parking_lot::Mutex;

/// Everything a test needs.
pub(crate) struct Rig {
    pub(crate) clock: Clock,
    pub(crate) storage: Storage,
    pub(crate) log: Arc<Faulty>,
    pub(crate) meta: Arc<FaultyMeta>,
    /// Of this process: the next one has another wrapper around the same database.
    pub(crate) positions: Arc<FaultyPositions>,
    /// Commits that wait for those before them.
    barriers: PositionLog,
    pub(crate) dispatcher: ReliableDispatcher,
    pub(crate) groups: Groups,
    signals: DeliverySignals,
    tasks: Tasks,
    listener: Arc<Mutex<Option<ReliableDispatcher>>>,
    limits: DeliveryLimits,
    folder: tempfile::TempDir,
}

/// What outlives a process.
struct Lasting {
    clock: Clock,
    storage: Storage,
    log: Arc<Faulty>,
    meta: Arc<FaultyMeta>,
    limits: DeliveryLimits,
    /// Who is told of appends.
    listener: Arc<Mutex<Option<ReliableDispatcher>>>,
    folder: tempfile::TempDir,
}

/// How long anything in these tests may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

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

/// Quick retries.
pub(crate) fn quick() -> AskedSettings {
    AskedSettings {
        ack_timeout_ms: Some(100),
        backoff_ms: Some(10),
        max_backoff_ms: Some(50),
        max_attempts: Some(2),
        ..AskedSettings::default()
    }
}

impl Rig {
    /// Outstanding rows of the topic's groups.
    pub(crate) fn outstanding(&self) -> usize {
        self.dispatcher.positions(&topic()).iter().map(|position| position.outstanding).sum()
    }

    pub(crate) async fn new() -> Self {
        Self::with(20_000, 1).await
    }

    pub(crate) async fn with(outstanding: usize, partitions: u32) -> Self {
        Self::with_total(outstanding, 1_000_000, partitions).await
    }

    pub(crate) async fn with_total(outstanding: usize, outstanding_total: usize, partitions: u32) -> Self {
        let rig = Self::without_dead_letter_writer(outstanding, outstanding_total, partitions).await;
        rig.start_dead_letter_writer();
        rig
    }

    /// Where what is dead stays so until [`Rig::start_dead_letter_writer`].
    pub(crate) async fn without_dead_letter_writer(
        outstanding: usize,
        outstanding_total: usize,
        partitions: u32,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Clock::system();
        let (tail, announcements) = Storage::tail(4 << 20);
        let log = Arc::new(Faulty::new(Arc::new(Memory::new(
            clock,
            mesh_base::Chance::system(),
            tail.clone(),
            &Signals::new(),
        ))));
        let limits = StorageLimits { partitions, topics: 100, rules: TopicRules::default() };
        let storage = Storage::new(log.clone(), tail, limits, None, &Signals::new()).expect("topics");
        let meta = FaultyMeta::new(Arc::new(MemoryMeta::new()));
        let listener: Arc<Mutex<Option<ReliableDispatcher>>> = Arc::default();
        let told = listener.clone();
        announcements.listen(Box::new(move |topic, records| {
            let dispatcher = told.lock().clone();
            if let Some(dispatcher) = dispatcher {
                dispatcher.appended(topic, records);
            }
        }));
        let limits = DeliveryLimits {
            outstanding,
            outstanding_total,
            subscriptions_per_client: 10,
            idle_timeout: None,
            answer_bytes: 8 << 20,
            stream_unread: Duration::from_secs(3),
            publish_timeout: Duration::from_secs(2),
        };
        let rig = Self::over(Lasting { clock, storage, log, meta, limits, listener, folder }).await;
        rig.groups.recover().await.expect("nothing to bring back");
        rig
    }

    /// The process over what outlives it.
    async fn over(lasting: Lasting) -> Self {
        let Lasting { clock, storage, log, meta, limits, listener, folder } = lasting;
        let (signals, path) = (Signals::new(), folder.path().to_owned());
        let database =
            RocksDbPositions::open(&PositionsSettings { path }, &Machine::default()).expect("positions");
        let store = MetaStore::new(meta.clone(), clock, &signals).with_time_limit(Duration::from_millis(300));
        let instance = InstanceId::new("one").expect("a legal name");
        let writer = Writer::new(&instance, &mesh_base::Chance::system());
        let subscriptions = Arc::new(ClusterSubscriptionStore::load(&store, &writer).await.expect("loads"));
        let tasks = Tasks::new();
        let delivery = DeliverySignals::new(&signals);
        let identities = IdentityStore::new(&store, &writer);
        let identity = identities.begin(&instance, &database).await.expect("an identity");
        let faulty = FaultyPositions::new(Arc::new(database));
        let positions = Positions::start(faulty.clone(), &signals);
        let barriers = positions.log().clone();
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
            limits,
            signals: delivery.clone(),
            stream_tasks: tasks.clone(),
        });
        let groups = dispatcher.groups(GroupStores { subscriptions, identities, auto_create: true });
        *listener.lock() = Some(dispatcher.clone());
        tasks.spawn("ticker", dispatcher.clone().tick(tasks.stop()));
        tasks.spawn("waker", dispatcher.clone().attend(tasks.stop()));
        tasks.spawn("progress", dispatcher.clone().keep_progress(tasks.stop()));
        Self {
            clock,
            storage,
            log,
            meta,
            positions: faulty,
            barriers,
            dispatcher,
            groups,
            signals: delivery,
            tasks,
            listener,
            limits,
            folder,
        }
    }

    pub(crate) fn start_dead_letter_writer(&self) {
        let writer = self.dispatcher.clone().write_dead_letters(self.tasks.stop());
        self.tasks.spawn("dead letters", writer);
    }

    /// The ledger of dead letters beside the dispatcher.
    fn ledger(&self) -> MetaBackedDeadLetterStore {
        let store = MetaStore::new(self.meta.clone(), self.clock, &Signals::new());
        let writer =
            Writer::new(&InstanceId::new("beside").expect("a legal name"), &mesh_base::Chance::system());
        MetaBackedDeadLetterStore::new(&store, &writer, DeadLetterKeys::OneForAll)
    }

    /// Writes the row of a dead letter as the writer does.
    pub(crate) async fn record_dead(&self, row: DeadLetter) {
        self.ledger().record(row).await.expect("recorded");
    }

    /// How many replays are written down as not finished.
    pub(crate) async fn intents(&self) -> usize {
        let intents = self.ledger().intents().await.expect("read");
        intents.iter().map(|(_, intent)| intent.record.attempts.len()).sum()
    }

    /// Ends the process whatever it is at, and starts it again over the same log, Meta and positions.
    pub(crate) async fn restart(self) -> (Self, Recovered) {
        self.restart_after(|_| ()).await
    }

    /// The same; `between` is called when the old process has ended and before the next one starts.
    pub(crate) async fn restart_after(self, between: impl FnOnce(&FaultyMeta)) -> (Self, Recovered) {
        let Self {
            clock,
            storage,
            log,
            meta,
            positions,
            dispatcher,
            groups,
            tasks,
            listener,
            limits,
            folder,
            ..
        } = self;
        dispatcher.flush().await;
        assert!(tasks.shut_down(DEADLINE).await, "its tasks end");
        *listener.lock() = None;
        drop((dispatcher, groups, tasks, positions));
        between(&meta);
        let rig = Self::over(Lasting { clock, storage, log, meta, limits, listener, folder }).await;
        let recovered = rig.groups.recover().await.expect("recovered");
        rig.start_dead_letter_writer();
        (rig, recovered)
    }

    pub(crate) async fn subscribe(&self, name: &str, mode: Mode, asked: AskedSettings) -> Subscribed {
        self.try_subscribe(name, mode, None, asked).await.expect("subscribed")
    }

    pub(crate) async fn try_subscribe(
        &self,
        name: &str,
        mode: Mode,
        group: Option<&str>,
        asked: AskedSettings,
    ) -> Result<Subscribed, SubscribeError> {
        let group = group.map(|group| GroupName::new(group).expect("a legal name"));
        self.groups.subscribe(Subscribe { mode, group, asked, ..request(name, topic()) }).await
    }

    /// A member of the shared group of another topic.
    pub(crate) async fn subscribe_to(&self, topic: TopicName, name: &str) -> Subscribed {
        self.groups.subscribe(request(name, topic)).await.expect("subscribed")
    }

    /// How many events ended for this reason.
    pub(crate) fn dropped(&self, reason: &str) -> u64 {
        self.signals.dropped.get_or_create(&vec![("reason", reason.to_owned())]).get()
    }

    /// Polls once, takes what comes as delivered, and gives the topic of each.
    pub(crate) async fn poll_topics(&self, name: &str, most: usize, timeout_ms: u64) -> Vec<String> {
        let timeout = Duration::from_millis(timeout_ms);
        let mut answer =
            self.dispatcher.poll(&anybody(), &client(name), most, timeout).await.expect("an answer");
        answer.delivered();
        answer.deliveries().iter().map(|delivery| delivery.group.id().topic.to_string()).collect()
    }

    pub(crate) async fn publish(&self, event: Event) {
        let topic = self.storage.ensure_topic(&topic(), true, None).await.expect("a topic");
        let partition = match event.partition_key() {
            Some(key) => topic.partition_of_key(key),
            None => topic.next_partition(),
        };
        self.storage
            .appended(self.storage.append(vec![AppendItem { partition, event }]))
            .await
            .expect("stored");
    }

    pub(crate) async fn publish_ids(&self, ids: std::ops::Range<u32>) {
        for id in ids {
            self.publish(event(&id.to_string(), None)).await;
        }
    }

    /// Polls once and takes what comes as delivered.
    pub(crate) async fn poll(&self, name: &str, most: usize, timeout_ms: u64) -> Vec<Got> {
        let timeout = Duration::from_millis(timeout_ms);
        let mut answer =
            self.dispatcher.poll(&anybody(), &client(name), most, timeout).await.expect("an answer");
        answer.delivered();
        got(&answer)
    }

    pub(crate) async fn ack(&self, ids: &[&Got]) -> Vec<mesh_delivery::SettleOutcome> {
        let ids: Vec<String> = ids.iter().map(|got| got.delivery.clone()).collect();
        self.dispatcher.ack(&self.dispatcher.resolve(&tenant(), &ids)).await
    }

    /// Waits until every commit that was handed in has been answered.
    pub(crate) async fn commits_are_answered(&self) {
        let barrier = PositionBatch::new();
        let answer = self.barriers.commit(self.barriers.epoch(), barrier, Durability::Logged);
        match self.barriers.committed(answer).await {
            // Whatever the answer: those before it have theirs.
            Ok(()) | Err(_) => {}
        }
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let end = self.clock.elapsed() + DEADLINE;
        while !holds() {
            assert!(self.clock.elapsed() < end, "waited for: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// What a member of the shared group of a topic asks for.
pub(crate) fn request(name: &str, topic: TopicName) -> Subscribe {
    Subscribe {
        tenant: tenant(),
        client: client(name),
        topic,
        mode: Mode::LoadBalance,
        group: None,
        asked: AskedSettings::default(),
        max_in_flight: None,
        start: StartAt::Latest,
        principal: None,
        over_others: false,
        most_of_tenant: None,
    }
}

/// A delivery as its client sees it.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) event: String,
    pub(crate) offset: Offset,
    pub(crate) attempt: u32,
    pub(crate) delivery: String,
}

pub(crate) fn got(answer: &Answer) -> Vec<Got> {
    got_of(answer.deliveries())
}

pub(crate) fn got_of(deliveries: &[Delivery]) -> Vec<Got> {
    deliveries
        .iter()
        .map(|delivery| Got {
            event: delivery.record.record().event.id().to_owned(),
            offset: delivery.offset,
            attempt: delivery.attempt,
            delivery: delivery.id.clone(),
        })
        .collect()
}

pub(crate) fn events(got: &[Got]) -> Vec<&str> {
    got.iter().map(|got| got.event.as_str()).collect()
}

pub(crate) fn event(id: &str, key: Option<&str>) -> Event {
    let mut builder = EventBuilder::new(id, "/test", "t");
    if let Some(key) = key {
        builder = builder.attribute("partitionkey", key);
    }
    builder.text("data").build().expect("an event")
}
