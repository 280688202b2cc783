//! Long poll: take what there is, or wait until there is something.

use std::{
    cell::OnceCell,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use mesh_base::UnixMillis;
use mesh_frame::{ClientId, Offset, PartitionId, TenantId};
use mesh_push::Waiter;
use mesh_rocks::Durability;
use mesh_state::positions::{Commit, LedgerEpoch, PositionBatch};
use mesh_storage::{LogRecord, Partition};

use crate::{
    delivery_id::DeliveryRef,
    dispatcher::{Inner, LedgerUnavailable, ReliableDispatcher},
    group::{Group, PartitionSource, member_of, verdict},
    lane::{AckMode, Demand, Dropped, Judge, Member, Taken, Terms},
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
    },
}

impl ReliableDispatcher {
    /// Up to `most` deliveries for a client, over all its groups; waits up to `timeout` when there is
    /// nothing, and not a moment once there is something.
    ///
    /// # Errors
    /// See [`PollError`].
    pub async fn poll(
        &self,
        tenant: &TenantId,
        client: &ClientId,
        most: usize,
        timeout: Duration,
    ) -> Result<Answer, PollError> {
        let inner = &self.0;
        let until = inner.clock.now().plus(timeout);
        let mut waiting: Option<Registered> = None;
        loop {
            let Some(groups) = inner.groups_of(tenant, client) else {
                return Err(if inner.clients.was_evicted(tenant, client, inner.clock.now()) {
                    PollError::Expired
                } else {
                    PollError::UnknownClient
                });
            };
            let answer = inner.take_from(&groups, tenant, client, most).await?;
            if !answer.deliveries.is_empty() || inner.clock.now() >= until {
                return Ok(answer);
            }
            drop(answer);
            // Register, look once more, then wait: an event in between is found by one or the other.
            match &mut waiting {
                None => waiting = Some(Registered::new(groups, member_of(tenant, client))),
                Some(registered) => {
                    tokio::select! {
                        () = registered.waiter.woken() => {}
                        // One more look at the deadline; it is not waited for again.
                        () = inner.clock.sleep_until(until) => {}
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
    async fn take_from(
        self: &Arc<Self>,
        groups: &[Arc<Group>],
        tenant: &TenantId,
        client: &ClientId,
        most: usize,
    ) -> Result<Answer, LedgerUnavailable> {
        if let Some(suspension) = self.positions.log().suspension() {
            return Err(suspension.into());
        }
        let mut answer = Answer { dispatcher: self.clone(), deliveries: Vec::new(), delivered: false };
        let mut bytes = self.limits.answer_bytes;
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
            let got = self.take_from_group(group, tenant, client, left, bytes).await?;
            for delivery in &got {
                bytes = bytes.saturating_sub(delivery.record.json().len() + 512);
            }
            answer.deliveries.extend(got);
        }
        Ok(answer)
    }

    async fn take_from_group(
        self: &Arc<Self>,
        group: &Arc<Group>,
        tenant: &TenantId,
        client: &ClientId,
        most: usize,
        bytes: usize,
    ) -> Result<Vec<Delivery>, LedgerUnavailable> {
        let member = member_of(tenant, client);
        loop {
            if group.is_closed() {
                return Ok(Vec::new());
            }
            self.ensure_lanes(group).await?;
            match self.look(group, client, member, most, bytes) {
                Look::NotAMember => return Ok(Vec::new()),
                Look::Stale => {}
                Look::Took { epoch, taken, commit, cold, more } => {
                    let changed = commit.is_some();
                    let left_to: Vec<Member> =
                        taken.iter().flat_map(|(_, took)| took.left_to.clone()).collect();
                    let got = self.confirm(group, epoch, taken, commit).await?;
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
                    if !got.is_empty() {
                        return Ok(got);
                    }
                    if let Some((partition, offset)) = cold {
                        self.storage.warm(&partition, offset).await?;
                    } else if !more {
                        return Ok(got);
                    } else {
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
    }

    /// Takes for a member, under the group's lock, and hands the batch in before it lets go.
    fn look(&self, group: &Arc<Group>, client: &ClientId, member: Member, most: usize, bytes: usize) -> Look {
        let now = self.clock.now();
        let mut guard = group.state.lock();
        let state = &mut *guard;
        let epoch = self.positions.log().epoch();
        if state.epoch != Some(epoch) {
            return Look::Stale;
        }
        let Some(membership) = state.members.get(client) else { return Look::NotAMember };
        let mut batch = PositionBatch::new();
        for lane in &mut state.lanes {
            lane.lane.advance(now, &state.terms, &mut state.windows, &mut batch);
        }
        let window = membership.max_in_flight.saturating_sub(state.windows.of(member)) as usize;
        let share = state.available().div_ceil(group.waiters.len().max(1)).max(1);
        let mut left = most.min(share);
        if state.terms.ack == AckMode::Explicit {
            left = left.min(window);
        }
        let (settings, replay_tag) = (&state.settings, &state.replay_tag);
        // Who waits and had room when this look began; asked only when a key had another member before.
        let (limits, full) = (&state.limits, state.windows.full(&state.limits));
        let waiting: OnceCell<Vec<u64>> = OnceCell::new();
        let judge = Judge {
            verdict: &|record: &LogRecord| verdict(replay_tag, settings, record, now),
            has_demand: &|other| {
                limits.contains_key(&other)
                    && !full.contains(&other)
                    && waiting.get_or_init(|| group.waiters.members()).contains(&other.0)
            },
        };
        let (mut taken, mut cold, mut more, mut bytes) = (Vec::new(), None, false, bytes);
        let lanes = state.lanes.len();
        state.turn = state.turn.wrapping_add(1);
        for place in 0..lanes {
            if left == 0 {
                break;
            }
            let lane = &mut state.lanes[(state.turn + place) % lanes];
            let demand = Demand { member, most: left, bytes, by_stream: false };
            let mut source = PartitionSource(&lane.partition);
            let before = lane.lane.outstanding();
            let terms =
                Terms { max_outstanding: self.room(&lane.lane, state.terms.max_outstanding), ..state.terms };
            let mut took = lane.lane.take(&demand, now, &terms, &mut state.windows, &mut source, &judge);
            self.outstanding.fetch_add(lane.lane.outstanding().saturating_sub(before), Ordering::AcqRel);
            batch.extend(std::mem::take(&mut took.batch));
            left -= took.hand_outs.len();
            let used: usize = took.hand_outs.iter().map(|given| given.record.json().len() + 512).sum();
            bytes = bytes.saturating_sub(used);
            more |= took.more;
            if let Some(offset) = took.cold {
                cold = cold.or_else(|| Some((lane.partition.clone(), offset)));
            }
            taken.push((lane.partition.id(), took));
            if used > 0 && bytes == 0 {
                break;
            }
        }
        let commit =
            (!batch.is_empty()).then(|| self.positions.log().commit(epoch, batch, Durability::Logged));
        Look::Took { epoch, taken, commit, cold, more }
    }

    /// Waits for the commit of a take and tells the lanes: what stands is handed out.
    async fn confirm(
        &self,
        group: &Arc<Group>,
        epoch: LedgerEpoch,
        taken: Vec<(PartitionId, Taken)>,
        commit: Option<Commit>,
    ) -> Result<Vec<Delivery>, LedgerUnavailable> {
        let mut dropped = Dropped::default();
        for (_, took) in &taken {
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
        Ok(given.into_iter().map(|(partition, hand_out)| self.delivery(group, partition, hand_out)).collect())
    }

    fn delivery(
        &self,
        group: &Arc<Group>,
        partition: PartitionId,
        hand_out: crate::lane::HandOut,
    ) -> Delivery {
        let offset = hand_out.record.offset();
        let id = self.ids.make(&DeliveryRef {
            group: group.number,
            generation: group.generation,
            partition,
            offset,
            serial: hand_out.serial,
            boot: self.epoch,
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
struct Cancelled<'a> {
    dispatcher: &'a Inner,
    group: &'a Arc<Group>,
    taken: Vec<(PartitionId, Taken)>,
    epoch: LedgerEpoch,
    armed: bool,
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
