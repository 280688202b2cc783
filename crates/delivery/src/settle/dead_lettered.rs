//! Waiting for the dead letters of a reject.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    group::{Core, Group},
    handout::delivery_id::DeliveryRef,
};

/// A reject waits no longer than this for its dead letters.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many of those that have no dead letter are remembered: more than wait at once.
const REMEMBERED: usize = 20_000;

/// A hand-out of a group: its number, the partition, the offset.
pub(crate) type Place = (u64, u32, u64);

/// What became lately of deliveries that waited for their dead letters: the writer of dead letters says it, those who
/// reject wait for it.
#[derive(Debug, Default)]
pub(crate) struct DeadLettered {
    ended: Notify,
    /// Deliveries that ended without a dead letter, because the log no longer had the event.
    without: Mutex<(HashSet<Place>, VecDeque<Place>)>,
}

/// Rejected deliveries, by their place in the request, whose dead letters are not stored.
#[derive(Debug, Default)]
pub(super) struct NotStored {
    /// Their group was removed meanwhile, and everything of it; or the log no longer had the event.
    pub(super) gone: Vec<usize>,
    /// They are still to come.
    pub(super) waiting: Vec<usize>,
}

/// Where a delivery stands that waits for its dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stored,
    Waiting,
    Gone,
}

impl DeadLettered {
    /// A delivery ended.
    pub(crate) fn ended(&self) {
        self.ended.notify_waiters();
    }

    /// Waits until a delivery ends: to be enabled before it is looked whether one has.
    pub(crate) fn next(&self) -> tokio::sync::futures::Notified<'_> {
        self.ended.notified()
    }

    /// A delivery is about to end without a dead letter.
    pub(crate) fn without(&self, place: Place) {
        let mut guard = self.without.lock();
        let (places, order) = &mut *guard;
        if places.insert(place) {
            order.push_back(place);
        }
        if order.len() > REMEMBERED
            && let Some(oldest) = order.pop_front()
        {
            places.remove(&oldest);
        }
    }

    /// Waits until the dead letters of rejected deliveries are stored, or [`PATIENCE`] has passed.
    pub(super) async fn wait_for(
        &self,
        core: &Core,
        rejected: &[(usize, Arc<Group>, DeliveryRef)],
    ) -> NotStored {
        let until = core.clock.now().plus(PATIENCE);
        let mut not_stored = NotStored::default();
        let mut waiting: Vec<_> = rejected.iter().collect();
        loop {
            let next = self.next();
            let mut next = std::pin::pin!(next);
            next.as_mut().enable();
            waiting.retain(|(place, group, delivery)| match self.fate(core, group, delivery) {
                Fate::Waiting => true,
                Fate::Stored => false,
                Fate::Gone => {
                    not_stored.gone.push(*place);
                    false
                }
            });
            if waiting.is_empty() {
                return not_stored;
            }
            tokio::select! {
                () = next => {}
                () = core.clock.sleep_until(until) => break,
            }
        }
        not_stored.waiting = waiting.into_iter().map(|(place, ..)| *place).collect();
        not_stored
    }

    fn fate(&self, core: &Core, group: &Group, delivery: &DeliveryRef) -> Fate {
        if group.is_closed() {
            return Fate::Gone;
        }
        let mut state = core.enter(group, core.clock.now());
        if state.epoch != Some(core.ledger.epoch()) {
            return Fate::Waiting;
        }
        let place = (group.number, delivery.partition.0, delivery.offset.0);
        match state.lane(delivery.partition) {
            Some(lane) if lane.has(delivery.offset) => Fate::Waiting,
            Some(_) if self.without.lock().0.contains(&place) => Fate::Gone,
            Some(_) => Fate::Stored,
            None => Fate::Gone,
        }
    }
}
