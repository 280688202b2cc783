//! Settling: ack, nack, extend and reject, one delivery or many, over any connection.
//!
//! A verb is answered once its change is in the write-ahead log, a reject once its dead letter is stored. When
//! the ledger cannot write, nothing changes and the outcome says so. A verb that meets an ack which is on its
//! way is answered after that one is decided.

mod dead_lettered;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::stream::{FuturesUnordered, StreamExt};
use mesh_frame::{Offset, PartitionId, TenantId, TopicName};
use mesh_rocks::Durability;
use mesh_state::positions::{CommitError, LastError, PositionBatch};

pub(crate) use dead_lettered::DeadLettered;

use crate::{
    group::{Core, Group, GroupState, settings::Range},
    handout::delivery_id::{DeliveryIds, DeliveryRef},
    lane::Settled,
    ledger::LedgerUnavailable,
};

/// `delayMs` of a nack.
pub const DELAY_MS: Range = Range { name: "delayMs", least: 0, most: 43_200_000 };
/// `extendMs` of an extend.
pub const EXTEND_MS: Range = Range { name: "extendMs", least: 1_000, most: 43_200_000 };

/// How a verb about one delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleOutcome {
    /// It was done.
    Settled,
    /// There is no live delivery of that id: it was finished before, or never was.
    Unknown,
    /// The ledger cannot write; the delivery stays. Of a reject also: the dead letter is not stored yet, and
    /// will be.
    Unavailable {
        /// Because the disk is full.
        full: bool,
    },
}

/// Deliveries by the ids that a client gave, in their order; those that are none are kept as such.
#[derive(Clone, Debug)]
pub struct Deliveries {
    resolved: Vec<Option<(DeliveryRef, Arc<Group>)>>,
}

impl Deliveries {
    /// How many ids were given.
    pub fn len(&self) -> usize {
        self.resolved.len()
    }

    /// Whether no id was given.
    pub fn is_empty(&self) -> bool {
        self.resolved.is_empty()
    }

    /// The topics they are of; `None`: there is no such delivery.
    pub fn topics(&self) -> Vec<Option<TopicName>> {
        self.resolved.iter().map(|known| known.as_ref().map(|(_, group)| group.id.topic.clone())).collect()
    }

    /// From now on there is no delivery at this place.
    pub fn hide(&mut self, place: usize) {
        if let Some(known) = self.resolved.get_mut(place) {
            *known = None;
        }
    }
}

/// What is done to deliveries.
#[derive(Clone, Copy, Debug)]
enum Verb<'a> {
    Ack,
    Nack { delay: Option<Duration>, why: &'a LastError },
    Extend { by: Duration, backlog: Option<u64> },
    Reject { why: &'a LastError },
}

/// Carries out what clients say of deliveries.
pub(crate) struct Settler {
    pub(crate) core: Arc<Core>,
    pub(crate) ids: DeliveryIds,
    pub(crate) dead_lettered: Arc<DeadLettered>,
}

impl Settler {
    /// What delivery ids stand for, as far as they are of this tenant. Pure: nothing is read but the ids.
    pub(crate) fn resolve(&self, tenant: &TenantId, ids: &[String]) -> Deliveries {
        let resolved = ids.iter().map(|id| {
            let delivery = self.ids.read(id)?;
            let group =
                self.core.directory.group(delivery.group).filter(|group| group.id.tenant == *tenant)?;
            Some((delivery, group))
        });
        Deliveries { resolved: resolved.collect() }
    }

    /// The places of deliveries that were handed out to another principal than this.
    pub(crate) fn of_others(&self, deliveries: &Deliveries, principal: Option<&str>) -> Vec<usize> {
        let tag = self.ids.owner_tag(principal);
        let is_others = |delivery: &DeliveryRef| delivery.owner != 0 && delivery.owner != tag;
        let of = |known: &Option<(DeliveryRef, _)>| {
            known.as_ref().is_some_and(|(delivery, _)| is_others(delivery))
        };
        deliveries
            .resolved
            .iter()
            .enumerate()
            .filter(|(_, known)| of(known))
            .map(|(place, _)| place)
            .collect()
    }

    /// Acknowledges deliveries: they are done. Takes any id of a live delivery. One commit a group; answers in
    /// the order of the ids.
    pub(crate) async fn ack(&self, deliveries: &Deliveries) -> Vec<SettleOutcome> {
        // They are counted with their commit, whether or not anybody waits for the answer.
        self.settle(deliveries, Verb::Ack).await
    }

    /// Gives deliveries back for another attempt, due after `delay`, or after the backoff of their attempt.
    /// The last attempt makes it a dead letter at once, which has the `reason`. Takes the newest id only.
    pub(crate) async fn nack(
        &self,
        deliveries: &Deliveries,
        delay: Option<Duration>,
        reason: Option<&str>,
    ) -> Vec<SettleOutcome> {
        let why = LastError::said(reason, LastError::Nacked);
        let outcomes = self.settle(deliveries, Verb::Nack { delay, why: &why }).await;
        self.core.signals.nacked.inc_by(settled(&outcomes));
        outcomes
    }

    /// Locks deliveries until `by` from now. Takes the newest id only, also after the lock ran out while
    /// nobody else was given the delivery; where the tenant has `backlog` of them in flight already that is too
    /// late.
    pub(crate) async fn extend(
        &self,
        deliveries: &Deliveries,
        by: Duration,
        backlog: Option<u64>,
    ) -> Vec<SettleOutcome> {
        let outcomes = self.settle(deliveries, Verb::Extend { by, backlog }).await;
        self.core.signals.extended.inc_by(settled(&outcomes));
        outcomes
    }

    /// Makes deliveries dead letters now, with the `reason`. Takes any id of a live delivery. Answers once the dead letters are
    /// stored; where that takes more than five seconds the outcome is `Unavailable`, and it is done later. Of an
    /// event that the log has dropped there can be none: the delivery ends, and the outcome is `Unknown`.
    pub(crate) async fn reject(&self, deliveries: &Deliveries, reason: Option<&str>) -> Vec<SettleOutcome> {
        let why = LastError::said(reason, LastError::Rejected);
        let outcomes = self.settle(deliveries, Verb::Reject { why: &why }).await;
        self.core.signals.rejected.inc_by(settled(&outcomes));
        outcomes
    }
}

fn settled(outcomes: &[SettleOutcome]) -> u64 {
    outcomes.iter().filter(|outcome| **outcome == SettleOutcome::Settled).count() as u64
}

/// A group with the deliveries of a request that are of it, each with its place.
type OfGroup<'a> = (&'a Arc<Group>, Vec<(usize, DeliveryRef)>);

/// What a verb did in one group.
#[derive(Debug, Default)]
struct Done {
    /// One for each delivery.
    settled: Vec<bool>,
    /// What ends with the commit.
    ends: Vec<(PartitionId, Offset)>,
    /// What waits for its dead letter now.
    dead: bool,
    /// An ack of one of them is on its way: the answer waits for it.
    parked: bool,
}

impl Settler {
    async fn settle(&self, deliveries: &Deliveries, verb: Verb<'_>) -> Vec<SettleOutcome> {
        let mut outcomes = vec![SettleOutcome::Unknown; deliveries.resolved.len()];
        let mut by_group: HashMap<u64, OfGroup<'_>> = HashMap::new();
        for (place, known) in deliveries.resolved.iter().enumerate() {
            if let Some((delivery, group)) = known {
                by_group
                    .entry(group.number)
                    .or_insert_with(|| (group, Vec::new()))
                    .1
                    .push((place, *delivery));
            }
        }
        // Side by side: the groups of an array share commits instead of waiting for one after the other.
        let mut settling = FuturesUnordered::new();
        for (group, deliveries) in by_group.into_values() {
            settling.push(async move {
                let results = self.settle_in(group, &deliveries, verb).await;
                (group, deliveries, results)
            });
        }
        let mut rejected = Vec::new();
        while let Some((group, deliveries, results)) = settling.next().await {
            match results {
                Ok(results) => {
                    for ((place, delivery), settled) in deliveries.iter().zip(results) {
                        if settled {
                            outcomes[*place] = SettleOutcome::Settled;
                            rejected.push((*place, group.clone(), *delivery));
                        }
                    }
                }
                Err(error) => {
                    for (place, _) in &deliveries {
                        outcomes[*place] = SettleOutcome::Unavailable { full: error.is_full() };
                    }
                }
            }
        }
        drop(settling);
        if matches!(verb, Verb::Reject { .. }) && !rejected.is_empty() {
            let not_stored = self.dead_lettered.wait_for(&self.core, &rejected).await;
            not_stored.gone.into_iter().for_each(|place| outcomes[place] = SettleOutcome::Unknown);
            let full = self.core.ledger.suspension() == Some(CommitError::Full);
            let unavailable = SettleOutcome::Unavailable { full };
            not_stored.waiting.into_iter().for_each(|place| outcomes[place] = unavailable);
        }
        outcomes
    }

    async fn settle_in(
        &self,
        group: &Arc<Group>,
        deliveries: &[(usize, DeliveryRef)],
        verb: Verb<'_>,
    ) -> Result<Vec<bool>, LedgerUnavailable> {
        let core = &self.core;
        loop {
            if group.is_closed() {
                return match core.directory.group(group.number) {
                    // It is being sought: in a moment it is known which of its ids still count.
                    Some(there) if Arc::ptr_eq(&there, group) => Err(CommitError::Suspended.into()),
                    _ => Ok(vec![false; deliveries.len()]),
                };
            }
            core.ensure_lanes(group).await?;
            let mut batch = PositionBatch::new();
            let (settled, commit) = {
                let mut guard = core.enter(group, core.clock.now());
                let state = &mut *guard;
                if state.epoch != Some(core.ledger.epoch()) {
                    continue;
                }
                let Done { settled, ends, dead, parked } =
                    self.stage(group, state, deliveries, verb, &mut batch);
                if batch.is_empty() && !parked {
                    return Ok(settled);
                }
                let commit = core.commit(group, state, batch, Durability::Logged, |staged| {
                    staged.acked = ends.len() as u64;
                    staged.ends = ends;
                    staged.dead = dead;
                });
                (settled, commit)
            };
            commit.done().await?;
            core.after(group);
            return Ok(settled);
        }
    }

    /// Stages a verb, under the group's lock.
    fn stage(
        &self,
        group: &Group,
        state: &mut GroupState,
        deliveries: &[(usize, DeliveryRef)],
        verb: Verb<'_>,
        batch: &mut PositionBatch,
    ) -> Done {
        let now = self.core.clock.now();
        let mut done = Done { settled: vec![false; deliveries.len()], ..Done::default() };
        // What is locked again counts again, from here on.
        let (mut reserved, mut reserved_of) = (0, None);
        let GroupState { lanes, windows, terms, .. } = state;
        for ((_, delivery), settled) in deliveries.iter().zip(&mut done.settled) {
            let DeliveryRef { offset, serial, .. } = *delivery;
            if delivery.generation != group.generation {
                continue;
            }
            let lane = lanes.iter_mut().find(|lane| lane.partition.id() == delivery.partition);
            let Some(lane) = lane.map(|lane| &mut lane.lane) else { continue };
            done.parked |= lane.is_ending(offset);
            if let Some(member) = lane.member_of(offset) {
                self.core.activity.heard(member, now);
            }
            let how = match verb {
                Verb::Ack => lane.ack(offset, serial, now, windows, batch),
                Verb::Nack { delay, why } => {
                    lane.nack(offset, serial, delay, why.clone(), now, terms, windows, batch)
                }
                Verb::Extend { by, backlog } => {
                    if backlog.is_some() && lane.is_unlocked(offset) {
                        let got = group.reserve_backlog(1, backlog);
                        if got == 0 {
                            continue;
                        }
                        (reserved, reserved_of) = (reserved + got, backlog);
                    }
                    lane.extend(offset, serial, now.plus(by), now, windows, batch)
                }
                Verb::Reject { why } => lane.reject(offset, serial, why.clone(), now, windows, batch),
            };
            *settled = how != Settled::Unknown;
            done.dead |= how == Settled::Dead;
            if *settled && matches!(verb, Verb::Ack) {
                done.ends.push((delivery.partition, offset));
            }
        }
        group.end_reservation(state, reserved, reserved_of);
        done
    }
}
