//! What identifies a group: tenant, topic, kind and name. The kinds do not meet.

use std::fmt;

use mesh_frame::{GroupName, TenantId, TopicName};
use serde::{Deserialize, Serialize};

/// Whether the members of a group share its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GroupKind {
    /// Members share the events.
    #[serde(rename = "lb")]
    LoadBalance,
    /// Each client is a group of its own: broadcast and multicast alike.
    #[serde(rename = "bc")]
    Broadcast,
}

impl GroupKind {
    /// As keys spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LoadBalance => "lb",
            Self::Broadcast => "bc",
        }
    }

    /// The kind that keys spell so.
    pub fn read(text: &str) -> Option<Self> {
        [Self::LoadBalance, Self::Broadcast].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A group of subscribers of one topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId {
    /// Whose it is.
    pub tenant: TenantId,
    /// What it reads.
    pub topic: TopicName,
    /// Whether its members share.
    pub kind: GroupKind,
    /// Its name; of a broadcast group the client's.
    pub name: GroupName,
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.tenant, self.topic, self.kind.as_str(), self.name)
    }
}
