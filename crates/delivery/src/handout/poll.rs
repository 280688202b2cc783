//! Long poll: take what there is, or wait until there is something.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use mesh_base::UnixMillis;
use mesh_frame::{ClientId, Offset, PartitionId};
use mesh_push::Waiter;
use mesh_rocks::Durability;
use mesh_state::positions::{Commit, LedgerEpoch, PositionBatch};
use mesh_storage::{LogRecord, Partition};

use crate::{
    Receiver,
    dispatcher::{Inner, LedgerUnavailable, ReliableDispatcher},
    group::{Group, member_of},
    handout::take::{Looking, Took},
    lane::{AckMode, Demand, Dropped, LOOK, Member, Taken},
    settle::delivery_id::DeliveryRef,
};

/// Why a poll has no answer.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// No such client has a subscription.
    #[error("this client has no subscription")]
    UnknownClient,
    /// It had, and was removed.
    #[error("the subscription of this client was ended; subscribe again")]
    Expired,
    /// The client is somebody else's.
    #[error("the client is another principal's")]
    NotYours,
    /// The ledger cannot write.
    #[error(transparent)]
    Ledger(#[from] LedgerUnavailable),
}

/// One delivery in an answer.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// What the client settles it with.
    pub id: String,
    /// The event.
    pub record: Arc<LogRecord>,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// The group it is for.
    pub group: Arc<Group>,
    /// Where it is in the log.
    pub partition: PartitionId,
    /// Where it is in the log.
    pub offset: Offset,
    /// Until when it is locked.
    pub locked_until: UnixMillis,
    serial: u32,
}

/// An answer to a poll. Dropped before [`Answer::delivered`], its deliveries come back uncounted.
pub struct Answer {
    dispatcher: Arc<Inner>,
    deliveries: Vec<Delivery>,
    delivered: bool,
}

impl Answer {
    /// What the client gets.
    pub fn deliveries(&self) -> &[Delivery] {
        &self.deliveries
    }

    /// It reached the socket.
    pub fn delivered(&mut self) {
        if !self.delivered {
            self.delivered = true;
            let count = self.deliveries.len() as u64;
            self.dispatcher.signals.dispatched.inc_by(count);
            let again = self.deliveries.iter().filter(|delivery| delivery.attempt > 1).count() as u64;
            self.dispatcher.signals.redelivered.inc_by(again);
        }
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("deliveries", &self.deliveries.len()).finish_non_exhaustive()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.delivered && !self.deliveries.is_empty() {
            self.dispatcher.give_back(&self.deliveries);
        }
    }
}

/// What one look at one group gave.
enum Look {
    /// The client is not a member any more.
    NotAMember,
    /// The lanes are of an older view of the ledger.
    Stale,
    Took {
        epoch: LedgerEpoch,
        taken: Vec<(PartitionId, Taken)>,
        commit: Option<Commit>,
        cold: Option<(Arc<Partition>, Offset)>,
        more: bool,
        held: bool,
    },
}

/// Who takes.
struct Taker<'a> {
    client: &'a ClientId,
    member: Member,
    /// What the tenant may have in flight.
    limit: Option<u64>,
    /// What marks the ids.
    owner: u32,
}

/// What a client got from a group.
#[derive(Default)]
struct Round {
    deliveries: Vec<Delivery>,
    /// There may be more, were the tenant's backlog not full.
    held: bool,
}

/// How often somebody looks again who is held by the backlog of the tenant.
pub(crate) const HELD: Duration = Duration::from_millis(100);

/// How often somebody looks again who may have nothing of a group, which he then is not woken by.
const BARRED: Duration = Duration::from_secs(1);

impl ReliableDispatcher {
    /// Up to `most` deliveries for a client, over all its groups; waits up to `timeout` when there is
    /// nothing, and not a moment once there is something.
    ///
    /// # Errors
    /// See [`PollError`].
    pub async fn poll(
        &self,
        receiver: &Receiver,
        client: &ClientId,
        most: usize,
        timeout: Duration,
    ) -> Result<Answer, PollError> {
        let inner = &self.0;
        let until = inner.clock.now().plus(timeout);
        let mut waiting: Option<Registered> = None;
        let mut was_woken = false;
        loop {
            let all = inner.groups_for(receiver, client)?;
            let may = |group: &Arc<Group>| receiver.may_receive(&group.id.topic);
            // It does not wait at groups that it may have nothing of: it would use up what wakes another one.
            let (groups, barred): (Vec<_>, Vec<_>) = all.into_iter().partition(may);
            if std::mem::take(&mut was_woken) {
                barred.iter().for_each(|group| group.state.lock().wake(&group.waiters));
            }
            let (answer, held) = inner.take_from(&groups, receiver, client, most).await?;
            let now = inner.clock.now();
            if !answer.deliveries.is_empty() || now >= until || receiver.has_ended() {
                return Ok(answer);
            }
            drop(answer);
            let look_again = match (held, barred.is_empty()) {
                (true, _) => until.min(now.plus(HELD)),
                (false, false) => until.min(now.plus(BARRED)),
                (false, true) => until,
            };
            // Register, look once more, then wait: an event in between is found by one or the other.
            match &mut waiting {
                None => waiting = Some(Registered::new(groups, member_of(receiver.tenant(), client))),
                Some(registered) => {
                    tokio::select! {
                        () = registered.waiter.woken() => was_woken = true,
                        // One more look at the deadline; it is not waited for again.
                        () = inner.clock.sleep_until(look_again) => {}
                    }
                    registered.looks_again = true;
                    waiting = None;
                }
            }
        }
    }
}

/// A poll that is registered as waiting; dropping it passes an unused wake-up on.
struct Registered {
    waiter: Arc<Waiter>,
    groups: Vec<Arc<Group>>,
    /// Its wake-up is used: the poll looks again.
    looks_again: bool,
}

impl Registered {
    fn new(groups: Vec<Arc<Group>>, member: Member) -> Self {
        let waiter = Waiter::new(member.0);
        for group in &groups {
            group.waiters.add(&waiter);
        }
        Self { waiter, groups, looks_again: false }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let woken = self.waiter.finish();
        for group in &self.groups {
            group.waiters.remove(&self.waiter);
            if woken && !self.looks_again {
                group.state.lock().wake(&group.waiters);
            }
        }
    }
}

impl Inner {
    /// Why a client has no groups.
    pub(crate) fn no_client(&self, receiver: &Receiver, client: &ClientId) -> PollError {
        if self.clients.was_evicted(receiver, client, self.clock.now()) {
            PollError::Expired
        } else {
            PollError::UnknownClient
        }
    }

    async fn take_from(
        self: &Arc<Self>,
        groups: &[Arc<Group>],
        receiver: &Receiver,
        client: &ClientId,
        most: usize,
    ) -> Result<(Answer, bool), LedgerUnavailable> {
        if let Some(suspension) = self.positions.log().suspension() {
            return Err(suspension.into());
        }
        let mut answer = Answer { dispatcher: self.clone(), deliveries: Vec::new(), delivered: false };
        let mut bytes = self.limits.answer_bytes;
        let mut held = false;
        let limit = receiver.backlog_limit();
        let owner = self.ids.owner_tag(receiver.principal());
        let taker = Taker { client, member: member_of(receiver.tenant(), client), limit, owner };
        // A different group is first each time, so that a busy one does not starve the others.
        let first =
            usize::try_from(self.clock.elapsed().as_micros() % 1_021).unwrap_or(0) % groups.len().max(1);
        for place in 0..groups.len() {
            let group = &groups[(first + place) % groups.len()];
            let left = most - answer.deliveries.len();
            if left == 0 || bytes == 0 {
                group.state.lock().wake(&group.waiters);
                break;
            }
            let got = self.take_from_group(group, &taker, left, bytes).await?;
            for delivery in &got.deliveries {
                bytes = bytes.saturating_sub(delivery.record.json().len() + 512);
            }
            held |= got.held;
            answer.deliveries.extend(got.deliveries);
        }
        Ok((answer, held))
    }

    async fn take_from_group(
        self: &Arc<Self>,
        group: &Arc<Group>,
        taker: &Taker<'_>,
        most: usize,
        bytes: usize,
    ) -> Result<Round, LedgerUnavailable> {
        let member = taker.member;
        loop {
            if group.is_closed() {
                return Ok(Round::default());
            }
            self.ensure_lanes(group).await?;
            match self.look(group, taker, most, bytes) {
                Look::NotAMember => return Ok(Round::default()),
                Look::Stale => {}
                Look::Took { epoch, taken, commit, cold, more, held } => {
                    let changed = commit.is_some();
                    let left_to: Vec<Member> =
                        taken.iter().flat_map(|(_, took)| took.left_to.clone()).collect();
                    let got = self.confirm(group, taker.owner, epoch, taken, commit).await?;
                    if changed {
                        self.after(group);
                    } else {
                        // What it may not have is for somebody who may.
                        let state = group.state.lock();
                        let runners = state.lanes.iter().flat_map(|lane| lane.lane.runners());
                        for member in runners.chain(left_to).filter(|other| *other != member) {
                            state.wake_member(&group.waiters, member);
                        }
                    }
                    if !got.is_empty() || held {
                        return Ok(Round { deliveries: got, held });
                    }
                    if let Some((partition, offset)) = cold {
                        self.storage.warm(&partition, offset).await?;
                    } else if !more {
                        return Ok(Round::default());
                    } else {
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
    }

    /// Takes for a member, under the group's lock, and hands the batch in before it lets go.
    fn look(&self, group: &Arc<Group>, taker: &Taker<'_>, most: usize, bytes: usize) -> Look {
        let member = taker.member;
        let now = self.clock.now();
        let mut guard = group.state.lock();
        let state = &mut *guard;
        let epoch = self.positions.log().epoch();
        if state.epoch != Some(epoch) {
            return Look::Stale;
        }
        if !state.members.contains_key(taker.client) {
            return Look::NotAMember;
        }
        let mut batch = PositionBatch::new();
        self.signals.returned.inc_by(state.advance(now, &mut batch));
        let others = group.waiters.len().max(1) + state.streams_with_room(member, &group.id.topic);
        let share = state.available().div_ceil(others).max(1);
        let most = most.min(share).min(state.window(member));
        // What is done when it is handed out is never in flight.
        let limit = taker.limit.filter(|_| state.terms.ack == AckMode::Explicit);
        let reserved = group.reserve_backlog(most, limit);
        let held = reserved < most && state.has_work();
        let most = reserved;
        let demand = Demand { member, most, bytes, at_least_one: true, work: LOOK, by_stream: false };
        let mut looking = Looking::new(now, state, group, &mut batch);
        let Took { taken, cold, more } = self.take(&mut looking, demand);
        group.end_reservation(looking.state, reserved, limit);
        let commit =
            (!batch.is_empty()).then(|| self.positions.log().commit(epoch, batch, Durability::Logged));
        Look::Took { epoch, taken, commit, cold, more, held }
    }

    /// Waits for the commit of a take and tells the lanes: what stands is handed out.
    async fn confirm(
        &self,
        group: &Arc<Group>,
        owner: u32,
        epoch: LedgerEpoch,
        taken: Vec<(PartitionId, Taken)>,
        commit: Option<Commit>,
    ) -> Result<Vec<Delivery>, LedgerUnavailable> {
        self.count_dropped(group, &taken);
        let Some(commit) = commit else { return Ok(Vec::new()) };
        // A poll that is cancelled here has its hand-outs returned by the guard.
        let mut cancelled = Cancelled { dispatcher: self, group, taken, epoch, armed: true };
        self.positions.log().committed(commit).await?;
        cancelled.armed = false;
        let taken = std::mem::take(&mut cancelled.taken);
        let now = self.clock.now();
        let mut given: Vec<(PartitionId, crate::lane::HandOut)> = Vec::new();
        let mut guard = group.state.lock();
        let state = &mut *guard;
        if state.epoch != Some(epoch) {
            return Ok(Vec::new());
        }
        for (partition, took) in taken {
            let Some(lane) = state.lanes.iter_mut().find(|lane| lane.partition.id() == partition) else {
                continue;
            };
            let standing = lane.lane.handed(&took);
            lane.lane.ended(&took.ends, &mut state.windows, now);
            given.extend(standing.into_iter().map(|hand_out| (partition, hand_out)));
        }
        drop(guard);
        Ok(given
            .into_iter()
            .map(|(partition, hand_out)| self.delivery(group, partition, hand_out, owner))
            .collect())
    }

    /// Counts what a take dropped on the way.
    pub(crate) fn count_dropped(&self, group: &Group, taken: &[(PartitionId, Taken)]) {
        let mut dropped = Dropped::default();
        for (_, took) in taken {
            dropped.filtered += took.dropped.filtered;
            dropped.expired += took.dropped.expired;
            dropped.gone += took.dropped.gone;
        }
        if dropped != Dropped::default() {
            group.dirty.store(true, Ordering::Release);
            self.signals.drop_by("filtered", dropped.filtered);
            self.signals.drop_by("expired", dropped.expired);
            self.signals.drop_by("gone", dropped.gone);
        }
    }

    pub(crate) fn delivery(
        &self,
        group: &Arc<Group>,
        partition: PartitionId,
        hand_out: crate::lane::HandOut,
        owner: u32,
    ) -> Delivery {
        let offset = hand_out.record.offset();
        let id = self.ids.make(&DeliveryRef {
            group: group.number,
            generation: group.generation,
            partition,
            offset,
            serial: hand_out.serial,
            boot: self.epoch,
            owner,
        });
        Delivery {
            id,
            record: hand_out.record,
            attempt: hand_out.attempt,
            group: group.clone(),
            partition,
            offset,
            locked_until: hand_out.locked_until,
            serial: hand_out.serial,
        }
    }

    /// Returns deliveries that never reached their client.
    fn give_back(&self, deliveries: &[Delivery]) {
        self.signals.returned.inc_by(deliveries.len() as u64);
        for delivery in deliveries {
            self.give_back_one(&delivery.group, delivery.partition, delivery.offset, delivery.serial);
        }
        let mut groups: Vec<&Arc<Group>> = deliveries.iter().map(|delivery| &delivery.group).collect();
        groups.dedup_by(|a, b| Arc::ptr_eq(a, b));
        for group in groups {
            self.after(group);
        }
    }

    fn give_back_one(&self, group: &Arc<Group>, partition: PartitionId, offset: Offset, serial: u32) {
        let now = self.clock.now();
        let mut guard = group.state.lock();
        let state = &mut *guard;
        let epoch = self.positions.log().epoch();
        if state.epoch != Some(epoch) {
            return;
        }
        let mut batch = PositionBatch::new();
        if let Some(lane) = state.lanes.iter_mut().find(|lane| lane.partition.id() == partition) {
            lane.lane.give_back(offset, serial, now, &mut state.windows, &mut batch);
        }
        self.commit_later(epoch, batch);
    }
}

/// A take whose commit is waited for. Dropped before that ended, its hand-outs go back.
pub(crate) struct Cancelled<'a> {
    pub(crate) dispatcher: &'a Inner,
    pub(crate) group: &'a Arc<Group>,
    pub(crate) taken: Vec<(PartitionId, Taken)>,
    pub(crate) epoch: LedgerEpoch,
    pub(crate) armed: bool,
}

impl Drop for Cancelled<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        for (partition, took) in &self.taken {
            for hand_out in &took.hand_outs {
                self.dispatcher.give_back_one(
                    self.group,
                    *partition,
                    hand_out.record.offset(),
                    hand_out.serial,
                );
            }
        }
        self.dispatcher.finish_ends(self.group, self.epoch, &self.taken);
        self.dispatcher.after(self.group);
    }
}

impl Inner {
    /// The ends that a cancelled take had staged are confirmed by whoever commits next.
    fn finish_ends(&self, group: &Arc<Group>, epoch: LedgerEpoch, taken: &[(PartitionId, Taken)]) {
        let now = self.clock.now();
        let mut guard = group.state.lock();
        let state = &mut *guard;
        if state.epoch != Some(epoch) {
            return;
        }
        for (partition, took) in taken {
            if let Some(lane) = state.lanes.iter_mut().find(|lane| lane.partition.id() == *partition) {
                lane.lane.ended(&took.ends, &mut state.windows, now);
            }
        }
    }
}
