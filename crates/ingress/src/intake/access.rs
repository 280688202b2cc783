//! Whose is it, before the gate is asked: clients and deliveries as their caller may see them.
//!
//! What belongs to another principal is not there for the caller, unless the gate is open; that is decided (and
//! counted and audited) by the gate, and enforced again where the client is used, so that a client which changes
//! hands in between is not used by the wrong one. What may be handed out is asked of the gate at each hand-out.

use std::{collections::HashMap, sync::Arc};

use mesh_delivery::{Deliveries, HandOutTerms, Receiver};
use mesh_frame::{ClientId, TopicName};
use mesh_gate::{Action, Caller, Ownership, Resource, SecurityGate};
use parking_lot::Mutex;
use thiserror::Error;

use super::Intake;

/// What is asked about belongs to somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("there is no such client")]
pub struct Hidden;

/// A client that its caller may use: the caller's own, nobody's, or not there at all.
#[derive(Clone, Debug)]
pub struct UsableClient {
    id: ClientId,
    topics: Vec<TopicName>,
    is_owned: bool,
    over_others: bool,
}

impl UsableClient {
    /// Whether there is such a client.
    pub fn is_there(&self) -> bool {
        !self.topics.is_empty()
    }

    /// Its id.
    pub fn id(&self) -> &ClientId {
        &self.id
    }

    /// Whether it is somebody's: the caller's, where the gate is closed.
    pub fn is_owned(&self) -> bool {
        self.is_owned
    }

    /// What it is subscribed to, as far as the gate wants to know.
    pub fn topics(&self) -> &[TopicName] {
        &self.topics
    }
}

impl Intake {
    /// The client of that id as the caller may use it for `operation`.
    ///
    /// # Errors
    /// [`Hidden`] when it is another principal's.
    pub fn client(&self, caller: &Caller, id: ClientId, operation: Action) -> Result<UsableClient, Hidden> {
        let holding = self.dispatcher.client(caller.tenant(), &id);
        let (owner, topics) =
            holding.map_or_else(Default::default, |holding| (holding.owner, holding.topics));
        let resource = Resource::Client(&id, &topics);
        let over_others = match self.gate.owns(caller, owner.as_deref(), operation, resource) {
            Ownership::Own => false,
            Ownership::OverOthers => true,
            Ownership::Hidden => return Err(Hidden),
        };
        Ok(UsableClient { id, topics, is_owned: owner.is_some(), over_others })
    }

    /// What delivery ids stand for. Those of another principal are not there, unless the gate is open.
    pub fn deliveries(&self, caller: &Caller, ids: &[String]) -> Deliveries {
        let mut deliveries = self.dispatcher.resolve(caller.tenant(), ids);
        if self.gate.is_open() {
            return deliveries;
        }
        let principal = caller.principal().map(mesh_gate::Principal::as_str);
        let others = self.dispatcher.of_others(&deliveries, principal);
        if !others.is_empty() {
            let topics = deliveries.topics();
            let its: Vec<Option<TopicName>> = others.iter().map(|place| topics[*place].clone()).collect();
            let asked = self.gate.not_owned(caller, Action::Subscribe, Resource::Deliveries(&its));
            if asked == Ownership::Hidden {
                for place in others {
                    deliveries.hide(place);
                }
            }
        }
        deliveries
    }

    /// The receiver that a caller is for a client.
    pub(super) fn receiver(&self, caller: &Caller, client: &UsableClient) -> Receiver {
        let principal = caller.principal().map(mesh_gate::Principal::as_str);
        let tenant = caller.tenant().clone();
        let receiver = if self.gate.is_open() && self.gate.backlog_limit(caller).is_none() {
            Receiver::anybody(tenant)
        } else {
            Receiver::new(tenant, principal, Arc::new(GateTerms::new(&self.gate, caller)))
        };
        if client.over_others { receiver.over_others() } else { receiver }
    }
}

/// The gate's word on what a caller may be handed, remembered while the rules stand.
struct GateTerms {
    gate: SecurityGate,
    caller: Caller,
    known: Mutex<(u64, HashMap<TopicName, bool>)>,
}

impl GateTerms {
    fn new(gate: &SecurityGate, caller: &Caller) -> Self {
        Self { gate: gate.clone(), caller: caller.clone(), known: Mutex::default() }
    }
}

impl HandOutTerms for GateTerms {
    fn may_receive(&self, topic: &TopicName) -> bool {
        let revision = self.gate.revision();
        let mut known = self.known.lock();
        if known.0 != revision {
            *known = (revision, HashMap::new());
        }
        if let Some(may) = known.1.get(topic) {
            return *may;
        }
        let may = self.gate.may_receive(&self.caller, topic);
        known.1.insert(topic.clone(), may);
        may
    }

    fn has_ended(&self) -> bool {
        self.gate.has_ended(&self.caller)
    }

    fn backlog_limit(&self) -> Option<u64> {
        self.gate.backlog_limit(&self.caller)
    }
}
