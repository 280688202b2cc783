//! The ticker: one task for every timer of every group, and the once-a-second chores.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use mesh_base::Stop;
use mesh_frame::{Offset, PartitionId};
use mesh_rocks::Durability;
use mesh_state::positions::PositionBatch;

use crate::{
    group::{Core, Group},
    handout::streams::Streams,
};

/// How long a group waits whose lanes cannot be read now.
const SUSPENDED: Duration = Duration::from_millis(500);
/// How long a planned stop waits for what was begun for a request.
const BEGUN: Duration = Duration::from_secs(1);

/// Runs timers and chores of every group.
pub(crate) struct Ticker {
    pub(crate) core: Arc<Core>,
    pub(crate) streams: Arc<Streams>,
}

impl Ticker {
    /// Runs every group's timers until it is told to stop.
    pub(crate) async fn tick(&self, stop: Stop) {
        let (core, schedule) = (&self.core, &self.core.attention.schedule);
        loop {
            let next = schedule.next();
            let sleep = async {
                match next {
                    Some(at) => core.clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.wait() => return,
                () = schedule.something_earlier() => continue,
                () = sleep => {}
            }
            let now = core.clock.now();
            for number in schedule.take_due(now) {
                let Some(group) = core.directory.group(number) else { continue };
                if !core.tick(&group, now) {
                    self.reload_soon(&group).await;
                }
            }
        }
    }

    /// Stages, once a second, the progress that no hand-out carries, and ends streams that stand still.
    pub(crate) async fn keep_progress(&self, stop: Stop) {
        loop {
            tokio::select! {
                () = stop.wait() => return,
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
            self.core.ledger.outstanding.counted(self.core.directory.count_rows());
            self.streams.close_stalled();
            for group in self.core.directory.all() {
                if group.dirty.swap(false, Ordering::AcqRel) {
                    self.progress(&group).await;
                }
            }
        }
    }

    /// Stages the progress of every group now, for a planned stop. What was begun for a request is finished first.
    pub(crate) async fn flush(&self) {
        if !self.core.owned.tasks.shut_down(BEGUN).await {
            tracing::warn!("what an operator had begun was not finished in time");
        }
        for group in self.core.directory.all() {
            self.progress(&group).await;
        }
    }

    /// The group's lanes are of an older view: they are read again, now or soon.
    async fn reload_soon(&self, group: &Arc<Group>) {
        let (core, now) = (&self.core, self.core.clock.now());
        if core.ensure_lanes(group).await.is_err() {
            core.attention.schedule.no_later_than(group, now.plus(SUSPENDED));
        } else {
            core.tick(group, core.clock.now());
        }
    }

    async fn progress(&self, group: &Arc<Group>) {
        let core = &self.core;
        let mut batch = PositionBatch::new();
        let mut moved: Vec<(PartitionId, Offset)> = Vec::new();
        let committing = {
            let mut guard = core.enter(group, core.clock.now());
            let state = &mut *guard;
            if state.epoch != Some(core.ledger.epoch()) {
                return;
            }
            for lane in &mut state.lanes {
                if let Some((staged, next)) = lane.lane.progress() {
                    batch.extend(staged);
                    moved.push((lane.partition.id(), next));
                }
            }
            if batch.is_empty() {
                return;
            }
            core.commit(group, state, batch, Durability::Logged, |staged| staged.progress = moved)
        };
        // A failure suspends the ledger, which is told elsewhere.
        if committing.done().await.is_ok() {
            drop(core.enter(group, core.clock.now()));
        }
    }
}
