//! What no handle of the crate shows yet: a lane that is dropped and loaded by itself, and retention that asks others.

use futures_util::FutureExt;
use mesh_frame::{EventBuilder, Offset, PartitionId};
use mesh_meta::{MetaStore, memory::MemoryMeta};
use mesh_rocks::Durability;
use mesh_state::{
    positions::{PositionBatch, faulty::FaultyPositions, memory::MemoryPositions},
    shared::{ClusterSubscriptionStore, DeadLetterKeys, IdentityStore, Writer},
};
use mesh_storage::{AppendItem, Change, Memory, SettingsChange, StorageLimits, TopicRules};

use super::*;
use crate::{AskedSettings, DeliveryTopology, Floor, Floors, Mode, StartAt, Subscribe};

struct Mesh {
    storage: Storage,
    positions: Arc<FaultyPositions>,
    dispatcher: ReliableDispatcher,
    groups: Groups,
}

fn topic() -> TopicName {
    TopicName::new("t").expect("legal")
}

fn tenant() -> TenantId {
    TenantId::new("default").expect("legal")
}

fn client() -> ClientId {
    ClientId::new("c").expect("legal")
}

impl Mesh {
    /// A mesh in memory whose topics have two partitions, with one client that is subscribed.
    async fn new() -> Self {
        let (clock, signals, chance) = (Clock::system(), Signals::new(), Chance::seeded(7));
        let (tail, _announcements) = Storage::tail(1 << 20);
        let log = Arc::new(Memory::new(clock, chance.clone(), tail.clone(), &signals));
        let limits = StorageLimits { partitions: 2, topics: 100, rules: TopicRules::default() };
        let storage = Storage::new(log, tail, limits, None, &signals).expect("a log");
        let meta = MetaStore::new(Arc::new(MemoryMeta::new()), clock, &signals);
        let instance = InstanceId::new("one").expect("legal");
        let writer = Writer::new(&instance, &chance);
        let positions = FaultyPositions::new(Arc::new(MemoryPositions::new()));
        let dispatcher = ReliableDispatcher::new(Foundations {
            clock,
            chance,
            storage: storage.clone(),
            positions: Arc::new(Positions::start(positions.clone(), &signals)),
            dead_letters: MetaBackedDeadLetterStore::new(&meta, &writer, DeadLetterKeys::OneForAll),
            polled: DeliveryTopology::LocalStickyPull.polled(),
            instance,
            delivery_id_key: [7; 32],
            epoch: Epoch(1),
            limits: DeliveryLimits {
                outstanding: 100,
                outstanding_total: 1_000,
                subscriptions_per_client: 10,
                idle_timeout: None,
                answer_bytes: 1 << 20,
                stream_unread: Duration::from_secs(30),
                publish_timeout: Duration::from_secs(5),
            },
            signals: DeliverySignals::new(&signals),
            stream_tasks: Tasks::new(),
        });
        let groups = dispatcher.groups(GroupStores {
            subscriptions: Arc::new(ClusterSubscriptionStore::load(&meta, &writer).await.expect("loaded")),
            identities: IdentityStore::new(&meta, &writer),
            auto_create: true,
        });
        groups.recover().await.expect("nothing to bring back");
        let request = Subscribe {
            tenant: tenant(),
            client: client(),
            topic: topic(),
            mode: Mode::LoadBalance,
            group: None,
            asked: AskedSettings::default(),
            max_in_flight: Some(6),
            start: StartAt::Latest,
            principal: None,
            over_others: false,
            most_of_tenant: None,
        };
        groups.subscribe(request).await.expect("subscribed");
        Self { storage, positions, dispatcher, groups }
    }

    async fn publish(&self, partition: u32, count: u32) {
        let topic = self.storage.topic(&topic()).expect("made by the subscribe");
        let partition = topic.partition(PartitionId(partition)).expect("there are two");
        for id in 0..count {
            let event = EventBuilder::new(&id.to_string(), "/s", "x").build().expect("legal");
            let item = AppendItem { partition: partition.clone(), event };
            self.storage.appended(self.storage.append(vec![item])).await.expect("stored");
        }
    }

    /// What a poll gives: partition and offset, the attempt, and the id. It is taken for delivered.
    async fn poll(&self, most: usize) -> Vec<((u32, u64), u32, String)> {
        let receiver = Receiver::anybody(tenant());
        let answer = self.dispatcher.poll(&receiver, &client(), most, Duration::ZERO).await;
        let mut answer = answer.expect("an answer");
        answer.delivered();
        let of = |delivery: &crate::Delivery| {
            ((delivery.partition.0, delivery.offset.0), delivery.attempt, delivery.id.clone())
        };
        let mut given: Vec<_> = answer.deliveries().iter().map(of).collect();
        given.sort();
        given
    }

    async fn ack(&self, id: &str) -> SettleOutcome {
        let deliveries = self.dispatcher.resolve(&tenant(), &[id.to_owned()]);
        self.dispatcher.ack(&deliveries).await[0]
    }

    fn floors(&self) -> Vec<u64> {
        self.dispatcher.positions(&topic()).iter().map(|position| position.floor.0).collect()
    }
}

#[tokio::test]
async fn a_lane_is_dropped_and_loaded_by_itself_and_the_others_do_not_notice() {
    let mesh = Mesh::new().await;
    let core = &mesh.dispatcher.0.core;
    mesh.publish(0, 3).await;
    mesh.publish(1, 3).await;
    let given = mesh.poll(6).await;
    let places: Vec<(u32, u64)> = given.iter().map(|(place, ..)| *place).collect();
    assert_eq!(places, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
    let id = |place: (u32, u64)| given.iter().find(|(at, ..)| *at == place).expect("given").2.clone();
    assert_eq!(mesh.ack(&id((1, 0))).await, SettleOutcome::Settled);

    let group = core.directory.of_topic(&topic()).remove(0);
    let partition = group.topic.partition(PartitionId(1)).expect("there");
    assert!(core.drop_lane(&group, &partition) && !core.drop_lane(&group, &partition));
    assert_eq!(mesh.ack(&id((1, 1))).await, SettleOutcome::Unknown, "its lane is elsewhere");
    assert_eq!(mesh.ack(&id((0, 1))).await, SettleOutcome::Settled, "the other lane stands");
    assert_eq!(mesh.dispatcher.pending_count(), 2);
    // What was in flight of the dropped lane counts in no window: six may be in flight.
    mesh.publish(0, 4).await;
    assert_eq!(mesh.poll(10).await.len(), 4);

    core.load_lane(&group, &partition, None).await.expect("loaded");
    core.load_lane(&group, &partition, None).await.expect("there already");
    assert_eq!(mesh.dispatcher.pending_count(), 8, "with the locks and attempts that it had");
    assert_eq!(mesh.ack(&id((1, 0))).await, SettleOutcome::Unknown, "done is done");
    assert_eq!(mesh.ack(&id((1, 1))).await, SettleOutcome::Settled, "an id from before is good");
    assert_eq!(mesh.ack(&id((1, 2))).await, SettleOutcome::Settled);
    assert_eq!(mesh.floors(), [0, 3]);
    // Six are in flight again, all of the other partition: one must go before the lane may hand out.
    mesh.publish(1, 1).await;
    assert_eq!(mesh.ack(&id((0, 0))).await, SettleOutcome::Settled);
    let more: Vec<(u32, u64)> = mesh.poll(10).await.into_iter().map(|(place, ..)| place).collect();
    assert_eq!(more, [(1, 3)], "it hands out again");
}

#[tokio::test]
async fn a_commit_that_was_under_way_when_its_lane_went_is_in_what_is_loaded() {
    let mesh = Mesh::new().await;
    let core = &mesh.dispatcher.0.core;
    mesh.publish(0, 2).await;
    let given = mesh.poll(2).await;
    let group = core.directory.of_topic(&topic()).remove(0);
    let partition = group.topic.partition(PartitionId(0)).expect("there");
    {
        let _held = mesh.positions.hold();
        for (_, _, id) in &given {
            let deliveries = mesh.dispatcher.resolve(&tenant(), std::slice::from_ref(id));
            assert!(
                mesh.dispatcher.ack(&deliveries).now_or_never().is_none(),
                "handed in, and not waited for"
            );
        }
        core.drop_lane(&group, &partition);
    }
    core.load_lane(&group, &partition, None).await.expect("loaded");
    assert_eq!((mesh.floors(), mesh.dispatcher.pending_count()), (vec![2, 0], 0));
}

#[tokio::test]
async fn what_a_commit_completes_is_completed_without_the_request() {
    let mesh = Mesh::new().await;
    let core = &mesh.dispatcher.0.core;
    mesh.publish(0, 1).await;
    let given = mesh.poll(1).await;
    let deliveries = mesh.dispatcher.resolve(&tenant(), &[given[0].2.clone()]);
    {
        let _held = mesh.positions.hold();
        assert!(mesh.dispatcher.ack(&deliveries).now_or_never().is_none(), "the request has gone");
    }
    // A barrier behind it, then anybody who looks at the group.
    let (ledger, group) = (&core.ledger, core.directory.of_topic(&topic()).remove(0));
    ledger.commit(ledger.epoch(), PositionBatch::new(), Durability::Logged).await.expect("committed");
    core.after(&group);
    assert_eq!((mesh.floors(), mesh.dispatcher.pending_count()), (vec![1, 0], 0));
    assert_eq!(core.attention.abandoned().await.len(), 1, "and somebody looks when nobody else does");
}

/// Says of partition 0 what a test says, and that nobody reads another.
struct Says(Floor);

impl Floors for Says {
    fn floor(&self, _: &TopicName, partition: PartitionId) -> Floor {
        if partition == PartitionId(0) { self.0 } else { Floor::NobodyReads }
    }
}

#[tokio::test]
async fn retention_drops_nothing_that_a_group_elsewhere_has_not_read() {
    let mesh = Mesh::new().await;
    let core = &mesh.dispatcher.0.core;
    let age = SettingsChange { retention_max_age_ms: Change::Set(1), ..SettingsChange::default() };
    mesh.groups.topics().make(&topic(), None, age).await.expect("changed");
    mesh.publish(0, 6).await;
    let log = mesh.storage.topic(&topic()).expect("there");
    let start_after = async |floor| {
        let now = core.clock.now();
        core.clock.sleep_until(now.plus(Duration::from_millis(3))).await;
        let retention = Retention::new(core.clone(), mesh.dispatcher.letters(), Arc::new(Says(floor)));
        retention.retain_topic(&log).await.expect("applied");
        log.partition(PartitionId(0)).expect("there").start()
    };
    assert_eq!(start_after(Floor::Unknown).await, Offset(0), "it is not known who needs what");
    assert_eq!(start_after(Floor::Below(Offset(3))).await, Offset(3));
    assert_eq!(start_after(Floor::Unknown).await, Offset(3));
    assert_eq!(start_after(Floor::NobodyReads).await, Offset(6));
    // This instance alone: its group has read nothing, and a lane that is elsewhere may be anywhere.
    mesh.publish(0, 1).await;
    let (local, group) = (OfThisInstance(core.clone()), core.directory.of_topic(&topic()).remove(0));
    let (name, first) = (topic(), PartitionId(0));
    assert_eq!(local.floor(&name, first), Floor::Below(Offset(0)));
    core.drop_lane(&group, &group.topic.partition(first).expect("there"));
    assert_eq!(local.floor(&name, first), Floor::Unknown);
    assert_eq!(local.floor(&TopicName::new("other").expect("legal"), first), Floor::NobodyReads);
}

#[tokio::test]
async fn a_topic_that_is_deleted_while_retention_looks_has_lost_nothing() {
    let mesh = Mesh::new().await;
    let core = &mesh.dispatcher.0.core;
    let age = SettingsChange { backlog_max_age_ms: Change::Set(1), ..SettingsChange::default() };
    mesh.groups.topics().make(&topic(), None, age).await.expect("changed");
    mesh.publish(0, 6).await;
    let log = mesh.storage.topic(&topic()).expect("there");
    let now = core.clock.now();
    core.clock.sleep_until(now.plus(Duration::from_millis(3))).await;
    let below = Arc::new(Says(Floor::Below(Offset(0))));
    let retention = Retention::new(core.clone(), mesh.dispatcher.letters(), below);
    mesh.storage.delete_topic(&topic()).await.expect("deleted");
    // It has the topic in hand from before.
    retention.retain_topic(&log).await.expect("nothing to do");
    assert_eq!(core.directory.of_topic(&topic())[0].state.lock().lanes[0].lane.gap(), None);
    let dropped = core.signals.dropped.get_or_create(&vec![("reason", "dropped_backlog".to_owned())]).get();
    assert_eq!(dropped, 0, "told as loss");
}
