//! Batched mode: a JSON array of structured events.
//!
//! One malformed event refuses the whole batch, with its index; an empty array is a batch of none.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

use super::{
    error::EventError,
    structured::{EventSeed, first_token, json_error, text_of},
};
use crate::{event::Event, limits::Limits};

/// Reads a batch of events. Each is held to the limits; the size of the whole is up to the caller.
///
/// # Errors
///
/// [`EventError`] of the first event that is refused, with its index from 0. An object instead of an array
/// is refused with a hint to the route for single events.
pub fn parse_batch(body: &[u8], limits: &Limits) -> Result<Vec<Event>, EventError> {
    let text = text_of(body)?;
    match first_token(text) {
        Some(b'[') => {}
        Some(b'{') => {
            return Err(EventError::invalid(
                "a batch is a JSON array of events; post a single event to the route for single events \
                 (/events/publish)",
            ));
        }
        Some(_) => return Err(EventError::invalid("the body is not a JSON array of events")),
        None => return Err(EventError::invalid("the body is empty; it must be a JSON array of events")),
    }
    let mut progress = Progress { index: 0, is_within: false, refused: None };
    let mut json = serde_json::Deserializer::from_str(text);
    let parsed = json.deserialize_seq(BatchVisitor { limits, progress: &mut progress });
    match parsed.and_then(|events| json.end().map(|()| events)) {
        Ok(events) => Ok(events),
        Err(error) => {
            let refused = progress.refused.unwrap_or_else(|| json_error(&error));
            Err(if progress.is_within { refused.at_index(progress.index) } else { refused })
        }
    }
}

/// Where in the batch the parser is, and why it stopped if an event was refused.
struct Progress {
    index: usize,
    is_within: bool,
    refused: Option<EventError>,
}

struct BatchVisitor<'a> {
    limits: &'a Limits,
    progress: &'a mut Progress,
}

impl<'de> Visitor<'de> for BatchVisitor<'_> {
    type Value = Vec<Event>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut events = Vec::new();
        loop {
            self.progress.index = events.len();
            self.progress.is_within = true;
            let element = Element { limits: self.limits, refused: &mut self.progress.refused };
            match elements.next_element_seed(element)? {
                Some(event) => events.push(event),
                None => {
                    self.progress.is_within = false;
                    return Ok(events);
                }
            }
        }
    }
}

/// One element; what is refused stops the parser, the reason waits in `refused`.
struct Element<'a> {
    limits: &'a Limits,
    refused: &'a mut Option<EventError>,
}

impl<'de> DeserializeSeed<'de> for Element<'_> {
    type Value = Event;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Event, D::Error> {
        match (EventSeed { limits: self.limits }).deserialize(deserializer)? {
            Ok(event) => Ok(event),
            Err(error) => {
                *self.refused = Some(error);
                Err(D::Error::custom("refused"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventErrorKind, parse_structured};

    const EVENT: &str = r#"{"specversion":"1.0","id":"1","source":"/t","type":"t.e","data":{"n":1}}"#;

    fn parse(body: &str) -> Result<Vec<Event>, EventError> {
        parse_batch(body.as_bytes(), &Limits::DEFAULT)
    }

    #[test]
    fn a_batch_gives_what_its_events_give_alone() {
        let alone = parse_structured(EVENT.as_bytes(), &Limits::DEFAULT).expect("legal");
        assert_eq!(parse(&format!("[{EVENT} , {EVENT}]")), Ok(vec![alone.clone(), alone]));
        assert_eq!(parse(" [ ] "), Ok(Vec::new()));
    }

    #[test]
    fn the_wrong_route_is_told_which_is_the_right_one() {
        // covers: U16
        assert!(parse(EVENT).expect_err("an object").message.contains("/events/publish"));
        let single = parse_structured(format!("[{EVENT}]").as_bytes(), &Limits::DEFAULT);
        assert!(single.expect_err("an array").message.contains("/events/publish-batch"));
    }

    #[test]
    fn a_refused_event_is_named_by_its_index() {
        let cases = [
            (format!("[{EVENT},{EVENT},{{}}]"), Some(2), "specversion"),
            (format!("[{EVENT},7]"), Some(1), "object"),
            (format!("[[{EVENT}]]"), Some(0), "object"),
            (format!("[{EVENT},null]"), Some(1), "object"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#.to_owned(), Some(0), "A2A"),
            (format!("[{EVENT},{{\"id\":"), Some(1), "JSON"),
            (format!("[{EVENT}] x"), None, "JSON"),
            ("7".to_owned(), None, "array"),
            (String::new(), None, "empty"),
        ];
        for (body, index, word) in cases {
            let error = parse(&body).expect_err("refused");
            assert_eq!((error.kind, error.index), (EventErrorKind::Invalid, index), "{body}: {error}");
            assert!(error.message.contains(word), "{body}: {error}");
        }
        assert!(parse(&format!("[{EVENT},{{}}]")).expect_err("refused").message.contains("event 1"));
    }
}
