//! Both drivers of positions keep the contract, and read the same.

use std::{path::Path, sync::Arc};

use mesh_frame::{Incarnation, Offset, PartitionId};
use mesh_rocks::Durability;
use mesh_state::positions::{
    Cursor, LaneKey, PositionBatch, PositionStore, conformance, faulty::FaultyPositions,
    memory::MemoryPositions,
};
use proptest::prelude::*;

fn on_disk(path: &Path) -> Arc<dyn PositionStore> {
    super::database(path)
}

mod rocksdb {
    use super::*;

    mesh_state::position_conformance_tests!({
        let folder = tempfile::tempdir().expect("a folder");
        (on_disk(folder.path()), folder)
    });

    #[test]
    fn a_restart_keeps_everything() {
        let folder = tempfile::tempdir().expect("a folder");
        conformance::before_a_restart(on_disk(folder.path()));
        conformance::a_restart_keeps_everything(on_disk(folder.path()));
    }

    #[test]
    fn a_kill_keeps_everything() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = on_disk(folder.path());
        conformance::before_a_restart(store.clone());
        let killed = super::super::as_killed(folder.path());
        drop(store);
        conformance::a_restart_keeps_everything(on_disk(killed.path()));
    }
}

mod memory {
    use super::*;

    mesh_state::position_conformance_tests!((Arc::new(MemoryPositions::new()) as Arc<dyn PositionStore>, ()));
}

/// Without orders the wrapper is the driver in it.
mod faulty {
    use super::*;

    mesh_state::position_conformance_tests!((
        FaultyPositions::new(Arc::new(MemoryPositions::new())) as Arc<dyn PositionStore>,
        ()
    ));
}

/// A change of one of a few lanes, so that changes meet.
fn change() -> impl Strategy<Value = (u8, LaneKey, Offset)> {
    let lane = (1..3_u64, 0..2_u32, 0..2_u32).prop_map(|(group, generation, partition)| LaneKey {
        group,
        generation,
        partition: PartitionId(partition),
    });
    (0..10_u8, lane, (0..4_u64).prop_map(Offset))
}

fn batch(changes: &[(u8, LaneKey, Offset)], step: u32) -> PositionBatch {
    let mut batch = PositionBatch::new();
    for (kind, lane, offset) in changes {
        match kind {
            0..=4 => batch.put_row(*lane, *offset, super::row(step)),
            5..=6 => batch.delete_row(*lane, *offset),
            7..=8 => {
                batch.put_cursor(*lane, Cursor { next_to_read: *offset, incarnation: Incarnation(7) });
            }
            _ => batch.forget(*lane),
        }
    }
    batch
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_drivers_read_the_same_after_any_commits(
        commits in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(change(), 0..6), 0..4),
            1..12,
        )
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let drivers = [on_disk(folder.path()), Arc::new(MemoryPositions::new())];
        for (step, batches) in (0..).zip(&commits) {
            let batches: Vec<PositionBatch> = batches.iter().map(|changes| batch(changes, step)).collect();
            for driver in &drivers {
                driver.commit(&batches, Durability::Logged).expect("committed");
            }
            let [disk, memory] = drivers.each_ref().map(|driver| {
                let lanes = driver.deliveries().lanes().expect("read");
                let rows: Vec<_> =
                    lanes.iter().map(|(lane, _)| driver.deliveries().rows(*lane).expect("read")).collect();
                (driver.offsets().cursors().expect("read"), lanes, rows)
            });
            prop_assert_eq!(disk, memory, "after {} commits", step + 1);
        }
    }
}
