//! What is received.

use std::collections::BTreeMap;

use mesh_frame::{
    Event, EventError, EventErrorKind, Limits, SERVER_ATTRIBUTE_BYTES, SERVER_ATTRIBUTES, parse_structured,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Error;

/// Names one hand-out of one event to one client; a redelivery has another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeliveryId(pub String);

impl From<&Delivery> for DeliveryId {
    fn from(delivery: &Delivery) -> Self {
        delivery.id.clone()
    }
}

impl From<&Self> for DeliveryId {
    fn from(id: &Self) -> Self {
        id.clone()
    }
}

impl From<&str> for DeliveryId {
    fn from(id: &str) -> Self {
        Self(id.to_owned())
    }
}

impl From<String> for DeliveryId {
    fn from(id: String) -> Self {
        Self(id)
    }
}

impl std::fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// An event that was handed to this client, until it is settled or its lock runs out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// What it is settled by.
    pub id: DeliveryId,
    /// The event, with its data as it was published.
    pub event: Event,
    /// How often the event was handed out, this time included.
    pub attempt: u32,
    /// Its topic.
    pub topic: String,
    /// The group that it was handed out for.
    pub group: String,
    /// The partition of the topic.
    pub partition: u32,
    /// The position in the partition, a decimal number.
    pub offset: String,
    /// The incarnation of the server that handed it out, a decimal number.
    pub epoch: String,
    /// Until when it is this client's, an RFC 3339 time in UTC; afterwards it comes again.
    pub locked_until: String,
    /// What the group was not given before it, because it is gone; `None`, as nearly always: nothing.
    pub gap: Option<Gap>,
}

/// Events that a group was not given.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Gap {
    /// The first position that was skipped, a decimal number.
    pub from: String,
    /// The one behind the last.
    pub to: String,
    /// `dropped_backlog`: the backlog of the topic passed its limits; `gone`: the log no longer has them.
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    delivery_id: DeliveryId,
    event: Box<RawValue>,
    attempt: u32,
    topic: String,
    group: String,
    partition: u32,
    offset: String,
    epoch: String,
    locked_until: String,
    #[serde(default)]
    gap: Option<Gap>,
}

impl Delivery {
    pub(crate) fn parse(json: &[u8]) -> Result<Self, Error> {
        Self::of_wire(serde_json::from_slice(json).map_err(unreadable)?)
    }

    pub(crate) fn parse_list(json: &[u8]) -> Result<Vec<Self>, Error> {
        let list: Vec<Wire> = serde_json::from_slice(json).map_err(unreadable)?;
        list.into_iter().map(Self::of_wire).collect()
    }

    fn of_wire(wire: Wire) -> Result<Self, Error> {
        let event = event(wire.event.get())
            .map_err(|error| Error::Answer(format!("the event of delivery {}: {error}", wire.delivery_id)))?;
        Ok(Self {
            id: wire.delivery_id,
            event,
            attempt: wire.attempt,
            topic: wire.topic,
            group: wire.group,
            partition: wire.partition,
            offset: wire.offset,
            locked_until: wire.locked_until,
            epoch: wire.epoch,
            gap: wire.gap,
        })
    }
}

/// The event, with the attributes that the server added to it.
fn event(json: &str) -> Result<Event, EventError> {
    let reserved = match parse_structured(json.as_bytes(), &ROOMY) {
        Err(error) if error.kind == EventErrorKind::ReservedAttribute => error,
        parsed => return parsed,
    };
    // Only the server sets these, so what reads published events refuses them: they are put aside meanwhile.
    let Ok(mut members) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(json) else {
        return Err(reserved);
    };
    let mut aside: Vec<(String, String)> = Vec::new();
    let mut refused = reserved;
    loop {
        let Some((name, value)) = refused.attribute.as_ref().and_then(|name| members.remove_entry(name))
        else {
            return Err(refused);
        };
        let text = serde_json::from_str::<String>(value.get()).unwrap_or_else(|_| value.get().to_owned());
        aside.push((name, text));
        let rest = serde_json::to_vec(&members).expect("a map of JSON values is JSON");
        match parse_structured(&rest, &ROOMY) {
            Ok(event) => {
                let aside: Vec<(&str, &str)> =
                    aside.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
                return Ok(event.with_attributes(&aside));
            }
            Err(error) if error.kind == EventErrorKind::ReservedAttribute => refused = error,
            Err(error) => return Err(error),
        }
    }
}

/// What a published event may have and what the server may add.
const ROOMY: Limits = Limits {
    attribute_count: Limits::DEFAULT.attribute_count + SERVER_ATTRIBUTES,
    attributes_bytes: Limits::DEFAULT.attributes_bytes + SERVER_ATTRIBUTE_BYTES,
    ..Limits::DEFAULT
};

pub(crate) fn unreadable(error: serde_json::Error) -> Error {
    Error::Answer(error.to_string())
}
