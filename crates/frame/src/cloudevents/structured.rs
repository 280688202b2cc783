//! Structured mode: one event as a JSON object.
//!
//! The object is read in one pass that borrows: each member stays a piece of the body until its place in the
//! frame is known. Strings without escapes and JSON data are copied once, from the body into the frame.

use std::{borrow::Cow, fmt, str};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::{error::Category, value::RawValue};

use super::{
    binary::reserved,
    draft::Draft,
    error::EventError,
    rules::{Setter, is_core, setter_of},
};
use crate::{
    data_form::DataForm,
    event::Event,
    frame::{ATTRIBUTE_HEADER, HEADER, first_duplicate},
    limits::{Limits, SERVER_ATTRIBUTES},
    media_type::{DEEPEST_JSON, is_json, is_too_deep},
    types::AttributeType,
};

/// Reads one event in structured JSON.
///
/// A member that is `null` counts as absent, except `data`, whose `null` is a value. Integers and Booleans
/// keep their type. JSON data keeps its text; under a type that is not JSON a string is text and anything
/// else stays the JSON value that it is.
///
/// # Errors
///
/// [`EventError`] names the attribute, or the position where the body is no longer JSON. An array is refused
/// with a hint to the route for batches, a JSON-RPC request with one to the A2A gateway.
pub fn parse_structured(body: &[u8], limits: &Limits) -> Result<Event, EventError> {
    let text = text_of(body)?;
    match first_token(text) {
        Some(b'{') => {}
        Some(b'[') => {
            return Err(EventError::invalid(
                "the body is an array; post a batch of events to the route for batches (/events/publish-batch)",
            ));
        }
        Some(_) => return Err(EventError::invalid("the body is not a JSON object")),
        None => return Err(EventError::invalid("the body is empty; it must be an event as a JSON object")),
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let event = EventSeed { limits }.deserialize(&mut json).map_err(|error| json_error(&error))??;
    json.end().map_err(|error| json_error(&error))?;
    Ok(event)
}

/// The body as text.
pub(super) fn text_of(body: &[u8]) -> Result<&str, EventError> {
    let text = str::from_utf8(body).map_err(|error| {
        EventError::invalid(format!("the body is not UTF-8 at byte {}", error.valid_up_to()))
    })?;
    if text.starts_with('\u{feff}') {
        return Err(EventError::invalid("the body begins with a byte order mark, which JSON must not have"));
    }
    Ok(text)
}

/// The first byte that is not white space.
pub(super) fn first_token(text: &str) -> Option<u8> {
    text.bytes().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
}

/// What the client is told when the body is not JSON: where, and nothing about the parser.
pub(super) fn json_error(error: &serde_json::Error) -> EventError {
    let (line, column) = (error.line(), error.column());
    EventError::invalid(match error.classify() {
        Category::Data => "an event must be a JSON object".to_owned(),
        Category::Eof => format!("the JSON ends too early, at line {line}, column {column}"),
        Category::Syntax | Category::Io => format!("the body is not JSON at line {line}, column {column}"),
    })
}

/// Reads one event from within a JSON text. JSON that is none is the deserializer's error; an event that is
/// refused is the value.
pub(super) struct EventSeed<'a> {
    pub(super) limits: &'a Limits,
}

impl<'de> DeserializeSeed<'de> for EventSeed<'_> {
    type Value = Result<Event, EventError>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EventSeed<'_> {
    type Value = Result<Event, EventError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        // Attributes, what a client passes on of the server's, and the two names of data.
        let most = self.limits.attribute_count + SERVER_ATTRIBUTES + 2;
        let mut members = Vec::with_capacity(16);
        let mut surplus = None;
        while let Some(name) = map.next_key_seed(NameSeed)? {
            let value: &'de RawValue = map.next_value()?;
            if members.len() < most {
                members.push(Member { name, value: value.get() });
            } else if surplus.is_none() {
                let limit = self.limits.attribute_count;
                surplus = Some(EventError::of_attribute(
                    &name,
                    format_args!("is too much: more than {limit} attributes"),
                ));
            }
        }
        let event = match surplus {
            Some(error) => Err(error),
            None => event_of(&members, self.limits),
        };
        Ok(event.map_err(|error| hint_at_json_rpc(error, &members)))
    }
}

/// A member of the object: its name, and its value as JSON text.
struct Member<'a> {
    name: Cow<'a, str>,
    value: &'a str,
}

impl Member<'_> {
    /// How many bytes of the frame it takes: exactly so where nothing is escaped, else no fewer.
    fn size_in_frame(&self) -> usize {
        match self.name.as_ref() {
            "data" => self.value.len(),
            "data_base64" => self.value.len() / 4 * 3,
            // Counted with every draft.
            "specversion" => 0,
            _ if self.value == "null" => 0,
            name => {
                let quotes = if self.value.starts_with('"') { 2 } else { 0 };
                name.len() + self.value.len() - quotes + ATTRIBUTE_HEADER
            }
        }
    }
}

/// Reads a name, borrowing it when it has no escapes.
struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for NameSeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

/// Agents sometimes post their calls here; they are told where those belong.
fn hint_at_json_rpc(error: EventError, members: &[Member<'_>]) -> EventError {
    if members.iter().any(|member| member.name == "jsonrpc") {
        return EventError::invalid(
            "this is a JSON-RPC message, not an event: send calls of agents to the A2A gateway on its own port \
             (/a2a/tasks/send)",
        );
    }
    error
}

fn event_of(members: &[Member<'_>], limits: &Limits) -> Result<Event, EventError> {
    if let Some(name) = first_duplicate(members.iter().map(|member| member.name.as_ref())) {
        return Err(EventError::of_attribute(name, "is given twice"));
    }
    let size: usize = members.iter().map(Member::size_in_frame).sum();
    let mut draft = Draft::new(limits, HEADER + size);
    let (mut data, mut data_base64, mut content_type) = (None, None, None);
    for Member { name, value } in members {
        match name.as_ref() {
            "data" => data = Some(*value),
            _ if *value == "null" => {}
            "data_base64" => data_base64 = Some(*value),
            name => match setter_of(name) {
                Setter::Server => return Err(reserved(name)),
                Setter::ServerSilently => {}
                Setter::Client => {
                    let (text, attribute_type) = attribute_value(name, value)?;
                    draft.attribute(name, &text, attribute_type)?;
                    if name == "datacontenttype" {
                        content_type = Some(text);
                    }
                }
            },
        }
    }
    match (data, data_base64) {
        (Some(_), Some(_)) => Err(EventError::invalid("an event has `data` or `data_base64`, not both")),
        (None, None) => draft.finish(DataForm::None, 0, |_| Ok(())),
        (None, Some(value)) => finish_with_base64(draft, value),
        (Some(value), None) if value.starts_with('"') && content_type.is_some_and(|of| !is_json(&of)) => {
            let text = string_of(value)
                .ok_or_else(|| EventError::invalid("`data` has a Unicode escape that is not a character"))?;
            draft.finish(DataForm::Text, text.len(), |buffer| {
                buffer.extend_from_slice(text.as_bytes());
                Ok(())
            })
        }
        (Some(value), None) if is_too_deep(value.as_bytes()) => {
            Err(EventError::invalid(format!("`data` is nested deeper than {DEEPEST_JSON}")))
        }
        (Some(value), None) => draft.finish(DataForm::Json, value.len(), |buffer| {
            buffer.extend_from_slice(value.as_bytes());
            Ok(())
        }),
    }
}

fn finish_with_base64(draft: Draft<'_>, value: &str) -> Result<Event, EventError> {
    let bad = || EventError::invalid("`data_base64` is not Base64 (standard alphabet, padded)");
    if !value.starts_with('"') {
        return Err(EventError::invalid("`data_base64` must be a string"));
    }
    let text = string_of(value).ok_or_else(bad)?;
    let padding = text.bytes().rev().take(2).filter(|byte| *byte == b'=').count();
    let size = (text.len() / 4 * 3).saturating_sub(padding);
    draft.finish(DataForm::Binary, size, |buffer| {
        STANDARD.decode_vec(text.as_bytes(), buffer).map_err(|_| bad())
    })
}

/// The canonical text and the type of an attribute's value.
fn attribute_value<'a>(
    name: &str,
    value: &'a str,
) -> Result<(Cow<'a, str>, Option<AttributeType>), EventError> {
    if value.starts_with('"') {
        let text = string_of(value)
            .ok_or_else(|| EventError::of_attribute(name, "has a Unicode escape that is not a character"))?;
        return Ok((text, None));
    }
    if is_core(name) {
        return Err(EventError::of_attribute(name, "must be a string"));
    }
    match value.parse::<i32>() {
        _ if matches!(value, "true" | "false") => Ok((Cow::Borrowed(value), Some(AttributeType::Boolean))),
        Ok(0) => Ok((Cow::Borrowed("0"), Some(AttributeType::Integer))),
        Ok(_) => Ok((Cow::Borrowed(value), Some(AttributeType::Integer))),
        Err(_) => Err(EventError::of_attribute(name, "must be a string, a Boolean or a 32-bit integer")),
    }
}

/// The text of a JSON string; `None` if it has half a surrogate pair.
fn string_of(value: &str) -> Option<Cow<'_, str>> {
    let text = &value[1..value.len() - 1];
    if memchr::memchr(b'\\', text.as_bytes()).is_none() {
        return Some(Cow::Borrowed(text));
    }
    serde_json::from_str(value).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests;
