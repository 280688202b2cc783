//! The two local stores on real RocksDB: restarts, kills, a full disk.

use std::{fs, path::Path};

use mesh_base::{Signals, UnixMillis};
use mesh_frame::{Epoch, Incarnation, Offset, PartitionId};
use mesh_rocks::{Durability, Machine};
use mesh_state::positions::{
    CommitError, Cursor, DeliveryStateStore, LaneKey, LastError, OffsetStore, PositionBatch, Positions,
    PositionsSettings, Row, RowState,
};

fn open(path: &Path) -> Positions {
    let settings = PositionsSettings { path: path.to_owned() };
    Positions::open(&settings, &Machine::default(), &Signals::new()).expect("opens")
}

fn lane(partition: u32) -> LaneKey {
    LaneKey { group: 1, generation: 0, partition: PartitionId(partition) }
}

fn cursor(next: u64) -> Cursor {
    Cursor { next_to_read: Offset(next), incarnation: Incarnation(7) }
}

fn row(attempt: u32) -> Row {
    Row {
        state: RowState::InFlight,
        by_stream: false,
        attempt,
        serial: attempt,
        void_below: 0,
        returned: false,
        first: UnixMillis(1),
        last: UnixMillis(2),
        at: UnixMillis(3),
        key: Some(4),
        member: 5,
        epoch: Epoch(6),
        error: LastError::DeadlinePassed,
    }
}

async fn commit(positions: &Positions, batch: PositionBatch) -> Result<(), CommitError> {
    let log = positions.log();
    log.committed(log.commit(log.epoch(), batch, Durability::Logged)).await
}

/// The folder as a killed process leaves it: copied while it is open, without a flush or a close.
fn as_killed(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().expect("a folder");
    for entry in fs::read_dir(from).expect("the folder") {
        let entry = entry.expect("an entry");
        if entry.file_name() != "LOCK" {
            fs::copy(entry.path(), to.path().join(entry.file_name())).expect("copied");
        }
    }
    to
}

mod offset_store_restart {
    use super::*;

    // proves: CV-1, ST-1
    #[tokio::test(flavor = "multi_thread")]
    async fn offset_survives_process_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let positions = open(folder.path());
        let mut batch = PositionBatch::new();
        positions.offsets().stage(&mut batch, lane(0), cursor(100));
        commit(&positions, batch).await.expect("committed");
        let killed = as_killed(folder.path());
        let again = open(killed.path());
        assert_eq!(again.offsets().cursor(lane(0)).expect("read"), Some(cursor(100)));
        assert_eq!(again.offsets().cursor(lane(1)).expect("read"), None);
        assert_eq!(again.boots(), Epoch(2));
        assert_eq!(again.secret(), positions.secret());
    }
}

mod delivery_state_store_kill_minus_nine {
    use super::*;

    // proves: CV-6, ST-4, FM-2
    #[tokio::test(flavor = "multi_thread")]
    async fn in_flight_ledger_survives_abrupt_close() {
        let folder = tempfile::tempdir().expect("a folder");
        let positions = open(folder.path());
        let store = positions.deliveries();
        let mut batch = PositionBatch::new();
        for offset in 0..50 {
            store.stage_put(&mut batch, lane(0), Offset(offset), row(3));
        }
        commit(&positions, batch).await.expect("committed");
        let mut batch = PositionBatch::new();
        store.stage_delete(&mut batch, lane(0), Offset(7));
        store.stage_put(&mut batch, lane(1), Offset(9), row(1));
        commit(&positions, batch).await.expect("committed");
        let killed = as_killed(folder.path());
        let again = open(killed.path()).deliveries();
        let rows = again.rows(lane(0)).expect("read");
        assert_eq!(rows.len(), 49);
        assert!(rows.iter().all(|(offset, found)| *offset != Offset(7) && *found == row(3)));
        assert_eq!(again.lanes().expect("read"), [(lane(0), 49), (lane(1), 1)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_close_keeps_everything_and_group_numbers_are_never_given_twice() {
    // proves: FM-3
    let folder = tempfile::tempdir().expect("a folder");
    let positions = open(folder.path());
    let first = positions.new_group().expect("a number");
    let mut batch = PositionBatch::new();
    batch.put_cursor(lane(0), cursor(5));
    commit(&positions, batch).await.expect("committed");
    let positions = tokio::task::spawn_blocking(move || {
        positions.close();
        positions
    })
    .await
    .expect("closed");
    assert_eq!(commit(&positions, PositionBatch::new()).await, Err(CommitError::Closed));
    drop(positions);
    let positions = open(folder.path());
    assert_eq!(positions.offsets().cursors().expect("read"), [(lane(0), cursor(5))]);
    assert!(positions.new_group().expect("a number") > first);
}

#[tokio::test(flavor = "multi_thread")]
async fn forgetting_a_lane_removes_its_cursor_and_rows_and_no_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let positions = open(folder.path());
    let mut batch = PositionBatch::new();
    for partition in 0..3 {
        batch.put_cursor(lane(partition), cursor(5));
        batch.put_row(lane(partition), Offset(1), row(1));
    }
    batch.forget(lane(1));
    commit(&positions, batch).await.expect("committed");
    assert_eq!(positions.offsets().cursors().expect("read"), [(lane(0), cursor(5)), (lane(2), cursor(5))]);
    assert_eq!(positions.deliveries().lanes().expect("read"), [(lane(0), 1), (lane(2), 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_an_older_view_is_refused_and_a_barrier_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let positions = open(folder.path());
    let log = positions.log();
    assert_eq!(commit(&positions, PositionBatch::new()).await, Ok(()));
    let older = mesh_state::positions::LedgerEpoch(log.epoch().0 + 1);
    let mut batch = PositionBatch::new();
    batch.put_cursor(lane(0), cursor(5));
    let refused = log.committed(log.commit(older, batch, Durability::Logged)).await;
    assert_eq!(refused, Err(CommitError::Suspended));
    assert_eq!(positions.offsets().cursor(lane(0)).expect("read"), None);
}
