//! Deliveries on their way to a client: what stands of a take once it is committed, and what never arrives.

use std::sync::{Arc, atomic::Ordering};

use mesh_base::UnixMillis;
use mesh_frame::{ClientId, Offset, PartitionId};
use mesh_state::positions::PositionBatch;
use mesh_storage::LogRecord;

use super::{
    delivery_id::{DeliveryIds, DeliveryRef},
    filter_turns::{FilterTurns, Turn},
};
use crate::{
    group::{Committing, Core, Group, receiver::Receiver},
    lane::{Dropped, Gap, HandOut, Taken},
    ledger::LedgerUnavailable,
};

/// Why a client is given nothing.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// No such client has a subscription.
    #[error("this client has no subscription")]
    UnknownClient,
    /// It had, and was removed.
    #[error("the subscription of this client was ended; subscribe again")]
    Expired,
    /// The client belongs to another principal.
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
    /// What the group was not given before it.
    pub gap: Option<Box<Gap>>,
    pub(super) serial: u32,
}

/// By lane, what a take gave.
pub(super) type TakenByLane = Vec<(PartitionId, Taken)>;

/// How deliveries are given to clients.
pub(crate) struct HandOuts {
    pub(crate) core: Arc<Core>,
    pub(crate) ids: DeliveryIds,
    pub(crate) turns: FilterTurns,
}

impl HandOuts {
    /// The turn that a look at a group needs, where its filters cost much.
    pub(super) async fn filter_turn(&self, group: &Group) -> Option<Turn> {
        let cost = group.state.lock().settings.filter_cost();
        self.turns.turn(&group.id.tenant, cost).await
    }
}

/// A take whose commit is under way. Dropped before that ended, its hand-outs go back.
pub(super) struct Handing {
    hand_outs: Arc<HandOuts>,
    group: Arc<Group>,
    taken: Arc<TakenByLane>,
    is_open: bool,
}

impl Handing {
    /// `taken` is handed in with `committing`.
    pub(super) fn new(hand_outs: &Arc<HandOuts>, group: &Arc<Group>, taken: &Arc<TakenByLane>) -> Self {
        Self { hand_outs: hand_outs.clone(), group: group.clone(), taken: taken.clone(), is_open: true }
    }

    /// Waits for the commit. The group has what it completes once it is entered again.
    ///
    /// # Errors
    /// When it was not carried out: nothing was handed out.
    pub(super) async fn done(mut self, committing: Committing) -> Result<(), LedgerUnavailable> {
        let answer = committing.done().await;
        self.is_open = false;
        Ok(answer?)
    }
}

impl Drop for Handing {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        for (partition, took) in self.taken.iter() {
            for hand_out in &took.hand_outs {
                let offset = hand_out.record.offset();
                let gap = hand_out.gap.as_deref();
                self.hand_outs.give_back_one(&self.group, *partition, offset, hand_out.serial, gap);
            }
        }
        self.hand_outs.core.after(&self.group);
    }
}

impl HandOuts {
    /// The groups a client is a member of, where the receiver may use it.
    pub(super) fn groups_for(
        &self,
        receiver: &Receiver,
        client: &ClientId,
    ) -> Result<Vec<Arc<Group>>, PollError> {
        let (tenant, directory) = (receiver.tenant(), &self.core.directory);
        let owner = directory.clients.owner(tenant, client);
        let Some(groups) = directory.of_client(tenant, client) else {
            let evicted = directory.clients.was_evicted(receiver, client, self.core.clock.now());
            return Err(if evicted { PollError::Expired } else { PollError::UnknownClient });
        };
        if receiver.may_use(owner.as_deref()) { Ok(groups) } else { Err(PollError::NotYours) }
    }

    /// A hand-out as its client gets it.
    pub(super) fn delivery(
        &self,
        group: &Arc<Group>,
        partition: PartitionId,
        hand_out: HandOut,
        owner: u32,
    ) -> Delivery {
        let offset = hand_out.record.offset();
        let id = self.ids.make(&DeliveryRef {
            group: group.number,
            generation: group.generation,
            partition,
            offset,
            serial: hand_out.serial,
            boot: self.core.epoch,
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
            gap: hand_out.gap,
            serial: hand_out.serial,
        }
    }

    /// Counts what reached a client.
    pub(super) fn count_delivered(&self, deliveries: &[Delivery]) {
        let signals = &self.core.signals;
        signals.dispatched.inc_by(deliveries.len() as u64);
        let again = deliveries.iter().filter(|delivery| delivery.attempt > 1).count();
        signals.redelivered.inc_by(again as u64);
    }

    /// Counts what a take dropped on the way.
    pub(super) fn count_dropped(&self, group: &Group, taken: &TakenByLane) {
        let mut dropped = Dropped::default();
        for (_, took) in taken {
            dropped.filtered += took.dropped.filtered;
            dropped.expired += took.dropped.expired;
            dropped.gone += took.dropped.gone;
        }
        if dropped != Dropped::default() {
            group.dirty.store(true, Ordering::Release);
            let signals = &self.core.signals;
            signals.drop_by("filtered", dropped.filtered);
            signals.drop_by("expired", dropped.expired);
            signals.drop_by("gone", dropped.gone);
        }
    }

    /// Returns deliveries that never reached their client.
    pub(super) fn give_back(&self, deliveries: &[Delivery]) {
        self.core.signals.returned.inc_by(deliveries.len() as u64);
        for delivery in deliveries {
            let Delivery { group, partition, offset, serial, gap, .. } = delivery;
            self.give_back_one(group, *partition, *offset, *serial, gap.as_deref());
        }
        let mut groups: Vec<&Arc<Group>> = deliveries.iter().map(|delivery| &delivery.group).collect();
        groups.dedup_by(|a, b| Arc::ptr_eq(a, b));
        for group in groups {
            self.core.after(group);
        }
    }

    fn give_back_one(
        &self,
        group: &Arc<Group>,
        partition: PartitionId,
        offset: Offset,
        serial: u32,
        gap: Option<&Gap>,
    ) {
        let now = self.core.clock.now();
        let mut guard = self.core.enter(group, now);
        let state = &mut *guard;
        let epoch = self.core.ledger.epoch();
        if state.epoch != Some(epoch) {
            return;
        }
        let mut batch = PositionBatch::new();
        if let Some(lane) = state.lanes.iter_mut().find(|lane| lane.partition.id() == partition) {
            lane.lane.give_back(offset, serial, now, &mut state.windows, &mut batch);
            if let Some(gap) = gap {
                lane.lane.tell_again(gap);
            }
        }
        self.core.ledger.commit_later(epoch, batch);
    }
}
