//! What a caller may be allowed to do, and to what.

use mesh_frame::{ClientId, TopicName};

use crate::Cost;

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
    /// A topic. Rules are asked about it.
    Topic(&'a TopicName),
    /// A client with the topics it is subscribed to. Rules are asked about the topics: one of them that the
    /// caller may have is enough here, each is asked about again when something of it is handed out. A client
    /// without topics is let through to be told so.
    Client(&'a ClientId, &'a [TopicName]),
    /// Deliveries, by the topics they are of, one a delivery; `None`: not a delivery of this mesh. As with
    /// clients, one is enough here.
    Deliveries(&'a [Option<TopicName>]),
    /// An agent, a connector or an administered object. Rules are asked about its name.
    Named(&'a str),
}

impl Resource<'_> {
    /// The name in the audit log: what kind it is and which, in few words.
    pub fn describe(&self) -> String {
        match self {
            Self::Topic(topic) => format!("topic:{topic}"),
            Self::Client(client, _) => format!("client:{client}"),
            Self::Deliveries(topics) => {
                let first = topics.iter().flatten().next();
                let first = first.map_or_else(String::new, |topic| format!(" of topic:{topic}"));
                format!("{} deliveries{first}", topics.len())
            }
            Self::Named(name) => (*name).to_owned(),
        }
    }
}

/// A request that the gate is asked about. The type of the request says what is wanted, of what, and what that takes:
/// nobody can have a value admitted as something else than it is.
pub trait Asks {
    /// What the caller wants to do.
    fn action(&self) -> Action;

    /// What it is done to.
    fn resource(&self) -> Resource<'_>;

    /// What it takes from the rates of the topic and of the caller's tenant; `None`: nothing.
    fn cost(&self) -> Option<Cost>;
}
