//! The contract of a driver of positions, one function a rule.
//!
//! Each rule wants a driver that holds nothing. A rule that does not hold panics and says what it saw.
//! [`position_conformance_tests!`](crate::position_conformance_tests) makes a test of every rule.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use mesh_base::{BackendError, UnixMillis};
use mesh_frame::{Epoch, Incarnation, Offset, PartitionId};
use mesh_rocks::Durability;

use super::{Cursor, EndReason, LaneKey, LastError, PositionBatch, PositionStore, Row, RowState};

/// Makes a test of every rule for one driver. `$open` is an expression that gives
/// `(Arc<dyn PositionStore>, guard)`; the guard lives as long as the test.
#[macro_export]
macro_rules! position_conformance_tests {
    ($open:expr) => {
        $crate::position_conformance_tests!(@each $open;
            what_was_committed_can_be_read
            a_row_reads_back_as_it_was_written_under_any_lane_and_offset
            changes_are_carried_out_in_the_order_of_batches_and_within_a_batch
            a_reader_sees_a_commit_whole_or_not_at_all
            forgetting_a_lane_removes_its_cursor_and_rows_and_no_others
            removing_what_is_not_there_changes_nothing
            rows_come_in_the_order_of_their_offsets_and_of_their_lane_only
            every_lane_is_listed_once_in_order
            a_commit_without_changes_has_no_effect
            syncing_and_healing_what_is_well_changes_nothing
        );
    };
    (@each $open:expr; $($rule:ident)*) => {
        $(
            #[test]
            fn $rule() {
                let (store, _guard) = $open;
                $crate::positions::conformance::$rule(store);
            }
        )*
    };
}

fn ok<T>(answer: Result<T, BackendError>) -> T {
    answer.unwrap_or_else(|error| panic!("the backend failed: {}", error.chain()))
}

fn lane(group: u64, generation: u32, partition: u32) -> LaneKey {
    LaneKey { group, generation, partition: PartitionId(partition) }
}

fn cursor(next: u64) -> Cursor {
    Cursor { next_to_read: Offset(next), incarnation: Incarnation(next ^ 7) }
}

/// A row that is told from others by its attempt.
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
        key: None,
        member: 5,
        epoch: Epoch(6),
        error: LastError::Unknown,
    }
}

/// Commits what `stage` stages, as one batch.
fn commit(store: &dyn PositionStore, stage: impl FnOnce(&mut PositionBatch)) {
    let mut batch = PositionBatch::new();
    stage(&mut batch);
    ok(store.commit(&[batch], Durability::Logged));
}

/// Everything that a driver shows.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    cursors: Vec<(LaneKey, Cursor)>,
    rows: Vec<(LaneKey, Vec<(Offset, Row)>)>,
}

fn shown(store: &dyn PositionStore) -> Shown {
    let lanes = ok(store.deliveries().lanes());
    let rows = lanes.into_iter().map(|(lane, count)| {
        let rows = ok(store.deliveries().rows(lane));
        assert_eq!(rows.len() as u64, count, "{lane:?} is listed with as many rows as it has");
        (lane, rows)
    });
    Shown { cursors: ok(store.offsets().cursors()), rows: rows.collect() }
}

/// A read after the answer shows what was committed, with either durability; what never was is absent.
pub fn what_was_committed_can_be_read(store: Arc<dyn PositionStore>) {
    // proves: ST-1, ST-4
    let at = lane(1, 0, 0);
    assert_eq!(shown(&*store), Shown { cursors: vec![], rows: vec![] });
    assert_eq!(ok(store.offsets().cursor(at)), None);
    assert_eq!(ok(store.deliveries().rows(at)), []);
    for (round, durability) in [(1, Durability::Logged), (2, Durability::Synced)] {
        let mut batch = PositionBatch::new();
        store.offsets().stage(&mut batch, at, cursor(round));
        store.deliveries().stage_put(&mut batch, at, Offset(9), row(1));
        store.deliveries().stage_put(&mut batch, at, Offset(round), row(2));
        ok(store.commit(&[batch], durability));
        assert_eq!(ok(store.offsets().cursor(at)), Some(cursor(round)), "{durability:?}");
        assert_eq!(
            ok(store.deliveries().rows(at)),
            [(Offset(round), row(2)), (Offset(9), row(1))],
            "{durability:?}"
        );
        let mut batch = PositionBatch::new();
        store.deliveries().stage_delete(&mut batch, at, Offset(round));
        ok(store.commit(&[batch], durability));
        assert_eq!(ok(store.deliveries().rows(at)), [(Offset(9), row(1))], "{durability:?}");
    }
}

/// Every field of a row, in every state, with every reason; lanes and offsets of any size.
pub fn a_row_reads_back_as_it_was_written_under_any_lane_and_offset(store: Arc<dyn PositionStore>) {
    let states = [
        RowState::Waiting,
        RowState::InFlight,
        RowState::Dead(EndReason::AttemptsExhausted),
        RowState::Dead(EndReason::Rejected),
    ];
    let errors = [
        LastError::Unknown,
        LastError::DeadlinePassed,
        LastError::StreamClosed,
        LastError::ClientLeft,
        LastError::Nacked,
        LastError::Rejected,
        LastError::said(Some("kein Größer"), LastError::Nacked),
    ];
    let full = Row {
        state: RowState::Waiting,
        by_stream: true,
        attempt: u32::MAX,
        serial: u32::MAX - 1,
        void_below: u32::MAX - 2,
        returned: true,
        lost: 3,
        first: UnixMillis(u64::MAX),
        last: UnixMillis(u64::MAX - 1),
        at: UnixMillis(u64::MAX - 2),
        key: Some(0),
        member: u64::MAX,
        epoch: Epoch(u64::MAX),
        error: LastError::Unknown,
    };
    let mut rows = Vec::new();
    for state in states {
        for error in &errors {
            for other in [&row(0), &full] {
                rows.push(Row { state, error: error.clone(), ..other.clone() });
            }
        }
    }
    for at in [lane(0, 0, 0), lane(u64::MAX, u32::MAX, u32::MAX), lane(1 << 62, 3, 256)] {
        let offsets = [0, 1, 255, 256, u64::MAX - 1].into_iter().chain(1_000..).map(Offset);
        let mut written: Vec<(Offset, Row)> = offsets.zip(rows.clone()).collect();
        commit(&*store, |batch| {
            batch.put_cursor(at, cursor(u64::MAX));
            written.iter().for_each(|(offset, row)| batch.put_row(at, *offset, row.clone()));
        });
        written.sort_by_key(|(offset, _)| *offset);
        assert_eq!(ok(store.deliveries().rows(at)), written, "{at:?}");
        assert_eq!(ok(store.offsets().cursor(at)), Some(cursor(u64::MAX)), "{at:?}");
    }
}

/// Of two changes of the same thing the later one holds: in one batch, in two of a commit, in two commits.
pub fn changes_are_carried_out_in_the_order_of_batches_and_within_a_batch(store: Arc<dyn PositionStore>) {
    // proves: ST-4
    type Stage = fn(&mut PositionBatch, LaneKey);
    /// A name, what is staged, and the cursor and the row's attempt that hold then.
    type Case<'a> = (&'a str, &'a [Stage], Option<u64>, Option<u32>);
    let put: Stage = |batch, at| batch.put_row(at, Offset(1), row(1));
    let put_again: Stage = |batch, at| batch.put_row(at, Offset(1), row(2));
    let end: Stage = |batch, at| batch.delete_row(at, Offset(1));
    let move_on: Stage = |batch, at| batch.put_cursor(at, cursor(1));
    let move_further: Stage = |batch, at| batch.put_cursor(at, cursor(2));
    let forget: Stage = |batch, at| batch.forget(at);
    let cases: [Case<'_>; 8] = [
        ("put, put again", &[put, put_again], None, Some(2)),
        ("put, end", &[put, end], None, None),
        ("put, end, put again", &[put, end, put_again], None, Some(2)),
        ("move on, move further", &[move_on, move_further], Some(2), None),
        ("move further, move on", &[move_further, move_on], Some(1), None),
        ("put, move on, forget", &[put, move_on, forget], None, None),
        ("put, forget, put again", &[put, forget, put_again], None, Some(2)),
        ("move on, forget, move further", &[move_on, forget, move_further], Some(2), None),
    ];
    let mut group = 0;
    for (name, stages, next, attempt) in cases {
        for sharing in ["one batch", "a batch each", "a commit each"] {
            group += 1;
            let at = lane(group, 0, 0);
            let mut batches = vec![PositionBatch::new()];
            for stage in stages {
                if sharing != "one batch" {
                    batches.push(PositionBatch::new());
                }
                stage(batches.last_mut().expect("one is there"), at);
            }
            if sharing == "a commit each" {
                batches.into_iter().for_each(|batch| ok(store.commit(&[batch], Durability::Logged)));
            } else {
                ok(store.commit(&batches, Durability::Logged));
            }
            assert_eq!(ok(store.offsets().cursor(at)), next.map(cursor), "{name}, {sharing}");
            let rows: Vec<_> = attempt.map(|attempt| (Offset(1), row(attempt))).into_iter().collect();
            assert_eq!(ok(store.deliveries().rows(at)), rows, "{name}, {sharing}");
        }
    }
}

/// While commits of two batches change all rows of a lane and all cursors, every read shows them of one commit.
pub fn a_reader_sees_a_commit_whole_or_not_at_all(store: Arc<dyn PositionStore>) {
    // proves: ST-4
    const ROWS: u64 = 64;
    const COMMITS: u32 = 300;
    let at = lane(1, 0, 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for attempt in 1..=COMMITS {
                let mut batches = [PositionBatch::new(), PositionBatch::new()];
                for offset in 0..ROWS {
                    let batch = &mut batches[usize::from(offset >= ROWS / 2)];
                    batch.put_row(at, Offset(offset), row(attempt));
                    batch.put_cursor(lane(2, 0, offset as u32), cursor(u64::from(attempt)));
                }
                ok(store.commit(&batches, Durability::Logged));
            }
            done.store(true, Ordering::SeqCst);
        });
        let (mut newest, mut last) = (0, false);
        while !last {
            last = done.load(Ordering::SeqCst);
            let attempts: Vec<u32> =
                ok(store.deliveries().rows(at)).iter().map(|(_, row)| row.attempt).collect();
            let first = attempts.first().copied().unwrap_or(0);
            assert!(attempts.iter().all(|attempt| *attempt == first), "rows of two commits: {attempts:?}");
            assert!(first == 0 || attempts.len() as u64 == ROWS, "{} rows of {ROWS}", attempts.len());
            assert!(first >= newest, "commit {first} is shown after {newest}");
            newest = first;
            let cursors = ok(store.offsets().cursors());
            let first = cursors.first().map(|(_, cursor)| *cursor);
            assert!(
                cursors.iter().all(|(_, cursor)| Some(*cursor) == first),
                "cursors of two commits: {cursors:?}"
            );
            assert!(first.is_none() || cursors.len() as u64 == ROWS, "{} cursors of {ROWS}", cursors.len());
        }
        assert_eq!(newest, COMMITS, "the last commit is shown once it was answered");
    });
}

/// The lanes beside it, by group, generation and partition, keep theirs.
pub fn forgetting_a_lane_removes_its_cursor_and_rows_and_no_others(store: Arc<dyn PositionStore>) {
    let gone = lane(256, 1, 256);
    let others = [
        lane(255, 1, 256),
        lane(256, 0, 256),
        lane(256, 0, u32::MAX),
        lane(256, 1, 255),
        lane(256, 1, 257),
        lane(256, 2, 0),
        lane(256, 2, 256),
        lane(257, 1, 256),
        lane(u64::MAX, u32::MAX, u32::MAX),
    ];
    let offsets = [0, 1, 300, u64::MAX - 1].map(Offset);
    let fill = |batch: &mut PositionBatch, at: LaneKey| {
        batch.put_cursor(at, cursor(at.group));
        offsets.iter().for_each(|offset| batch.put_row(at, *offset, row(at.generation)));
    };
    commit(&*store, |batch| others.iter().for_each(|at| fill(batch, *at)));
    let without = shown(&*store);
    assert_eq!((without.cursors.len(), without.rows.len()), (others.len(), others.len()));
    commit(&*store, |batch| fill(batch, gone));
    assert_ne!(shown(&*store), without);
    commit(&*store, |batch| batch.forget(gone));
    assert_eq!(ok(store.offsets().cursor(gone)), None);
    assert_eq!(ok(store.deliveries().rows(gone)), []);
    assert_eq!(shown(&*store), without);
    // In the commit that made it too.
    commit(&*store, |batch| {
        fill(batch, gone);
        batch.forget(gone);
    });
    assert_eq!(shown(&*store), without);
    // And it can be made again.
    commit(&*store, |batch| batch.put_row(gone, Offset(1), row(9)));
    assert_eq!(ok(store.deliveries().rows(gone)), [(Offset(1), row(9))]);
    assert_eq!(ok(store.offsets().cursor(gone)), None);
}

/// A row that is not there can be ended, a lane that is not there forgotten.
pub fn removing_what_is_not_there_changes_nothing(store: Arc<dyn PositionStore>) {
    commit(&*store, |batch| {
        batch.put_cursor(lane(1, 0, 0), cursor(5));
        batch.put_row(lane(1, 0, 0), Offset(5), row(1));
    });
    let before = shown(&*store);
    commit(&*store, |batch| {
        batch.delete_row(lane(1, 0, 0), Offset(4));
        batch.delete_row(lane(1, 0, 1), Offset(5));
        batch.forget(lane(1, 1, 0));
        batch.forget(lane(2, 0, 0));
    });
    assert_eq!(shown(&*store), before);
}

/// Whatever the order they were written in.
pub fn rows_come_in_the_order_of_their_offsets_and_of_their_lane_only(store: Arc<dyn PositionStore>) {
    let offsets = [300, 2, 1 << 40, 255, 0, 256, 65_536, 1];
    let lanes = [lane(7, 0, 1), lane(7, 0, 0), lane(6, 9, 9), lane(7, 1, 0)];
    for (round, at) in lanes.iter().enumerate() {
        for offset in offsets {
            commit(&*store, |batch| batch.put_row(*at, Offset(offset), row(round as u32)));
        }
    }
    let mut sorted = offsets;
    sorted.sort_unstable();
    for (round, at) in lanes.iter().enumerate() {
        let expected = sorted.map(|offset| (Offset(offset), row(round as u32)));
        assert_eq!(ok(store.deliveries().rows(*at)), expected, "{at:?}");
    }
    commit(&*store, |batch| batch.delete_row(lanes[0], Offset(255)));
    let rest: Vec<Offset> =
        ok(store.deliveries().rows(lanes[0])).into_iter().map(|(offset, _)| offset).collect();
    let expected: Vec<Offset> = sorted.into_iter().filter(|offset| *offset != 255).map(Offset).collect();
    assert_eq!(rest, expected);
}

/// `cursors` has every lane with a cursor and `lanes` every lane with a row; neither has others.
pub fn every_lane_is_listed_once_in_order(store: Arc<dyn PositionStore>) {
    let mut with_cursor = Vec::new();
    let mut with_rows = Vec::new();
    for group in [300, 1, u64::MAX, 256] {
        for (generation, partition) in [(0, 0), (0, 300), (2, 1), (256, 0)] {
            let at = lane(group, generation, partition);
            let rows = u64::from(partition % 3) + group % 2;
            commit(&*store, |batch| {
                if generation != 2 {
                    batch.put_cursor(at, cursor(group));
                    with_cursor.push((at, cursor(group)));
                }
                (0..rows).for_each(|offset| batch.put_row(at, Offset(offset), row(1)));
            });
            if rows > 0 {
                with_rows.push((at, rows));
            }
        }
    }
    with_cursor.sort_by_key(|(at, _)| *at);
    with_rows.sort_unstable();
    assert_eq!(ok(store.offsets().cursors()), with_cursor);
    assert_eq!(ok(store.deliveries().lanes()), with_rows);
    // The last row of a lane takes the lane from the list.
    let (at, rows) = with_rows.remove(0);
    commit(&*store, |batch| (0..rows).for_each(|offset| batch.delete_row(at, Offset(offset))));
    assert_eq!(ok(store.deliveries().lanes()), with_rows);
}

/// No batch, and batches without changes, beside others too.
pub fn a_commit_without_changes_has_no_effect(store: Arc<dyn PositionStore>) {
    let empty = PositionBatch::new();
    for durability in [Durability::Logged, Durability::Synced] {
        ok(store.commit(&[], durability));
        ok(store.commit(&[empty.clone(), empty.clone()], durability));
    }
    assert_eq!(shown(&*store), Shown { cursors: vec![], rows: vec![] });
    let mut full = PositionBatch::new();
    full.put_cursor(lane(1, 0, 0), cursor(1));
    ok(store.commit(&[empty.clone(), full, empty], Durability::Logged));
    assert_eq!(ok(store.offsets().cursors()), [(lane(1, 0, 0), cursor(1))]);
}

/// What a driver writes to find out whether it can write is never read as a position.
pub fn syncing_and_healing_what_is_well_changes_nothing(store: Arc<dyn PositionStore>) {
    ok(store.sync());
    ok(store.heal());
    assert_eq!(shown(&*store), Shown { cursors: vec![], rows: vec![] });
    fill_for_a_restart(&*store, 1);
    let before = shown(&*store);
    for _ in 0..3 {
        ok(store.heal());
        ok(store.sync());
    }
    assert_eq!(shown(&*store), before);
    fill_for_a_restart(&*store, 2);
    assert_ne!(shown(&*store), before);
}

fn fill_for_a_restart(store: &dyn PositionStore, group: u64) {
    commit(store, |batch| {
        for partition in 0..3 {
            let at = lane(group, 1, partition);
            batch.put_cursor(at, cursor(100 + group));
            (0..50).for_each(|offset| batch.put_row(at, Offset(offset), row(partition)));
        }
    });
    commit(store, |batch| {
        batch.delete_row(lane(group, 1, 0), Offset(7));
        batch.forget(lane(group, 1, 1));
    });
}

/// Fills a driver for [`a_restart_keeps_everything`], with either durability, and drops it.
pub fn before_a_restart(store: Arc<dyn PositionStore>) {
    fill_for_a_restart(&*store, 1);
    let mut batch = PositionBatch::new();
    batch.put_cursor(lane(2, 0, 0), cursor(200));
    ok(store.commit(&[batch], Durability::Synced));
    fill_for_a_restart(&*store, 3);
}

/// A driver that lasts shows after a restart what it showed before. `store`: the same place, opened again after
/// [`before_a_restart`].
pub fn a_restart_keeps_everything(store: Arc<dyn PositionStore>) {
    // proves: ST-1, ST-4
    let of = |group| [0, 2].map(|partition| (lane(group, 1, partition), cursor(100 + group)));
    let mut cursors = of(1).to_vec();
    cursors.push((lane(2, 0, 0), cursor(200)));
    cursors.extend(of(3));
    let rows = |at: LaneKey, but: Option<u64>| {
        let offsets = (0..50).filter(|offset| Some(*offset) != but);
        (at, offsets.map(|offset| (Offset(offset), row(at.partition.0))).collect())
    };
    let rows = vec![
        rows(lane(1, 1, 0), Some(7)),
        rows(lane(1, 1, 2), None),
        rows(lane(3, 1, 0), Some(7)),
        rows(lane(3, 1, 2), None),
    ];
    assert_eq!(shown(&*store), Shown { cursors, rows });
    commit(&*store, |batch| batch.put_cursor(lane(1, 1, 0), cursor(1)));
    assert_eq!(ok(store.offsets().cursor(lane(1, 1, 0))), Some(cursor(1)), "it takes changes again");
}
