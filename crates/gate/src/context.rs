//! `RequestContext`: everything the gate judges a request by, in one immutable value.

use mesh_frame::{ClientId, TopicName};

use crate::{Action, Caller, Resource};

/// A request as the gate sees it: who ([`Caller`]: tenant, principal, roles, kind of credential, address,
/// protocol, trace), what it wants, and with what. Made once a request; nothing of it comes from an event.
#[derive(Clone, Debug)]
pub struct RequestContext {
    caller: Caller,
    operation: Action,
    topic: Option<TopicName>,
    client: Option<ClientId>,
    resource: String,
}

impl RequestContext {
    pub(crate) fn new(caller: Caller, operation: Action, resource: Resource<'_>, describe: bool) -> Self {
        let (topic, client) = match resource {
            Resource::Topic(topic) => (Some(topic.clone()), None),
            Resource::Client(client, _) => (None, Some(client.clone())),
            Resource::Deliveries(_) | Resource::Named(_) => (None, None),
        };
        let resource = if describe { resource.describe() } else { String::new() };
        Self { caller, operation, topic, client, resource }
    }

    /// Who.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) fn into_caller(self) -> Caller {
        self.caller
    }

    /// What is done.
    pub fn operation(&self) -> Action {
        self.operation
    }

    /// The topic, where it is one.
    pub fn topic(&self) -> Option<&TopicName> {
        self.topic.as_ref()
    }

    /// The client, where it is one's.
    pub fn client(&self) -> Option<&ClientId> {
        self.client.as_ref()
    }

    /// What it is done to, in few words; empty where nobody reads it.
    pub(crate) fn resource(&self) -> &str {
        &self.resource
    }
}
