//! Whose is it, before the gate is asked: clients as their caller may see them.
//!
//! What belongs to another principal is not there for the caller, unless the gate is open; that is decided (and
//! counted and audited) by the gate, and enforced again where the client is used, so that a client which changes
//! hands in between is not used by the wrong one. What may be handed out is asked of the gate at each hand-out.

use std::{collections::HashMap, sync::Arc};

use mesh_delivery::{HandOutTerms, Receiver};
use mesh_frame::{ClientId, TopicName};
use mesh_gate::{Action, Caller, Ownership, Principal, Resource, SecurityGate};
use parking_lot::Mutex;
use thiserror::Error;

use super::Intake;

/// What is asked about belongs to another principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("there is no such client")]
pub struct Hidden;

/// A client that its caller may use: it belongs to the caller, has no owner, or is not there at all.
#[derive(Clone, Debug)]
pub struct UsableClient {
    id: ClientId,
    topics: Vec<TopicName>,
    is_owned: bool,
    over_others: bool,
}

impl UsableClient {
    /// Its id.
    pub fn id(&self) -> &ClientId {
        &self.id
    }

    /// Whether it belongs to a principal: to the caller's, where the gate is closed.
    pub(super) fn is_owned(&self) -> bool {
        self.is_owned
    }

    /// What the gate is asked about when the client is used.
    pub(super) fn resource(&self) -> Resource<'_> {
        Resource::Client(&self.id, &self.topics)
    }
}

impl Intake {
    /// The client of that id as the caller may receive for it.
    ///
    /// # Errors
    /// [`Hidden`] when it is another principal's.
    pub fn client(&self, caller: &Caller, id: ClientId) -> Result<UsableClient, Hidden> {
        self.client_for(caller, id, Action::Subscribe)
    }

    /// The client of that id as the caller may end its subscriptions. A client that is not there is hidden too, unless
    /// the gate is open: nobody learns whether it belongs to another principal.
    ///
    /// # Errors
    /// [`Hidden`] when it is another principal's, or not there.
    pub fn client_to_unsubscribe(&self, caller: &Caller, id: ClientId) -> Result<UsableClient, Hidden> {
        let client = self.client_for(caller, id, Action::Unsubscribe)?;
        if client.topics.is_empty() && !self.gate.is_open() { Err(Hidden) } else { Ok(client) }
    }

    fn client_for(&self, caller: &Caller, id: ClientId, operation: Action) -> Result<UsableClient, Hidden> {
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

    /// The receiver that a caller is for a client.
    pub(super) fn receiver(&self, caller: &Caller, client: &UsableClient) -> Receiver {
        let principal = caller.principal().map(Principal::as_str);
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
