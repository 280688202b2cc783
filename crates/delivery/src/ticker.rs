//! The ticker: one task for every timer of every group, and the once-a-second chores.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use mesh_base::Stop;
use mesh_frame::{Offset, PartitionId};
use mesh_rocks::Durability;
use mesh_state::positions::PositionBatch;

use crate::{ReliableDispatcher, dispatcher::Inner, group::Group};

/// How long a group waits whose lanes cannot be read now.
const SUSPENDED: Duration = Duration::from_millis(500);
/// How long a planned stop waits for what was begun for a request.
const BEGUN: Duration = Duration::from_secs(1);

impl ReliableDispatcher {
    /// Runs every group's timers until it is told to stop.
    pub async fn tick(self, stop: Stop) {
        let inner = self.0;
        loop {
            let next = inner.schedule.next();
            let sleep = async {
                match next {
                    Some(at) => inner.clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.wait() => return,
                () = inner.schedule.something_earlier() => continue,
                () = sleep => {}
            }
            let now = inner.clock.now();
            for number in inner.schedule.take_due(now) {
                let Some(group) = inner.group(number) else { continue };
                if !inner.tick(&group, now) {
                    inner.reload_soon(&group).await;
                }
            }
        }
    }

    /// Stages, once a second, the progress that no hand-out carries, and ends streams that stand still.
    pub async fn keep_progress(self, stop: Stop) {
        let inner = self.0;
        loop {
            tokio::select! {
                () = stop.wait() => return,
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
            inner.recount();
            inner.close_stalled_streams();
            for group in inner.all_groups() {
                if group.dirty.swap(false, Ordering::AcqRel) {
                    inner.progress(&group).await;
                }
            }
        }
    }

    /// Stages the progress of every group now, for a planned stop. What was begun for a request is finished first.
    pub async fn flush(&self) {
        if !self.0.operations.tasks.shut_down(BEGUN).await {
            tracing::warn!("what an operator had begun was not finished in time");
        }
        for group in self.0.all_groups() {
            self.0.progress(&group).await;
        }
    }
}

impl Inner {
    /// The group's lanes are of an older view: they are read again, now or soon.
    async fn reload_soon(self: &Arc<Self>, group: &Arc<Group>) {
        if self.ensure_lanes(group).await.is_err() {
            self.schedule.no_later_than(group, self.clock.now().plus(SUSPENDED));
        } else {
            let now = self.clock.now();
            self.tick(group, now);
        }
    }

    async fn progress(self: &Arc<Self>, group: &Arc<Group>) {
        let epoch = self.positions.log().epoch();
        let mut batch = PositionBatch::new();
        let mut moved: Vec<(PartitionId, Offset)> = Vec::new();
        let commit = {
            let mut state = group.state.lock();
            if state.epoch != Some(epoch) {
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
            self.positions.log().commit(epoch, batch, Durability::Logged)
        };
        if self.positions.log().committed(commit).await.is_err() {
            return;
        }
        let mut state = group.state.lock();
        if state.epoch == Some(epoch) {
            for (partition, next) in moved {
                if let Some(lane) = state.lane(partition) {
                    lane.progressed(next);
                }
            }
        }
    }
}
