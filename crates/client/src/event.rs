//! What is published and what the server says to it.

use mesh_frame::{Event, EventBuilder, Limits, parse_structured};
use serde::Deserialize;

use crate::Error;

/// An event to be published.
///
/// Its rules are checked when it is published, here and again by the server. Setting an attribute or the data
/// again replaces it.
#[derive(Clone, Debug, PartialEq)]
pub struct OutgoingEvent {
    id: String,
    source: String,
    event_type: String,
    attributes: Vec<(String, Value)>,
    data: Data,
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Text(String),
    Integer(i32),
    Boolean(bool),
}

#[derive(Clone, Debug, PartialEq)]
enum Data {
    None,
    Json(String),
    Text(String),
    Binary(Vec<u8>),
}

impl OutgoingEvent {
    /// An event with what every event must have. `source` and `id` together must be unique for each event:
    /// consumers know a repeat by them.
    pub fn new(id: impl Into<String>, source: impl Into<String>, event_type: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            source: source.into(),
            event_type: event_type.into(),
            attributes: Vec::new(),
            data: Data::None,
        }
    }

    /// The same with an attribute that is text: `subject`, `time`, or an extension, whose name has only small
    /// letters and digits.
    #[must_use]
    pub fn attribute(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(name.into(), Value::Text(value.into()))
    }

    /// The same with an attribute that is a number.
    #[must_use]
    pub fn integer(self, name: impl Into<String>, value: i32) -> Self {
        self.with(name.into(), Value::Integer(value))
    }

    /// The same with an attribute that is `true` or `false`.
    #[must_use]
    pub fn boolean(self, name: impl Into<String>, value: bool) -> Self {
        self.with(name.into(), Value::Boolean(value))
    }

    /// The same with a key: events of one key stay in one partition and are delivered in order.
    #[must_use]
    pub fn partition_key(self, key: impl Into<String>) -> Self {
        self.attribute("partitionkey", key)
    }

    /// The same with a JSON value as its data, given as its text.
    #[must_use]
    pub fn json(self, text: impl Into<String>) -> Self {
        Self { data: Data::Json(text.into()), ..self }
    }

    /// The same with text as its data and the media type of it, which is not JSON.
    #[must_use]
    pub fn text(self, content_type: impl Into<String>, text: impl Into<String>) -> Self {
        let typed = self.attribute("datacontenttype", content_type);
        Self { data: Data::Text(text.into()), ..typed }
    }

    /// The same with bytes as its data and the media type of them.
    #[must_use]
    pub fn binary(self, content_type: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        let typed = self.attribute("datacontenttype", content_type);
        Self { data: Data::Binary(bytes.into()), ..typed }
    }

    fn with(mut self, name: String, value: Value) -> Self {
        self.attributes.retain(|(other, _)| *other != name);
        self.attributes.push((name, value));
        self
    }

    /// The event, checked.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the attribute that breaks a rule.
    pub fn check(&self) -> Result<Event, Error> {
        let mut builder = EventBuilder::new(&self.id, &self.source, &self.event_type);
        for (name, value) in &self.attributes {
            builder = match value {
                Value::Text(text) => builder.attribute(name, text),
                Value::Integer(number) => builder.integer(name, *number),
                Value::Boolean(flag) => builder.boolean(name, *flag),
            };
        }
        let builder = match &self.data {
            Data::None => builder,
            Data::Json(text) => builder.json(text),
            Data::Text(text) => builder.text(text),
            Data::Binary(bytes) => builder.binary(bytes),
        };
        builder.build().map_err(|error| Error::Invalid(error.to_string()))
    }
}

/// Reads an event in the JSON format of CloudEvents.
///
/// # Errors
/// [`Error::Invalid`] names the attribute that breaks a rule.
pub fn parse_event(json: &[u8]) -> Result<Event, Error> {
    parse_structured(json, &Limits::DEFAULT).map_err(|error| Error::Invalid(error.to_string()))
}

/// Where an event was stored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Published {
    /// The topic.
    pub topic: String,
    /// The partition of the topic.
    pub partition: u32,
    /// The position in the partition, a decimal number.
    pub offset: String,
}
