//! What a caller may be allowed to do, and to what.

use mesh_frame::{ClientId, TopicName};

/// What a caller wants to do. Rules name these, or all of them but [`Action::Admin`] at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Publish events.
    Publish,
    /// Receive events: subscribe, poll, stream, and settle what was received.
    Subscribe,
    /// End a subscription; whose it is decides, no rule is asked.
    Unsubscribe,
    /// Request and reply.
    Request,
    /// Manage connectors.
    Connector,
    /// Speak as an agent.
    A2a,
    /// Administer the mesh.
    Admin,
}

impl Action {
    /// The name in rules, messages and the audit log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Publish => "PUBLISH",
            Self::Subscribe => "SUBSCRIBE",
            Self::Unsubscribe => "UNSUBSCRIBE",
            Self::Request => "REQUEST",
            Self::Connector => "CONNECTOR",
            Self::A2a => "A2A",
            Self::Admin => "ADMIN",
        }
    }
}

/// What the action is done to.
#[derive(Clone, Copy, Debug)]
pub enum Resource<'a> {
    /// A topic.
    Topic(&'a TopicName),
    /// A client and whatever it is subscribed to.
    Client(&'a ClientId),
    /// Deliveries, by the ids they were handed out with.
    Deliveries(&'a [String]),
    /// An agent, a connector or an administered object.
    Named(&'a str),
}
