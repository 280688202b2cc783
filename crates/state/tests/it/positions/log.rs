//! The log over a store that fails in every way: what is answered, what is there, and when it opens again.

use std::{sync::Arc, time::Duration};

use mesh_base::{BackendErrorKind, Signals};
use mesh_frame::Offset;
use mesh_rocks::Durability;
use mesh_state::positions::{
    CommitError, LedgerEpoch, PositionBatch, PositionLog, Positions,
    faulty::{FaultyPositions, WriteFault},
    memory::MemoryPositions,
};

use super::{commit, cursor, lane, row};

fn positions() -> (Positions, Arc<FaultyPositions>) {
    let store = FaultyPositions::new(Arc::new(MemoryPositions::new()));
    (Positions::start(store.clone(), &Signals::new()), store)
}

/// Sets the cursor of a lane of its own.
fn moves(partition: u32) -> PositionBatch {
    let mut batch = PositionBatch::new();
    batch.put_cursor(lane(partition), cursor(5));
    batch
}

/// Which of the lanes have a cursor, for good.
fn moved(store: &FaultyPositions) -> Vec<u32> {
    let cursors = store.inner().offsets().cursors().expect("read");
    cursors.into_iter().map(|(lane, _)| lane.partition.0).collect()
}

async fn opens(log: &PositionLog) {
    let opened = tokio::time::timeout(Duration::from_secs(20), async {
        while !log.is_open() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    opened.await.expect("the ledger opens by itself within 20 s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_fails_suspends_the_ledger_whether_or_not_it_happened() {
    // covers: U66
    for (fault, answer, there) in [
        (WriteFault::Refused(BackendErrorKind::Unavailable), CommitError::Suspended, vec![0]),
        (WriteFault::Refused(BackendErrorKind::Full), CommitError::Full, vec![0]),
        (WriteFault::AnswerLost, CommitError::Suspended, vec![0, 1]),
    ] {
        let (positions, store) = positions();
        let log = positions.log();
        let epoch = log.epoch();
        store.fail_after(1, fault);
        assert_eq!(commit(&positions, moves(0)).await, Ok(()), "{fault:?}");
        assert_eq!(commit(&positions, moves(1)).await, Err(answer), "{fault:?}");
        assert_eq!(moved(&store), there, "{fault:?}");
        assert!(!store.awaits_fault(), "{fault:?}: the order was met");
        assert_eq!((log.epoch(), log.write_failures()), (LedgerEpoch(epoch.0 + 1), 1), "{fault:?}");
        opens(log).await;
        // What was made from a view of before is refused for ever, what is made from a newer one is not.
        let late = log.committed(log.commit(epoch, moves(2), Durability::Logged)).await;
        assert_eq!(late, Err(CommitError::Suspended), "{fault:?}");
        assert_eq!(commit(&positions, moves(3)).await, Ok(()), "{fault:?}");
        let there: Vec<u32> = there.into_iter().chain([3]).collect();
        assert_eq!((moved(&store), store.writes()), (there, 3), "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_opens_with_the_first_try_to_heal_that_succeeds_and_not_before() {
    let (positions, store) = positions();
    let log = positions.log();
    store.cut_after(0, WriteFault::Refused(BackendErrorKind::Unavailable));
    assert_eq!(commit(&positions, moves(0)).await, Err(CommitError::Suspended));
    assert!(store.is_cut_off());
    assert_eq!(commit(&positions, PositionBatch::new()).await, Err(CommitError::Suspended), "a barrier too");
    assert_eq!(positions.offsets().cursors().expect("read"), [], "it can be read meanwhile");
    store.fail_heals(2, BackendErrorKind::Full);
    let mut seen = vec![log.suspension()];
    store.cut_off(false);
    let healed = tokio::time::timeout(Duration::from_secs(20), async {
        while seen.last() != Some(&None) {
            let now = log.suspension();
            if seen.last() != Some(&now) {
                seen.push(now);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    healed.await.expect("healed");
    let expected = [Some(CommitError::Suspended), Some(CommitError::Full), None];
    assert_eq!(seen, expected, "why it is suspended is what the last try said");
    assert_eq!(commit(&positions, moves(1)).await, Ok(()));
    assert_eq!(moved(&store), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_behind_a_write_that_fails_fails_with_it() {
    let (positions, store) = positions();
    let log = positions.log();
    // The first write holds up those behind it until all are handed in.
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    store.cut_after(0, WriteFault::AnswerLost);
    store.at_cut(move || wait.recv().expect("it is told to go on"));
    let first = log.commit(log.epoch(), moves(0), Durability::Logged);
    let end = tokio::time::Instant::now() + Duration::from_secs(20);
    while store.writes() == 0 {
        assert!(tokio::time::Instant::now() < end, "the first write begins");
        tokio::task::yield_now().await;
    }
    let behind: Vec<_> =
        (1..2_000).map(|at| log.commit(log.epoch(), moves(at), Durability::Synced)).collect();
    go_on.send(()).expect("it waits");
    assert_eq!(log.committed(first).await, Err(CommitError::Suspended));
    for (at, commit) in (1..).zip(behind) {
        assert_eq!(log.committed(commit).await, Err(CommitError::Suspended), "commit {at}");
    }
    assert_eq!((moved(&store), store.writes()), (vec![0], 1), "nothing behind it was tried");
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_that_share_a_write_keep_their_order_and_barriers_write_nothing() {
    let (positions, store) = positions();
    let log = positions.log();
    let commits: Vec<_> = (0..3_000)
        .map(|step| {
            let mut batch = PositionBatch::new();
            match step % 3 {
                0 => batch.put_row(lane(0), Offset(0), row(step)),
                1 => batch.put_cursor(lane(0), cursor(u64::from(step))),
                _ => {}
            }
            log.commit(log.epoch(), batch, Durability::Logged)
        })
        .collect();
    for commit in commits {
        assert_eq!(log.committed(commit).await, Ok(()));
    }
    assert_eq!(positions.deliveries().rows(lane(0)).expect("read"), [(Offset(0), row(2_997))]);
    assert_eq!(positions.offsets().cursor(lane(0)).expect("read"), Some(cursor(2_998)));
    let writes = store.writes();
    assert_eq!(commit(&positions, PositionBatch::new()).await, Ok(()));
    assert_eq!(store.writes(), writes);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_at_a_close_is_committed_and_what_comes_later_is_refused() {
    // proves: FM-3
    let (positions, store) = positions();
    let log = positions.log().clone();
    let waiting: Vec<_> = (0..50).map(|at| log.commit(log.epoch(), moves(at), Durability::Logged)).collect();
    let positions = tokio::task::spawn_blocking(move || {
        positions.close();
        positions
    })
    .await
    .expect("closed");
    for commit in waiting {
        assert_eq!(log.committed(commit).await, Ok(()));
    }
    assert_eq!(commit(&positions, moves(50)).await, Err(CommitError::Closed));
    assert_eq!(moved(&store), (0..50).collect::<Vec<u32>>());
    assert_eq!(positions.offsets().cursors().expect("reads go on").len(), 50);
}
