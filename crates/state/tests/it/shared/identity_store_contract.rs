//! What must be unique for ever: over restarts, and when either database is wiped or replaced by an older copy.

use std::{collections::HashSet, path::Path, sync::Arc};

use mesh_base::BackendErrorKind;
use mesh_frame::Epoch;
use mesh_meta::{MetaStore, memory::MemoryMeta};
use mesh_rocks::Machine;
use mesh_state::{
    positions::{PositionsSettings, RocksDbPositions},
    shared::{DeliveryIdKey, Identity, IdentityStore, NumbersAligned},
};

use super::arrange::{backends, faulty, group, instance, memory, store, writer};

fn identities(meta: &MetaStore) -> IdentityStore {
    IdentityStore::new(meta, &writer("one"))
}

fn positions(path: &Path) -> RocksDbPositions {
    let settings = PositionsSettings { path: path.to_owned() };
    RocksDbPositions::open(&settings, &Machine::default()).expect("opens")
}

/// A start of the instance over these databases.
async fn start(meta: &MetaStore, path: &Path) -> Identity {
    identities(meta).begin(&instance("one"), &positions(path)).await.expect("an identity")
}

#[tokio::test]
async fn the_key_is_made_once_and_everybody_reads_what_won() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, meta) in backends(&folder) {
        let both = [identities(&meta), IdentityStore::new(&meta, &writer("two"))];
        let (a, b) = tokio::join!(both[0].delivery_id_key(), both[1].delivery_id_key());
        let key = a.expect("a key");
        assert_eq!(key, b.expect("a key"), "{name}");
        assert_ne!(key, DeliveryIdKey([0; 32]), "{name}");
        let other = DeliveryIdKey([7; 32]);
        assert_eq!(
            both[1].adopt_delivery_id_key(&other).await.expect("read"),
            key,
            "{name}: the first holds"
        );
    }
    let meta = memory();
    let old = DeliveryIdKey([7; 32]);
    assert_eq!(identities(&meta).adopt_delivery_id_key(&old).await.expect("adopted"), old);
    assert_eq!(identities(&meta).delivery_id_key().await.expect("read"), old);
    assert_eq!(format!("{old:?}"), "DeliveryIdKey(…)");
}

#[tokio::test]
async fn a_damaged_key_is_refused_and_not_replaced() {
    let meta = memory();
    meta.put("/em/cluster/key", r#"{"v":1,"writer":"w","counter":1,"key":"00"}"#).await.expect("put");
    let error = identities(&meta).delivery_id_key().await.expect_err("damaged");
    assert_eq!(error.kind(), BackendErrorKind::Corrupt);
}

#[tokio::test]
async fn every_boot_of_an_instance_has_a_higher_count_also_when_counted_at_once() {
    let meta = memory();
    let mut counts = HashSet::new();
    for _ in 0..3 {
        let both = [identities(&meta), identities(&meta)];
        let name = instance("one");
        let (a, b) = tokio::join!(both[0].count_boot(&name, Epoch(0)), both[1].count_boot(&name, Epoch(0)));
        for count in [a, b] {
            assert!(counts.insert(count.expect("counted")), "{counts:?}");
        }
    }
    assert_eq!(counts.len(), 6);
    assert_eq!(identities(&meta).count_boot(&instance("two"), Epoch(0)).await.expect("counted"), Epoch(1));
    assert_eq!(identities(&meta).count_boot(&instance("two"), Epoch(40)).await.expect("counted"), Epoch(41));
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_a_wiped_nor_an_older_database_gives_a_boot_count_twice_under_one_key() {
    let root = tempfile::tempdir().expect("a folder");
    let (current, older) = (root.path().join("current"), root.path().join("older"));
    let meta = memory();
    let mut given = HashSet::new();
    let mut remember = |what: &str, run: Identity| {
        assert!(given.insert((run.delivery_id_key, run.epoch)), "{what}: {:?} was given before", run.epoch);
    };
    remember("the first start", start(&meta, &current).await);
    std::fs::create_dir(&older).expect("made");
    for entry in std::fs::read_dir(&current).expect("the folder") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), older.join(entry.file_name())).expect("copied");
    }
    // What Meta held then, to be put back later.
    let copy = meta.list("/em/").await.expect("listed").entries;
    remember("a restart", start(&meta, &current).await);
    remember("positions from an older copy", start(&meta, &older).await);
    remember("wiped positions", start(&meta, &root.path().join("wiped")).await);
    // Whichever directory served last has seen the highest count.
    let last = root.path().join("wiped");
    let restored = memory();
    for entry in copy {
        restored.put(&entry.key, entry.current.value).await.expect("put back");
    }
    remember("Meta from an older copy", start(&restored, &last).await);
    remember("a restart after that", start(&restored, &last).await);
    let wiped = memory();
    let run = start(&wiped, &last).await;
    assert!(!given_key(&given, &run), "a wiped Meta has a new key");
}

fn given_key(given: &HashSet<([u8; 32], Epoch)>, run: &Identity) -> bool {
    given.iter().any(|(key, _)| *key == run.delivery_id_key)
}

#[tokio::test]
async fn numbers_are_random_reserved_and_given_back() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, meta) in backends(&folder) {
        let identities = identities(&meta);
        let mut numbers = HashSet::new();
        for _ in 0..50 {
            let number = identities.new_group_number(&group("g")).await.expect("a number");
            assert!((1 << 32..1 << 63).contains(&number), "{name}: {number}");
            assert!(numbers.insert(number), "{name}: {number} twice");
        }
        let number = *numbers.iter().next().expect("fifty of them");
        let key = format!("/em/group-numbers/{number:016x}");
        assert!(meta.get(&key).await.expect("read").is_some(), "{name}");
        identities.release_group_number(number, &group("another")).await.expect("done");
        assert!(meta.get(&key).await.expect("read").is_some(), "{name}: only its own group gives it back");
        identities.release_group_number(number, &group("g")).await.expect("done");
        assert!(meta.get(&key).await.expect("read").is_none(), "{name}");
        identities.release_group_number(number, &group("g")).await.expect("again does nothing");
    }
}

#[tokio::test]
async fn the_reservations_are_made_those_of_the_groups_that_there_are() {
    let meta = memory();
    let identities = identities(&meta);
    let kept = identities.new_group_number(&group("kept")).await.expect("a number");
    identities.new_group_number(&group("died on the way")).await.expect("a number");
    // As an older release counted them.
    let groups = [(group("kept"), kept), (group("old one"), 1), (group("old two"), 2)];
    let aligned = identities.align_group_numbers(&groups).await.expect("aligned");
    assert_eq!(aligned, NumbersAligned { reserved: 2, released: 1 });
    let again = identities.align_group_numbers(&groups).await.expect("aligned");
    assert_eq!(again, NumbersAligned::default());
    let listed = meta.list("/em/group-numbers/").await.expect("listed").entries;
    assert_eq!(listed.len(), 3, "{listed:?}");
    let twice = [(group("a"), 9), (group("b"), 9)];
    let error = identities.align_group_numbers(&twice).await.expect_err("two groups, one number");
    assert_eq!(error.kind(), BackendErrorKind::Refused, "{}", error.chain());
}

#[tokio::test]
async fn a_lost_answer_costs_no_second_count_and_a_failure_gives_nothing() {
    let (meta, driver) = faulty();
    driver.lose_answers(1);
    assert_eq!(identities(&meta).count_boot(&instance("one"), Epoch(0)).await.expect("counted"), Epoch(1));
    driver.fail_writes(1, BackendErrorKind::Full);
    assert!(identities(&meta).count_boot(&instance("one"), Epoch(0)).await.is_err());
    assert!(identities(&store(Arc::new(MemoryMeta::new()))).new_group_number(&group("g")).await.is_ok());
    driver.partition(true);
    assert!(identities(&meta).new_group_number(&group("g")).await.is_err());
    driver.partition(false);
    assert_eq!(identities(&meta).count_boot(&instance("one"), Epoch(0)).await.expect("counted"), Epoch(2));
}
