//! What a client wants to receive, and how.

use std::{collections::BTreeMap, time::Duration};

use mesh_frame::Filter;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Who shares the events of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The members of a group share them: each event goes to one of them.
    LoadBalance,
    /// Each client gets everything.
    Broadcast,
    /// Each client gets everything; the same as [`Mode::Broadcast`] under its other name.
    Multicast,
}

impl Mode {
    const fn word(self) -> &'static str {
        match self {
            Self::LoadBalance => "LOAD_BALANCE",
            Self::Broadcast => "BROADCAST",
            Self::Multicast => "MULTICAST",
        }
    }
}

/// Where a group begins that the subscription makes; a group that exists stays where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// With events that are stored after the answer.
    Latest,
    /// With the oldest event that is kept.
    Earliest,
    /// With the first event that was stored at or after this RFC 3339 time.
    Time(String),
    /// With these offsets, by partition.
    Offsets(BTreeMap<u32, u64>),
}

impl Start {
    fn json(&self) -> Value {
        match self {
            Self::Latest => json!("latest"),
            Self::Earliest => json!("earliest"),
            Self::Time(time) => json!(time),
            Self::Offsets(offsets) => {
                let offsets: BTreeMap<String, String> = offsets
                    .iter()
                    .map(|(partition, offset)| (partition.to_string(), offset.to_string()))
                    .collect();
                json!({ "offsets": offsets })
            }
        }
    }
}

/// When a delivery is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckMode {
    /// When it is acknowledged; else it comes again. At least once.
    Explicit,
    /// When it is handed out. At most once.
    Auto,
}

/// Asks to make a client a member of a group of a topic.
///
/// What is not set is left to the server: a new group gets its defaults, an existing one keeps its settings.
/// Values out of range are refused by the server with the range.
#[derive(Clone, Debug, PartialEq)]
pub struct SubscribeRequest {
    body: Map<String, Value>,
}

impl SubscribeRequest {
    /// A subscription of `client_id` to `topic` with nothing else said.
    pub fn new(client_id: &str, topic: &str, mode: Mode) -> Self {
        Self { body: Map::new() }.with("clientId", client_id).with("topic", topic).with("mode", mode.word())
    }

    /// The group to share with, for [`Mode::LoadBalance`].
    #[must_use]
    pub fn group(self, name: &str) -> Self {
        self.with("group", name)
    }

    /// Which events are wanted: those for which all of these are true.
    #[must_use]
    pub fn filters(self, filters: &[Filter]) -> Self {
        self.with("filters", filters.iter().map(Filter::to_json).collect::<Vec<_>>())
    }

    /// Where a new group begins.
    #[must_use]
    pub fn from(self, start: &Start) -> Self {
        self.with("from", start.json())
    }

    /// When a delivery is finished.
    #[must_use]
    pub fn ack(self, ack: AckMode) -> Self {
        let word = match ack {
            AckMode::Explicit => "explicit",
            AckMode::Auto => "auto",
        };
        self.with("ack", word)
    }

    /// How long a delivery stays with the client before it counts as failed; whole milliseconds.
    #[must_use]
    pub fn ack_timeout(self, time: Duration) -> Self {
        self.with("ackTimeoutMs", milliseconds(time))
    }

    /// How often an event is handed out before it becomes a dead letter; 0 is without limit.
    #[must_use]
    pub fn max_attempts(self, attempts: u32) -> Self {
        self.with("maxAttempts", attempts)
    }

    /// The first and the longest wait before a redelivery; whole milliseconds.
    #[must_use]
    pub fn backoff(self, first: Duration, longest: Duration) -> Self {
        self.with("backoffMs", milliseconds(first)).with("maxBackoffMs", milliseconds(longest))
    }

    /// How many unsettled deliveries this member holds at most.
    #[must_use]
    pub fn max_in_flight(self, deliveries: u32) -> Self {
        self.with("maxInFlight", deliveries)
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.body.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn json(&self) -> Vec<u8> {
        Value::Object(self.body.clone()).to_string().into_bytes()
    }
}

/// What a subscription came to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Subscription {
    /// Names the membership; the same for the same client, topic and group.
    pub subscription_id: String,
    /// The group.
    #[serde(default)]
    pub group: String,
    /// Whether the subscription made the group. A group that was there goes on where it is, whatever `from` asked for.
    #[serde(default)]
    pub created: bool,
    /// The offset that the group began with, by partition, as decimal numbers.
    #[serde(default)]
    pub start: BTreeMap<String, String>,
}

/// Asks to end memberships of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsubscribeRequest {
    pub(crate) client_id: String,
    topic: Option<String>,
    group: Option<String>,
    delete_group: bool,
}

impl UnsubscribeRequest {
    /// All memberships of a client.
    pub fn new(client_id: &str) -> Self {
        Self { client_id: client_id.to_owned(), topic: None, group: None, delete_group: false }
    }

    /// Only those of this topic.
    #[must_use]
    pub fn topic(self, topic: &str) -> Self {
        Self { topic: Some(topic.to_owned()), ..self }
    }

    /// Only the one in this group.
    #[must_use]
    pub fn group(self, group: &str) -> Self {
        Self { group: Some(group.to_owned()), ..self }
    }

    /// Also gives up the group's position and what it has not received, when this was its last member.
    #[must_use]
    pub fn delete_group(self) -> Self {
        Self { delete_group: true, ..self }
    }

    pub(crate) fn json(&self) -> Vec<u8> {
        let mut body = json!({ "clientId": self.client_id });
        if let Some(topic) = &self.topic {
            body["topic"] = json!(topic);
        }
        if let Some(group) = &self.group {
            body["group"] = json!(group);
        }
        if self.delete_group {
            body["deleteGroup"] = json!(true);
        }
        body.to_string().into_bytes()
    }
}

pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
