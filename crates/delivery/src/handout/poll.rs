//! Long poll: take what there is, or wait until there is something.

use std::{sync::Arc, time::Duration};

use mesh_frame::{ClientId, Offset};
use mesh_push::Waiter;
use mesh_rocks::Durability;
use mesh_state::positions::{LedgerEpoch, PositionBatch};
use mesh_storage::Partition;

use super::{
    hand_outs::{Delivery, HandOuts, Handing, PollError, TakenByLane},
    take::{Looking, Took, take},
};
use crate::{
    group::{Committing, Group, member_of, receiver::Receiver},
    lane::{AckMode, Demand, LOOK, Member},
    ledger::LedgerUnavailable,
};

/// An answer to a poll. Dropped before [`Answer::delivered`], its deliveries come back uncounted.
pub struct Answer {
    hand_outs: Arc<HandOuts>,
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
            self.hand_outs.count_delivered(&self.deliveries);
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
            self.hand_outs.give_back(&self.deliveries);
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
        taken: Arc<TakenByLane>,
        commit: Option<Committing>,
        cold: Option<(Arc<Partition>, Offset)>,
        more: bool,
        alone: bool,
        left_alone: bool,
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
    /// Nothing may be beside it.
    alone: bool,
}

/// How often a poll looks again that the tenant's backlog quota holds up.
pub(super) const HELD: Duration = Duration::from_millis(100);

/// How often a poll looks again whose caller may receive nothing of a group: the group does not wake it.
const BARRED: Duration = Duration::from_secs(1);

impl HandOuts {
    /// Up to `most` deliveries for a client, over all its groups; waits up to `timeout` when there is
    /// nothing, and not a moment once there is something.
    ///
    /// # Errors
    /// See [`PollError`].
    pub(crate) async fn poll(
        self: &Arc<Self>,
        receiver: &Receiver,
        client: &ClientId,
        most: usize,
        timeout: Duration,
    ) -> Result<Answer, PollError> {
        let clock = &self.core.clock;
        let until = clock.now().plus(timeout);
        let mut waiting: Option<Registered> = None;
        let mut was_woken = false;
        loop {
            self.core.activity.heard(member_of(receiver.tenant(), client), clock.now());
            let all = self.groups_for(receiver, client)?;
            let may = |group: &Arc<Group>| receiver.may_receive(&group.id.topic);
            // It does not wait at groups that it may have nothing of: it would use up what wakes another one.
            let (groups, barred): (Vec<_>, Vec<_>) = all.into_iter().partition(may);
            if std::mem::take(&mut was_woken) {
                barred.iter().for_each(|group| group.state.lock().wake(&group.waiters));
            }
            let (answer, held) = self.take_from(&groups, receiver, client, most).await?;
            let now = clock.now();
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
                        () = clock.sleep_until(look_again) => {}
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

/// A look that waits for its turn: given up before that, it passes on what woke it.
struct Unlooked<'a>(Option<&'a Group>);

impl Drop for Unlooked<'_> {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            group.state.lock().wake(&group.waiters);
        }
    }
}

impl HandOuts {
    async fn take_from(
        self: &Arc<Self>,
        groups: &[Arc<Group>],
        receiver: &Receiver,
        client: &ClientId,
        most: usize,
    ) -> Result<(Answer, bool), LedgerUnavailable> {
        if let Some(suspension) = self.core.ledger.suspension() {
            return Err(suspension.into());
        }
        let mut answer = Answer { hand_outs: self.clone(), deliveries: Vec::new(), delivered: false };
        let mut bytes = self.core.limits.answer_bytes;
        let (mut held, mut alone) = (false, false);
        let limit = receiver.backlog_limit();
        let owner = self.ids.owner_tag(receiver.principal());
        let taker = Taker { client, member: member_of(receiver.tenant(), client), limit, owner };
        // A different group is first each time, so that a busy one does not starve the others.
        let first = match groups.len() {
            0 | 1 => 0,
            several => usize::try_from(self.core.chance.number() % several as u64).unwrap_or(0),
        };
        for place in 0..groups.len() {
            let group = &groups[(first + place) % groups.len()];
            let left = if alone { 0 } else { most - answer.deliveries.len() };
            if left == 0 || bytes == 0 {
                group.state.lock().wake(&group.waiters);
                break;
            }
            let holds = !answer.deliveries.is_empty();
            let got = self.take_from_group(group, &taker, left, bytes, holds).await?;
            for delivery in &got.deliveries {
                bytes = bytes.saturating_sub(delivery.record.json().len() + 512);
            }
            held |= got.held;
            alone |= got.alone;
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
        holds: bool,
    ) -> Result<Round, LedgerUnavailable> {
        let member = taker.member;
        loop {
            if group.is_closed() {
                return Ok(Round::default());
            }
            self.core.ensure_lanes(group).await?;
            let mut unlooked = Unlooked(Some(group));
            let turn = self.filter_turn(group).await;
            unlooked.0 = None;
            let look = self.look(group, taker, most, bytes, holds);
            drop(turn);
            match look {
                Look::NotAMember => return Ok(Round::default()),
                Look::Stale => {}
                Look::Took { epoch, taken, commit, cold, more, alone, left_alone, held } => {
                    let changed = commit.is_some();
                    let left_to: Vec<Member> =
                        taken.iter().flat_map(|(_, took)| took.left_to.clone()).collect();
                    let got = self.confirm(group, taker.owner, epoch, taken, commit).await?;
                    if changed {
                        self.core.after(group);
                    } else {
                        // What this caller may not receive is for another that may.
                        let state = group.state.lock();
                        let runners = state.lanes.iter().flat_map(|lane| lane.lane.runners());
                        for member in runners.chain(left_to).filter(|other| *other != member) {
                            state.wake_member(&group.waiters, member);
                        }
                        if left_alone {
                            group.waiters.wake(1, |other| {
                                other != member.0
                                    && state.has_room(Member(other))
                                    && !state.has_suspect(Member(other))
                            });
                        }
                    }
                    if !got.is_empty() || held {
                        return Ok(Round { deliveries: got, held, alone });
                    }
                    if let Some((partition, offset)) = cold {
                        self.core.storage.warm(&partition, offset).await?;
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
    fn look(
        self: &Arc<Self>,
        group: &Arc<Group>,
        taker: &Taker<'_>,
        most: usize,
        bytes: usize,
        holds: bool,
    ) -> Look {
        let (core, member) = (&self.core, taker.member);
        let now = core.clock.now();
        let mut guard = core.enter(group, now);
        let state = &mut *guard;
        let epoch = core.ledger.epoch();
        if state.epoch != Some(epoch) {
            return Look::Stale;
        }
        if !state.members.contains_key(taker.client) {
            return Look::NotAMember;
        }
        let mut batch = PositionBatch::new();
        core.signals.returned.inc_by(state.advance(now, &mut batch));
        let others = group.waiters.len().max(1) + state.streams_with_room(member, &group.id.topic);
        let share = state.available().div_ceil(others).max(1);
        let most = most.min(share).min(state.window(member));
        // What is done when it is handed out is never in flight.
        let limit = taker.limit.filter(|_| state.terms.ack == AckMode::Explicit);
        let reserved = group.reserve_backlog(most, limit);
        let held = reserved < most && state.has_work();
        let most = reserved;
        let demand = Demand { member, most, bytes, at_least_one: true, holds, work: LOOK, by_stream: false };
        let mut looking = Looking::new(now, state, group, &mut batch);
        let Took { taken, cold, more, alone, left_alone } = take(core, &mut looking, demand);
        group.end_reservation(looking.state, reserved, limit);
        let taken = Arc::new(taken);
        let commit = (!batch.is_empty()).then(|| {
            let completes = taken.clone();
            core.commit(group, state, batch, Durability::Logged, |staged| staged.taken = Some(completes))
        });
        Look::Took { epoch, taken, commit, cold, more, alone, left_alone, held }
    }

    /// Waits for the commit of a take: what stands then is handed out.
    async fn confirm(
        self: &Arc<Self>,
        group: &Arc<Group>,
        owner: u32,
        epoch: LedgerEpoch,
        taken: Arc<TakenByLane>,
        commit: Option<Committing>,
    ) -> Result<Vec<Delivery>, LedgerUnavailable> {
        self.count_dropped(group, &taken);
        let Some(commit) = commit else { return Ok(Vec::new()) };
        Handing::new(self, group, &taken).done(commit).await?;
        let mut given = Vec::new();
        {
            let mut state = self.core.enter(group, self.core.clock.now());
            if state.epoch != Some(epoch) {
                return Ok(Vec::new());
            }
            for (partition, took) in taken.iter() {
                if let Some(lane) = state.lane(*partition) {
                    given.extend(took.standing(lane).map(|hand_out| (*partition, hand_out.clone())));
                }
            }
        }
        let given = given.into_iter();
        Ok(given.map(|(partition, hand_out)| self.delivery(group, partition, hand_out, owner)).collect())
    }
}
