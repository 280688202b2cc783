//! What the session store keeps: agents, which agent a client is bound to, and sessions.

use mesh_frame::{ClientId, Epoch, InstanceId, NameError};
use serde::{Deserialize, Serialize};

use super::{SharedRecord, Unknown, keys, record};

/// Names of agents and sessions follow the rule for client ids.
macro_rules! session_noun {
    ($(#[$doc:meta])* $noun:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $noun(ClientId);

        impl $noun {
            /// The name with this text.
            ///
            /// # Errors
            /// [`NameError`] says which rule the text breaks.
            pub fn new(text: &str) -> Result<Self, NameError> {
                ClientId::new(text).map(Self)
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }
        }
    };
}

session_noun! {
    /// The name of an agent: 1–255 bytes of UTF-8 without control characters.
    AgentId
}
session_noun! {
    /// The name of a session: 1–255 bytes of UTF-8 without control characters.
    SessionId
}

/// Whether an agent takes work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum AgentStatus {
    /// Not yet.
    Pending,
    /// Yes.
    Ready,
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentRecord {
    /// The agent.
    pub agent_id: AgentId,
    /// The agent it belongs to.
    #[serde(default)]
    pub parent: Option<AgentId>,
    /// What it can do.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// How much it takes at a time.
    pub capacity: u32,
    /// How much it has.
    pub load: u32,
    /// Whether it takes work.
    pub status: AgentStatus,
    /// The instance it is connected to.
    pub owner: InstanceId,
    /// The term of that instance; set by the store.
    #[serde(with = "record::epoch", default)]
    pub epoch: Epoch,
    /// Its last heartbeat, in milliseconds since 1970 on the owner's clock: shown, never compared.
    pub heartbeat_ms: u64,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Which agent a client is bound to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BindingRecord {
    /// The agent.
    pub agent_id: AgentId,
    /// Since when, in milliseconds since 1970.
    pub bound_at_ms: u64,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A session of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRecord {
    /// Whose it is.
    pub client_id: ClientId,
    /// The agent it talks to.
    #[serde(default)]
    pub agent_id: Option<AgentId>,
    /// The instance that holds it.
    pub owner: InstanceId,
    /// The term of that instance; set by the store.
    #[serde(with = "record::epoch", default)]
    pub epoch: Epoch,
    /// Its last heartbeat, in milliseconds since 1970 on the owner's clock: shown, never compared.
    pub last_active_ms: u64,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A record that one instance holds for a term.
pub(crate) trait Held: SharedRecord {
    fn epoch(&self) -> Epoch;
    fn set_epoch(&mut self, epoch: Epoch);
}

macro_rules! shared {
    ($record:ident, $id:ident, $name:literal, $root:ident) => {
        impl SharedRecord for $record {
            type Id = $id;
            const NAME: &'static str = $name;

            fn key(id: &$id) -> String {
                keys::single(keys::$root, id.as_str())
            }

            fn read_key(key: &str) -> Option<$id> {
                $id::new(&keys::read_single(keys::$root, key)?).ok()
            }

            fn unknown_mut(&mut self) -> &mut Unknown {
                &mut self.unknown
            }
        }
    };
}

macro_rules! held {
    ($($record:ident),*) => {
        $(
            impl Held for $record {
                fn epoch(&self) -> Epoch {
                    self.epoch
                }

                fn set_epoch(&mut self, epoch: Epoch) {
                    self.epoch = epoch;
                }
            }
        )*
    };
}

shared!(AgentRecord, AgentId, "agent", AGENTS);
shared!(BindingRecord, ClientId, "binding", BINDINGS);
shared!(SessionRecord, SessionId, "session", SESSIONS);
held!(AgentRecord, SessionRecord);
