//! Acks: one or many, over any connection.

use std::{collections::HashMap, sync::Arc};

use mesh_frame::{Offset, PartitionId, TenantId};
use mesh_rocks::Durability;
use mesh_state::positions::{CommitError, PositionBatch};

use crate::{
    delivery_id::DeliveryRef,
    dispatcher::{Inner, LedgerUnavailable, ReliableDispatcher},
    group::Group,
    lane::Settled,
};

/// How an ack ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckOutcome {
    /// The delivery is done; it does not come back.
    Acked,
    /// There is no live delivery of that id: it was done before, or never was.
    Unknown,
    /// The ledger cannot write; the delivery stays.
    Unavailable {
        /// Because the disk is full.
        full: bool,
    },
}

impl ReliableDispatcher {
    /// Acknowledges deliveries of a tenant, in one commit a group; answers in the order of the ids.
    pub async fn ack(&self, tenant: &TenantId, ids: &[String]) -> Vec<AckOutcome> {
        let inner = &self.0;
        let mut outcomes = vec![AckOutcome::Unknown; ids.len()];
        let mut by_group: HashMap<u64, Vec<(usize, DeliveryRef)>> = HashMap::new();
        for (place, id) in ids.iter().enumerate() {
            if let Some(delivery) = inner.ids.read(id) {
                by_group.entry(delivery.group).or_default().push((place, delivery));
            }
        }
        for (number, deliveries) in by_group {
            let Some(group) = inner.group(number).filter(|group| group.id.tenant == *tenant) else {
                continue;
            };
            match inner.ack_in(&group, &deliveries).await {
                Ok(results) => {
                    for ((place, _), acked) in deliveries.iter().zip(results) {
                        outcomes[*place] = if acked { AckOutcome::Acked } else { AckOutcome::Unknown };
                    }
                }
                Err(error) => {
                    for (place, _) in &deliveries {
                        outcomes[*place] = AckOutcome::Unavailable { full: error.is_full() };
                    }
                }
            }
        }
        let acked = outcomes.iter().filter(|outcome| **outcome == AckOutcome::Acked).count();
        inner.signals.acked.inc_by(acked as u64);
        outcomes
    }
}

impl Inner {
    async fn ack_in(
        self: &Arc<Self>,
        group: &Arc<Group>,
        deliveries: &[(usize, DeliveryRef)],
    ) -> Result<Vec<bool>, LedgerUnavailable> {
        loop {
            if group.is_closed() {
                return Ok(vec![false; deliveries.len()]);
            }
            self.ensure_lanes(group).await?;
            let mut batch = PositionBatch::new();
            let mut results = vec![false; deliveries.len()];
            let mut ends: Vec<(PartitionId, Offset)> = Vec::new();
            let mut parked = false;
            let now = self.clock.now();
            let commit = {
                let mut guard = group.state.lock();
                let state = &mut *guard;
                let epoch = self.positions.log().epoch();
                if state.epoch != Some(epoch) {
                    continue;
                }
                for ((_, delivery), result) in deliveries.iter().zip(&mut results) {
                    if delivery.generation != group.generation {
                        continue;
                    }
                    let lane = state.lanes.iter_mut().find(|lane| lane.partition.id() == delivery.partition);
                    let Some(lane) = lane else { continue };
                    // Somebody else's ack of it is on its way: ours is answered once that one is decided.
                    parked |= lane.lane.is_ending(delivery.offset);
                    let settled =
                        lane.lane.ack(delivery.offset, delivery.serial, now, &mut state.windows, &mut batch);
                    if settled == Settled::Staged {
                        *result = true;
                        ends.push((delivery.partition, delivery.offset));
                    }
                }
                if batch.is_empty() && !parked {
                    return Ok(results);
                }
                Committing {
                    answer: self.positions.log().commit(epoch, batch, Durability::Logged),
                    guard: Confirm { dispatcher: self.clone(), group: group.clone(), epoch, ends },
                }
            };
            commit.confirmed().await?;
            self.after(group);
            return Ok(results);
        }
    }
}

/// A commit of ends that is under way. It is confirmed to the lanes also when whoever waited has gone.
pub(crate) struct Committing {
    pub(crate) answer: mesh_state::positions::Commit,
    pub(crate) guard: Confirm,
}

impl Committing {
    /// Waits for the commit and confirms it.
    pub(crate) async fn confirmed(self) -> Result<(), CommitError> {
        let Self { answer, guard } = self;
        let mut waiting = Waiting { answer: Some(answer), guard: Some(guard) };
        let answer = waiting.answer.as_mut().expect("it was just put there");
        let result = answer.await.unwrap_or(Err(CommitError::Closed));
        waiting.answer = None;
        if let Some(guard) = waiting.guard.take()
            && result.is_ok()
        {
            guard.confirm();
        }
        result
    }
}

/// What a commit ends.
pub(crate) struct Confirm {
    pub(crate) dispatcher: Arc<Inner>,
    pub(crate) group: Arc<Group>,
    pub(crate) epoch: mesh_state::positions::LedgerEpoch,
    pub(crate) ends: Vec<(PartitionId, Offset)>,
}

impl Confirm {
    fn confirm(&self) {
        let now = self.dispatcher.clock.now();
        let mut guard = self.group.state.lock();
        let state = &mut *guard;
        if state.epoch != Some(self.epoch) {
            return;
        }
        for (partition, offset) in &self.ends {
            if let Some(lane) = state.lanes.iter_mut().find(|lane| lane.partition.id() == *partition) {
                lane.lane.ended(&[*offset], &mut state.windows, now);
            }
        }
    }
}

struct Waiting {
    answer: Option<mesh_state::positions::Commit>,
    guard: Option<Confirm>,
}

impl Drop for Waiting {
    /// The request was cancelled: a thread of the pool sees the commit through.
    fn drop(&mut self) {
        let (Some(answer), Some(guard)) = (self.answer.take(), self.guard.take()) else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(move || {
                if answer.blocking_recv() == Ok(Ok(())) {
                    guard.confirm();
                    guard.dispatcher.after(&guard.group);
                }
            });
        }
    }
}
