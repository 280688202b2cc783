//! A data directory of format 1 is taken over, whenever the upgrade is cut short.

use std::{path::Path, sync::Arc};

use mesh_base::{Clock, Signals};
use mesh_frame::{Epoch, GroupName, Incarnation, Offset, PartitionId, TenantId, TopicName};
use mesh_meta::{LocalMeta, LocalMetaSettings, MetaStore};
use mesh_rocks::{Batch, Durability, Family, FamilyKind, LocalDb, Machine, Spec};
use mesh_state::{
    positions::{Cursor, LaneKey, PositionBatch, PositionStore, PositionsSettings},
    shared::{AckMode, GroupId, GroupKind, GroupRecord, GroupSettings, Unknown, Writer},
};

use super::*;

const OLD_KEY: [u8; 32] = [0x5a; 32];
const OLD_BOOTS: u64 = 41;

fn group(name: &str) -> GroupId {
    GroupId {
        tenant: TenantId::new("default").expect("legal"),
        topic: TopicName::new("orders").expect("legal"),
        kind: GroupKind::LoadBalance,
        name: GroupName::new(name).expect("legal"),
    }
}

fn record(number: u64, home: &InstanceId) -> GroupRecord {
    GroupRecord {
        id: number,
        generation: 0,
        incarnation: Incarnation(7),
        mode: "LOAD_BALANCE".into(),
        settings: GroupSettings {
            filters: Vec::new(),
            from: serde_json::Value::Null,
            ack: AckMode::Explicit,
            ack_timeout_ms: 30_000,
            max_attempts: 6,
            backoff_ms: 1_000,
            max_backoff_ms: 16_000,
            unknown: Unknown::default(),
        },
        home: home.clone(),
        unknown: Unknown::default(),
    }
}

fn lane(number: u64) -> LaneKey {
    LaneKey { group: number, generation: 0, partition: PartitionId(0) }
}

fn cursor(next: u64) -> Cursor {
    Cursor { next_to_read: Offset(next), incarnation: Incarnation(7) }
}

/// The position database without its rules, as `docs/storage-format.md` lays it out.
fn raw_positions(root: &Path) -> LocalDb {
    const FAMILIES: &[Family] = &[
        Family { name: "cursors", kind: FamilyKind::Rows },
        Family { name: "ledger", kind: FamilyKind::Rows },
    ];
    let spec = Spec {
        name: "offset store",
        path: root.join("offset"),
        families: FAMILIES,
        write_buffer_bytes: 8 << 20,
    };
    LocalDb::open(&spec, &Machine::default()).expect("opens")
}

/// Everything a boot has open when it comes to its identity.
struct Opened {
    data_dir: DataDir,
    instance: InstanceId,
    positions: RocksDbPositions,
    subscriptions: ClusterSubscriptionStore,
    identities: IdentityStore,
    meta: MetaStore,
}

impl Opened {
    async fn at(root: &Path) -> Self {
        let data_dir = DataDir::take(root, &[]).expect("free");
        let instance = data_dir.instance(None, &mesh_base::Chance::system()).expect("an id");
        let (machine, signals) = (Machine::default(), Signals::new());
        let settings = PositionsSettings { path: root.join("offset") };
        let positions = RocksDbPositions::open(&settings, &machine).expect("opens");
        let driver = LocalMeta::open(&LocalMetaSettings::at(root.join("meta")), &machine).expect("opens");
        let meta = MetaStore::new(Arc::new(driver), Clock::system(), &signals);
        let writer = Writer::new(&instance, &mesh_base::Chance::system());
        let subscriptions = ClusterSubscriptionStore::load(&meta, &writer).await.expect("loads");
        let identities = IdentityStore::new(&meta, &writer);
        Self { data_dir, instance, positions, subscriptions, identities, meta }
    }

    fn beginning(&self) -> Beginning<'_> {
        Beginning {
            data_dir: &self.data_dir,
            instance: &self.instance,
            positions: &self.positions,
            subscriptions: &self.subscriptions,
            identities: &self.identities,
        }
    }
}

/// A directory as a release with format 1 leaves it: two groups, numbered by counting.
async fn old_directory(root: &Path) {
    let opened = Opened::at(root).await;
    for (name, number) in [("first", 1), ("second", 2)] {
        let made = opened.subscriptions.create_group(&group(name), record(number, &opened.instance)).await;
        assert!(matches!(made, Ok(mesh_state::shared::Created::Written(_))), "{made:?}");
        let mut batch = PositionBatch::new();
        batch.put_cursor(lane(number), cursor(10 + number));
        opened.positions.commit(&[batch], Durability::Synced).expect("committed");
    }
    drop(opened);
    let db = raw_positions(root);
    let mut batch = Batch::new();
    batch.put("default", "format", 1_u32.to_be_bytes());
    batch.put("default", "boots", OLD_BOOTS.to_be_bytes());
    batch.put("default", "delivery_id_key", OLD_KEY);
    batch.put("default", "next_group", 2_u64.to_be_bytes());
    db.write(&batch, Durability::Synced).expect("written");
    drop(db);
    std::fs::write(root.join("FORMAT"), "eventmesh data 1\n").expect("written");
}

fn marker(root: &Path) -> String {
    std::fs::read_to_string(root.join("FORMAT")).expect("the marker")
}

/// What an older release would find in the position database.
fn old_keys(root: &Path) -> [Option<Vec<u8>>; 3] {
    let db = raw_positions(root);
    ["format", "delivery_id_key", "next_group"].map(|key| db.get("default", key.as_bytes()).expect("read"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_directory_is_taken_over_wherever_the_upgrade_was_cut_short() {
    for done in 0..=STEPS.len() {
        let root = tempfile::tempdir().expect("a folder");
        old_directory(root.path()).await;
        let opened = Opened::at(root.path()).await;
        opened.beginning().up_to(done).await.expect("the first steps");
        drop(opened);
        let raised = done > STEPS.iter().position(|step| *step == Step::RaiseMarker).expect("a step");
        assert_eq!(marker(root.path()) == "eventmesh data 2\n", raised, "after {done} steps");
        if !raised {
            // An older release still finds everything, and gives no number twice.
            let found = [
                Some(1_u32.to_be_bytes().to_vec()),
                Some(OLD_KEY.to_vec()),
                Some(2_u64.to_be_bytes().to_vec()),
            ];
            assert_eq!(old_keys(root.path()), found, "after {done} steps");
        }

        let opened = Opened::at(root.path()).await;
        let identity = opened.beginning().begin().await.expect("an identity");
        assert_eq!(identity.delivery_id_key, OLD_KEY, "ids of before are known, after {done} steps");
        assert!(identity.epoch > Epoch(OLD_BOOTS), "{identity:?} after {done} steps");
        assert_eq!(opened.positions.last_boot().expect("read"), identity.epoch);
        assert_eq!(opened.positions.old_identity().expect("read"), None, "after {done} steps");
        for number in [1, 2] {
            let there = opened.positions.offsets().cursor(lane(number)).expect("read");
            assert_eq!(there, Some(cursor(10 + number)), "group {number}");
            let key = format!("/em/group-numbers/{number:016x}");
            assert!(opened.meta.get(&key).await.expect("read").is_some(), "{key} after {done} steps");
        }
        let next = opened.identities.new_group_number(&group("third")).await.expect("a number");
        assert!(next > 2, "{next}");
        drop(opened);
        assert_eq!(marker(root.path()), "eventmesh data 2\n");
        let found = [Some(2_u32.to_be_bytes().to_vec()), None, None];
        assert_eq!(old_keys(root.path()), found, "after {done} steps");

        let opened = Opened::at(root.path()).await;
        let again = opened.beginning().begin().await.expect("an identity");
        assert_eq!(again.delivery_id_key, OLD_KEY);
        assert!(again.epoch > identity.epoch);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wiped_positions_and_their_older_copies_repeat_neither_key_nor_count() {
    let root = tempfile::tempdir().expect("a folder");
    old_directory(root.path()).await;
    let opened = Opened::at(root.path()).await;
    let first = opened.beginning().begin().await.expect("an identity");
    drop(opened);
    std::fs::remove_dir_all(root.path().join("offset")).expect("wiped");
    let opened = Opened::at(root.path()).await;
    let wiped = opened.beginning().begin().await.expect("an identity");
    assert_eq!((wiped.delivery_id_key, wiped.epoch.0), (first.delivery_id_key, first.epoch.0 + 1));
    drop(opened);
    // Positions of before the upgrade come back with another key: what Meta has holds.
    std::fs::remove_dir_all(root.path().join("offset")).expect("wiped");
    let db = raw_positions(root.path());
    let mut batch = Batch::new();
    batch.put("default", "format", 1_u32.to_be_bytes());
    batch.put("default", "boots", 3_u64.to_be_bytes());
    batch.put("default", "delivery_id_key", [1; 32]);
    db.write(&batch, Durability::Synced).expect("written");
    drop(db);
    let opened = Opened::at(root.path()).await;
    let restored = opened.beginning().begin().await.expect("an identity");
    assert_eq!((restored.delivery_id_key, restored.epoch.0), (first.delivery_id_key, wiped.epoch.0 + 1));
    assert_eq!(opened.positions.old_identity().expect("read"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_was_restored_gets_another_key_once() {
    let root = tempfile::tempdir().expect("a folder");
    let begin = async || {
        let opened = Opened::at(root.path()).await;
        opened.beginning().begin().await.expect("an identity").delivery_id_key
    };
    let first = begin().await;
    let file = root.path().join("RESTORED");
    std::fs::write(&file, "").expect("written");
    // A start that dies after the new key was made and before the file is gone makes another one.
    let opened = Opened::at(root.path()).await;
    opened.identities.renew_delivery_id_key().await.expect("renewed");
    drop(opened);
    let second = begin().await;
    assert_ne!(first, second);
    assert!(!file.exists(), "it was done");
    assert_eq!(begin().await, second);
}
