//! A delivery as a poll answers it.

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

/// One delivery. The event keeps the bytes it came in.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// What is acknowledged.
    pub delivery_id: String,
    /// The event as it was written.
    pub event: Box<RawValue>,
    /// Which hand-out this is, from 1.
    pub attempt: u32,
    /// The topic.
    pub topic: String,
    /// The group.
    pub group: String,
    /// The partition.
    pub partition: u32,
    /// The offset, as text on the wire.
    pub offset: String,
    /// The epoch of who delivered it, as text on the wire.
    pub epoch: String,
    /// Until when it is this client's, RFC 3339.
    pub locked_until: String,
    /// What the group was not given before it.
    #[serde(default)]
    pub gap: Option<Value>,
}

impl Delivery {
    /// The event as a value.
    ///
    /// # Panics
    /// When the event is not JSON, which a raw value always is.
    pub fn event(&self) -> Value {
        serde_json::from_str(self.event.get()).expect("a raw value is JSON")
    }

    /// The event's id; empty when it has none.
    pub fn id(&self) -> String {
        self.event()["id"].as_str().unwrap_or_default().to_owned()
    }

    /// The offset as a number.
    ///
    /// # Panics
    /// When the server sent something that is none.
    pub fn offset(&self) -> u64 {
        self.offset.parse().unwrap_or_else(|_| panic!("offset {:?} is no number", self.offset))
    }

    /// One attribute of the event with exactly the bytes it came in.
    pub fn raw(&self, attribute: &str) -> Option<String> {
        let members: std::collections::BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(self.event.get()).ok()?;
        members.get(attribute).map(|value| value.get().to_owned())
    }
}
