//! Waiting for the dead letters of a reject.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use crate::{SettleOutcome, dispatcher::Inner, group::Group, settle::delivery_id::DeliveryRef};

/// A reject waits no longer than this for its dead letters.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many of those that have no dead letter are remembered: more than wait at once.
const REMEMBERED: usize = 20_000;

/// A hand-out of a group: its number, the partition, the offset.
type Place = (u64, u32, u64);

/// What was condemned lately and ended without a dead letter, because the log no longer had the event.
#[derive(Debug, Default)]
pub(crate) struct Unburied(Mutex<(HashSet<Place>, VecDeque<Place>)>);

impl Unburied {
    pub(crate) fn add(&self, place: Place) {
        let mut guard = self.0.lock();
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

    fn has(&self, place: Place) -> bool {
        self.0.lock().0.contains(&place)
    }
}

/// Where a delivery stands that was condemned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Buried,
    Waiting,
    /// Its group was removed meanwhile, and everything of it; or the log no longer had its event.
    Gone,
}

impl Inner {
    /// Waits until the dead letters of rejected deliveries are stored. What is not by then shows as
    /// `Unavailable` in `outcomes`; the undertaker goes on with it.
    pub(crate) async fn await_burials(
        &self,
        rejected: &[(usize, Arc<Group>, DeliveryRef)],
        outcomes: &mut [SettleOutcome],
    ) {
        let until = self.clock.now().plus(PATIENCE);
        let mut waiting: Vec<_> = rejected.iter().collect();
        loop {
            let buried = self.buried_signal.notified();
            let mut buried = std::pin::pin!(buried);
            // From here on a burial is heard; those before it are seen below.
            buried.as_mut().enable();
            waiting.retain(|(place, group, delivery)| match self.fate(group, delivery) {
                Fate::Waiting => true,
                Fate::Buried => false,
                Fate::Gone => {
                    outcomes[*place] = SettleOutcome::Unknown;
                    false
                }
            });
            if waiting.is_empty() {
                return;
            }
            tokio::select! {
                () = buried => {}
                () = self.clock.sleep_until(until) => break,
            }
        }
        let full = self.positions.log().suspension() == Some(mesh_state::positions::CommitError::Full);
        for (place, _, _) in waiting {
            outcomes[*place] = SettleOutcome::Unavailable { full };
        }
    }

    fn fate(&self, group: &Group, delivery: &DeliveryRef) -> Fate {
        if group.is_closed() {
            return Fate::Gone;
        }
        let mut state = group.state.lock();
        // Lanes of an older view may be wrong either way: they are read again before anything is buried.
        if state.epoch != Some(self.positions.log().epoch()) {
            return Fate::Waiting;
        }
        match state.lane(delivery.partition) {
            Some(lane) if lane.has(delivery.offset) => Fate::Waiting,
            Some(_) if self.unburied.has((group.number, delivery.partition.0, delivery.offset.0)) => {
                Fate::Gone
            }
            Some(_) => Fate::Buried,
            None => Fate::Gone,
        }
    }
}
