//! A subscribe request, setting by setting.

use serde_json::{Map, Value};

/// The body of a subscribe.
#[derive(Clone, Debug)]
pub struct Subscribe(Map<String, Value>);

impl Subscribe {
    /// A client on a topic in a mode; everything else as the server has it by default.
    fn new(client: &str, topic: &str, mode: &str) -> Self {
        Self(Map::new()).set("clientId", client).set("topic", topic).set("mode", mode)
    }

    /// A member of the topic's shared group.
    pub fn load_balance(client: &str, topic: &str) -> Self {
        Self::new(client, topic, "LOAD_BALANCE")
    }

    /// A client that gets every event.
    pub fn broadcast(client: &str, topic: &str) -> Self {
        Self::new(client, topic, "BROADCAST")
    }

    /// The same under the name that goes with filters.
    pub fn multicast(client: &str, topic: &str) -> Self {
        Self::new(client, topic, "MULTICAST")
    }

    /// Any member of the body.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// The shared group's name.
    #[must_use]
    pub fn group(self, name: &str) -> Self {
        self.set("group", name)
    }

    /// Where a new group starts.
    #[must_use]
    pub fn from(self, start: impl Into<Value>) -> Self {
        self.set("from", start)
    }

    /// How long a delivery may be kept.
    #[must_use]
    pub fn ack_timeout_ms(self, milliseconds: u64) -> Self {
        self.set("ackTimeoutMs", milliseconds)
    }

    /// The first and the longest wait before a redelivery.
    #[must_use]
    pub fn backoff_ms(self, first: u64, longest: u64) -> Self {
        self.set("backoffMs", first).set("maxBackoffMs", longest)
    }

    /// Hand-outs before the dead letters.
    #[must_use]
    pub fn max_attempts(self, attempts: u32) -> Self {
        self.set("maxAttempts", attempts)
    }

    /// How much the member may hold.
    #[must_use]
    pub fn max_in_flight(self, deliveries: u32) -> Self {
        self.set("maxInFlight", deliveries)
    }

    /// The body.
    pub fn body(&self) -> Value {
        Value::Object(self.0.clone())
    }
}
