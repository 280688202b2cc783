//! The two local stores on real RocksDB: restarts, kills, a full disk.

mod drivers;
mod log;

use std::{fs, path::Path, sync::Arc};

use mesh_base::{Signals, UnixMillis};
use mesh_frame::{Epoch, Incarnation, Offset, PartitionId};
use mesh_rocks::{Durability, Machine};
use mesh_state::positions::{
    CommitError, Cursor, LaneKey, LastError, PositionBatch, PositionStore, Positions, PositionsSettings,
    RocksDbPositions, Row, RowState,
};

fn database(path: &Path) -> Arc<RocksDbPositions> {
    let settings = PositionsSettings { path: path.to_owned() };
    Arc::new(RocksDbPositions::open(&settings, &Machine::default()).expect("opens"))
}

fn open(path: &Path) -> Positions {
    Positions::start(database(path), &Signals::new())
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
        lost: 0,
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
        let database = database(folder.path());
        database.record_boot(Epoch(3)).expect("written");
        let positions = Positions::start(database, &Signals::new());
        let mut batch = PositionBatch::new();
        positions.offsets().stage(&mut batch, lane(0), cursor(100));
        commit(&positions, batch).await.expect("committed");
        let killed = as_killed(folder.path());
        let again = super::database(killed.path());
        assert_eq!(again.offsets().cursor(lane(0)).expect("read"), Some(cursor(100)));
        assert_eq!(again.offsets().cursor(lane(1)).expect("read"), None);
        assert_eq!(again.last_boot().expect("read"), Epoch(3));
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
        let again = open(killed.path());
        let again = again.deliveries();
        let rows = again.rows(lane(0)).expect("read");
        assert_eq!(rows.len(), 49);
        assert!(rows.iter().all(|(offset, found)| *offset != Offset(7) && *found == row(3)));
        assert_eq!(again.lanes().expect("read"), [(lane(0), 49), (lane(1), 1)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_close_keeps_everything() {
    // proves: FM-3
    let folder = tempfile::tempdir().expect("a folder");
    let at = database(folder.path());
    at.record_boot(Epoch(7)).expect("written");
    let positions = Positions::start(at, &Signals::new());
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
    let positions = database(folder.path());
    assert_eq!(positions.offsets().cursors().expect("read"), [(lane(0), cursor(5))]);
    assert_eq!(positions.last_boot().expect("read"), Epoch(7));
    assert_eq!(positions.old_identity().expect("read"), None);
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

#[tokio::test(flavor = "multi_thread")]
async fn after_a_write_that_failed_for_another_reason_than_space_the_ledger_opens_by_itself() {
    // covers: U66
    let root = tempfile::tempdir().expect("a folder");
    let (path, away) = (root.path().join("offset"), root.path().join("away"));
    let positions = open(&path);
    let log = positions.log().clone();
    let epoch = log.epoch();
    // RocksDB can make no new write-ahead log while the folder is not where it was.
    fs::rename(&path, &away).expect("moved away");
    let mut written = 0;
    let failed = loop {
        let mut batch = PositionBatch::new();
        for _ in 0..2_000 {
            let reason = LastError::said(Some(&"x".repeat(250)), LastError::Nacked);
            batch.put_row(lane(0), Offset(written), Row { error: reason, ..row(1) });
            written += 1;
        }
        if let Err(failed) = commit(&positions, batch).await {
            written -= 2_000;
            break failed;
        }
        assert!(written < 400_000, "100 MB were written without a new write-ahead log");
    };
    assert_eq!(failed, CommitError::Suspended);
    assert_eq!((log.is_open(), log.suspension()), (false, Some(CommitError::Suspended)));
    assert_eq!(commit(&positions, PositionBatch::new()).await, Err(CommitError::Suspended));
    assert!(positions.deliveries().rows(lane(0)).is_ok(), "it can be read meanwhile");
    fs::rename(&away, &path).expect("moved back");
    let opened = tokio::time::timeout(std::time::Duration::from_secs(20), async {
        while !log.is_open() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    opened.await.expect("the ledger opens by itself within 20 s");
    assert_eq!(log.epoch().0, epoch.0 + 1, "views of before are told by the epoch");
    let mut late = PositionBatch::new();
    late.put_cursor(lane(0), cursor(1));
    let late = log.committed(log.commit(epoch, late, Durability::Logged)).await;
    assert_eq!(late, Err(CommitError::Suspended), "a commit from an older view");
    let mut batch = PositionBatch::new();
    batch.put_cursor(lane(0), cursor(9));
    commit(&positions, batch).await.expect("committed");
    let rows = positions.deliveries().rows(lane(0)).expect("read").len() as u64;
    assert!(rows == written || rows == written + 2_000, "{rows} rows, {written} were committed");
    drop(positions);
    let positions = open(&path);
    assert_eq!(positions.offsets().cursor(lane(0)).expect("read"), Some(cursor(9)));
    assert_eq!(positions.deliveries().rows(lane(0)).expect("read").len() as u64, rows);
}
