//! What every later room stands on: the log, the ledger, the groups, and which of them are to be looked at.

use std::sync::{Arc, atomic::Ordering};

use futures_util::stream::{FuturesUnordered, StreamExt};
use mesh_base::{BackendError, BackendErrorKind, Chance, Clock, Stop, UnixMillis};
use mesh_frame::{ClientId, Epoch, TenantId, TopicName};
use mesh_rocks::Durability;
use mesh_state::positions::{Commit, CommitError, Cursor, LedgerEpoch, PositionBatch};
use mesh_storage::{Partition, Storage};
use parking_lot::MutexGuard;

use super::{
    Group, GroupState, PartitionLane, Staged, activity::Activity, attention::Attention, directory::Directory,
    member::member_of,
};
use crate::{
    lane::{Lane, Windows},
    ledger::{Ledger, LedgerUnavailable},
    limits::DeliveryLimits,
    owned::Owned,
    signals::DeliverySignals,
    topology::Polled,
};

/// See the module.
pub(crate) struct Core {
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,
    pub(crate) storage: Storage,
    pub(crate) ledger: Ledger,
    /// Which partitions this instance polls.
    pub(crate) polled: Polled,
    /// The count of this boot of the instance, as deliveries show it.
    pub(crate) epoch: Epoch,
    pub(crate) directory: Directory,
    pub(crate) attention: Attention,
    pub(crate) activity: Activity,
    pub(crate) owned: Owned,
    pub(crate) limits: DeliveryLimits,
    pub(crate) signals: DeliverySignals,
}

/// A commit whose completion is the group's. A request that waits for it learns how it ended; dropped before that, the
/// group is looked at when it is decided.
pub(crate) struct Committing {
    core: Arc<Core>,
    group: Arc<Group>,
    commit: Option<Commit>,
}

impl Committing {
    /// Waits for the commit. The next to enter the group completes it: see [`Core::enter`], [`Core::after`].
    ///
    /// # Errors
    /// When it was not carried out; the lanes are read again.
    pub(crate) async fn done(mut self) -> Result<(), CommitError> {
        let Some(commit) = &mut self.commit else { return Ok(()) };
        let answer = commit.await;
        self.commit = None;
        answer
    }
}

impl Drop for Committing {
    fn drop(&mut self) {
        if let Some(commit) = self.commit.take() {
            self.core.attention.abandon(self.group.clone(), commit);
        }
    }
}

impl Core {
    /// The group's state, with everything completed that was committed.
    pub(crate) fn enter<'a>(&self, group: &'a Group, now: UnixMillis) -> MutexGuard<'a, GroupState> {
        let mut state = group.state.lock();
        if state.staged.is_empty() {
            return state;
        }
        let mut batch = PositionBatch::new();
        let completed = state.complete(now, &mut batch);
        self.signals.returned.inc_by(completed.returned);
        self.signals.acked.inc_by(completed.acked);
        if completed.dead {
            self.attention.make_dead(group);
        }
        if let Some(epoch) = state.epoch {
            self.ledger.commit_later(epoch, batch);
        }
        state
    }

    /// Hands in a batch of a group, under its lock. What it completes is the group's from now on.
    pub(crate) fn commit(
        self: &Arc<Self>,
        group: &Arc<Group>,
        state: &mut GroupState,
        batch: PositionBatch,
        durability: Durability,
        completes: impl FnOnce(&mut Staged),
    ) -> Committing {
        let epoch = state.epoch.unwrap_or_default();
        let commit = self.ledger.commit(epoch, batch, durability);
        let mut staged = Staged::new(&commit, epoch);
        completes(&mut staged);
        state.staged.push_back(staged);
        Committing { core: self.clone(), group: group.clone(), commit: Some(commit) }
    }

    /// Rows a lane may have, by its own bound, by what the process has left, and by what its tenant may take of that.
    pub(crate) fn room(&self, group: &Group, lane: &Lane, own: usize) -> usize {
        let its = group.backlog.get().map_or(0, |backlog| backlog.rows());
        own.min(lane.outstanding() + self.ledger.outstanding.left_for(its))
    }

    /// Makes sure that a group's lanes are of the ledger's present view: loads them when they are not. A closed
    /// group has none.
    pub(crate) async fn ensure_lanes(&self, group: &Arc<Group>) -> Result<LedgerEpoch, LedgerUnavailable> {
        loop {
            let epoch = self.ledger.epoch();
            if group.state.lock().epoch == Some(epoch) || group.is_closed() {
                return Ok(epoch);
            }
            if let Some(suspension) = self.ledger.suspension() {
                return Err(suspension.into());
            }
            let _single_flight = group.loading.lock().await;
            let epoch = self.ledger.epoch();
            // A group that was removed or followed by another is never loaded again: its callers see that.
            if group.state.lock().epoch == Some(epoch) || group.is_closed() {
                return Ok(epoch);
            }
            let (lanes, windows) = self.read_lanes(group, self.polled.partitions(&group.topic)).await?;
            // A suspension while it was read: what was read may be older than what is committed.
            if self.ledger.epoch() == epoch && self.ledger.suspension().is_none() {
                self.install_lanes(group, lanes, windows, epoch);
                return Ok(epoch);
            }
        }
    }

    async fn read_lanes(
        &self,
        group: &Arc<Group>,
        partitions: Vec<Arc<Partition>>,
    ) -> Result<(Vec<PartitionLane>, Windows), BackendError> {
        let (positions, group, now) = (self.ledger.positions.clone(), group.clone(), self.clock.now());
        let read = tokio::task::spawn_blocking(move || {
            let terms = group.state.lock().terms.clone();
            let mut windows = Windows::default();
            let lanes = partitions
                .iter()
                .map(|partition| group.read_lane(&positions, partition, &terms, &mut windows, now));
            let lanes = lanes.collect::<Result<Vec<_>, _>>()?;
            Ok((lanes, windows))
        });
        read.await.map_err(|error| {
            BackendError::new(BackendErrorKind::Unavailable, "offset store", "loading a group")
                .with_source(error)
        })?
    }

    fn install_lanes(
        &self,
        group: &Arc<Group>,
        lanes: Vec<PartitionLane>,
        windows: Windows,
        epoch: LedgerEpoch,
    ) {
        {
            let mut state = group.state.lock();
            state.lanes = lanes;
            state.windows = windows;
            state.epoch = Some(epoch);
            group.tell_backlog(&state);
        }
        self.set_timer(group);
    }

    /// Loads one lane of a group, beside those it has; nothing when the group has it. Deliveries of the other
    /// partitions are not touched. With a `start` the lane begins there, whatever the database has of it; that is
    /// durable when this returns.
    ///
    /// # Errors
    /// When positions cannot be read or written; the lanes are then read again, with the lane as the database has it.
    pub(crate) async fn load_lane(
        &self,
        group: &Arc<Group>,
        partition: &Arc<Partition>,
        start: Option<Cursor>,
    ) -> Result<(), LedgerUnavailable> {
        // Nobody else loads lanes meanwhile.
        let _single_flight = group.loading.lock().await;
        let epoch = self.ledger.epoch();
        {
            let mut state = group.state.lock();
            // Lanes of an older view are all read again anyway.
            if state.epoch != Some(epoch) || group.is_closed() || state.lane(partition.id()).is_some() {
                return Ok(());
            }
        }
        let mut batch = PositionBatch::new();
        if let Some(start) = start {
            batch.forget(group.lane_key(partition));
            batch.put_cursor(group.lane_key(partition), start);
        }
        // Also a barrier: what the lane staged when it was there before is committed when this is.
        self.ledger.commit(epoch, batch, Durability::Synced).await?;
        let (lanes, windows) = self.read_lanes(group, vec![partition.clone()]).await?;
        {
            let mut state = self.enter(group, self.clock.now());
            if state.epoch != Some(epoch) || self.ledger.epoch() != epoch {
                return Ok(());
            }
            state.lanes.extend(lanes);
            state.lanes.sort_by_key(|lane| lane.partition.id());
            state.windows.add_all(&windows);
            group.tell_backlog(&state);
        }
        self.set_timer(group);
        Ok(())
    }

    /// Drops one lane of a group: what is in flight of its partition stays in the database, and counts in nobody's
    /// window here. `false`: the group had no such lane.
    pub(crate) fn drop_lane(&self, group: &Arc<Group>, partition: &Partition) -> bool {
        let mut guard = self.enter(group, self.clock.now());
        let state = &mut *guard;
        let Some(place) = state.lanes.iter().position(|lane| lane.partition.id() == partition.id()) else {
            return false;
        };
        let dropped = state.lanes.remove(place);
        dropped.lane.leave_windows(&mut state.windows);
        group.tell_backlog(state);
        true
    }

    fn set_timer(&self, group: &Arc<Group>) {
        let state = group.state.lock();
        let timer = state.next_timer();
        let dead = state.has_dead();
        drop(state);
        if let Some(at) = timer {
            self.attention.schedule.no_later_than(group, at);
        }
        if dead {
            self.attention.make_dead(group);
        }
    }

    /// Wakes as many waiters as have something to look for, and sets the group's next timer.
    pub(crate) fn after(&self, group: &Arc<Group>) {
        let timer = {
            let state = self.enter(group, self.clock.now());
            group.tell_backlog(&state);
            state.wake(&group.waiters);
            state.next_timer()
        };
        if let Some(at) = timer {
            self.attention.schedule.no_later_than(group, at);
        }
    }

    /// Brings a group to now: locks that ran out, waits that ended. `false`: its lanes are of an older view.
    pub(crate) fn tick(&self, group: &Arc<Group>, now: UnixMillis) -> bool {
        group.scheduled.store(u64::MAX, Ordering::Release);
        let epoch = self.ledger.epoch();
        let mut batch = PositionBatch::new();
        let dead = {
            let mut state = self.enter(group, now);
            if state.epoch != Some(epoch) {
                return false;
            }
            self.signals.returned.inc_by(state.advance(now, &mut batch));
            self.ledger.commit_later(epoch, batch);
            state.has_dead()
        };
        if dead {
            self.attention.make_dead(group);
        }
        self.after(group);
        true
    }

    /// Told of every append, from the thread that made it, which waits for nobody: a group that is busy is marked,
    /// and [`Core::attend`] wakes its members.
    pub(crate) fn appended(&self, topic: &TopicName, records: usize) {
        self.directory.by_topic.each(topic, |group| {
            if !group.waiters.is_empty() || group.streams.load(Ordering::SeqCst) > 0 {
                match group.state.try_lock() {
                    Some(state) => state.wake_for(&group.waiters, records),
                    None => self.attention.marked.mark(group),
                }
            }
        });
    }

    /// Looks at groups that were busy when something was appended for them, and at those whose commit nobody waits
    /// for any more, until it is told to stop.
    pub(crate) async fn attend(&self, stop: Stop) {
        let mut abandoned = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = stop.wait() => return,
                marked = self.attention.marked.take() => {
                    for group in marked {
                        // The lock is held for a moment only.
                        group.state.lock().wake_for(&group.waiters, usize::MAX);
                    }
                }
                more = self.attention.abandoned() => abandoned.extend(more.into_iter().map(|(group, commit)| async {
                    // A commit that failed suspended the ledger, which is told elsewhere.
                    let decided = commit.await.is_ok();
                    (group, decided)
                })),
                Some((group, decided)) = abandoned.next(), if !abandoned.is_empty() => {
                    if decided {
                        self.after(&group);
                    }
                }
            }
        }
    }

    /// Wakes the waiting polls of a client: its groups have changed.
    pub(crate) fn look_again(&self, tenant: &TenantId, client: &ClientId) {
        let member = member_of(tenant, client);
        for group in self.directory.of_client(tenant, client).unwrap_or_default() {
            group.waiters.wake(usize::MAX, |other| other == member.0);
        }
    }
}
