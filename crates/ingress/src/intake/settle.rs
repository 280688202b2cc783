//! What a client says about its deliveries: ack, nack, extend, reject.

use std::{collections::HashMap, time::Duration};

use mesh_delivery::{Deliveries, SettleOutcome};
use mesh_frame::{Event, TopicName};
use mesh_gate::{Action, Admitted, Asks, Caller, Cost, Ownership, Principal, Resource};

use super::{Intake, entry::Incoming};

/// Deliveries that their caller may settle. Those of another principal are not there, unless the gate is open, and of
/// several those are left out that are of a topic which the caller may not have.
#[derive(Clone, Debug)]
pub struct UsableDeliveries {
    deliveries: Deliveries,
    /// The topic of each, where the gate wants to know; `None`: not a delivery of this mesh.
    topics: Vec<Option<TopicName>>,
    /// The places of those that are left out, in rising order.
    forbidden: Vec<usize>,
}

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is settled as asked.
    Done,
    /// There is no such delivery for the caller, or it was finished before.
    Unknown,
    /// It is of a topic that the caller may not have; nothing changed.
    Forbidden,
    /// The ledger cannot write; nothing changed.
    Unavailable {
        /// The disk is full.
        full: bool,
    },
}

/// Declares a request about deliveries: what it says of them is all that differs.
macro_rules! settling {
    ($(#[$doc:meta] $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* })*) => {$(
        #[$doc]
        #[derive(Clone, Debug)]
        pub struct $name {
            /// Which.
            pub deliveries: UsableDeliveries,
            $($(#[$field_doc])* pub $field: $kind,)*
        }

        impl Asks for $name {
            fn action(&self) -> Action {
                Action::Subscribe
            }

            fn resource(&self) -> Resource<'_> {
                Resource::Deliveries(&self.deliveries.topics)
            }

            fn cost(&self) -> Option<Cost> {
                None
            }
        }

        impl Incoming for $name {
            fn events(&self) -> &[Event] {
                &[]
            }
        }
    )*};
}

settling! {
    /// Says that deliveries are done.
    Ack {}
    /// Gives deliveries back for another attempt.
    Nack {
        /// When they are due again; `None`: after the backoff.
        delay: Option<Duration>,
        /// Why, for the dead letter.
        reason: Option<String>,
    }
    /// Keeps deliveries for longer.
    Extend {
        /// How long from now.
        by: Duration,
    }
    /// Makes deliveries dead letters.
    Reject {
        /// Why, for the dead letter.
        reason: Option<String>,
    }
}

impl UsableDeliveries {
    fn outcomes(&self, outcomes: Vec<SettleOutcome>) -> Vec<Settled> {
        let settled = |(place, outcome)| match outcome {
            SettleOutcome::Settled => Settled::Done,
            SettleOutcome::Unknown if self.forbidden.binary_search(&place).is_ok() => Settled::Forbidden,
            SettleOutcome::Unknown => Settled::Unknown,
            SettleOutcome::Unavailable { full } => Settled::Unavailable { full },
        };
        outcomes.into_iter().enumerate().map(settled).collect()
    }
}

impl Intake {
    /// What delivery ids stand for, as their caller may settle it.
    pub fn deliveries(&self, caller: &Caller, ids: &[String]) -> UsableDeliveries {
        let mut deliveries = self.dispatcher.resolve(caller.tenant(), ids);
        if self.gate.is_open() {
            return UsableDeliveries { deliveries, topics: Vec::new(), forbidden: Vec::new() };
        }
        self.hide_those_of_others(caller, &mut deliveries);
        let topics = deliveries.topics();
        let mut forbidden = Vec::new();
        if ids.len() > 1 {
            // One topic that the caller may have admits the request; the others are asked about one by one.
            let mut judged: HashMap<&TopicName, bool> = HashMap::new();
            for (place, topic) in topics.iter().enumerate() {
                let Some(topic) = topic else { continue };
                if !*judged.entry(topic).or_insert_with(|| self.gate.may_receive(caller, topic)) {
                    deliveries.hide(place);
                    forbidden.push(place);
                }
            }
        }
        UsableDeliveries { deliveries, topics, forbidden }
    }

    fn hide_those_of_others(&self, caller: &Caller, deliveries: &mut Deliveries) {
        let principal = caller.principal().map(Principal::as_str);
        let others = self.dispatcher.of_others(deliveries, principal);
        if others.is_empty() {
            return;
        }
        let topics = deliveries.topics();
        let its: Vec<Option<TopicName>> = others.iter().map(|place| topics[*place].clone()).collect();
        let asked = self.gate.not_owned(caller, Action::Subscribe, Resource::Deliveries(&its));
        if asked == Ownership::Hidden {
            for place in others {
                deliveries.hide(place);
            }
        }
    }

    /// Finishes deliveries; one outcome each, in their order.
    pub async fn ack(&self, admitted: Admitted<Ack>) -> Vec<Settled> {
        let (Ack { deliveries }, _) = admitted.into_parts();
        deliveries.outcomes(self.dispatcher.ack(&deliveries.deliveries).await)
    }

    /// Gives deliveries back for another attempt; one outcome each, in their order.
    pub async fn nack(&self, admitted: Admitted<Nack>) -> Vec<Settled> {
        let (Nack { deliveries, delay, reason }, _) = admitted.into_parts();
        let outcomes = self.dispatcher.nack(&deliveries.deliveries, delay, reason.as_deref()).await;
        deliveries.outcomes(outcomes)
    }

    /// Locks deliveries anew; one outcome each, in their order.
    pub async fn extend(&self, admitted: Admitted<Extend>) -> Vec<Settled> {
        let backlog = admitted.limits().backlog;
        let (Extend { deliveries, by }, _) = admitted.into_parts();
        deliveries.outcomes(self.dispatcher.extend(&deliveries.deliveries, by, backlog).await)
    }

    /// Makes deliveries dead letters, which are stored when this returns; one outcome each, in their order.
    pub async fn reject(&self, admitted: Admitted<Reject>) -> Vec<Settled> {
        let (Reject { deliveries, reason }, _) = admitted.into_parts();
        deliveries.outcomes(self.dispatcher.reject(&deliveries.deliveries, reason.as_deref()).await)
    }
}
