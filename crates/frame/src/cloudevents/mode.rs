//! Which of the three ways a request carries events.

use super::error::{EventError, EventErrorKind};
use crate::media_type::essence;

/// How a request carries events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContentMode {
    /// The body is one event.
    Structured,
    /// The body is an array of events.
    Batch,
    /// Attributes are in `ce-` headers, the body is the data.
    Binary,
}

impl ContentMode {
    /// The mode of a request by its `Content-Type` and whether it has a `ce-specversion` header.
    ///
    /// `application/json` without `ce-specversion` is structured; a route that takes batches reads it as one.
    ///
    /// # Errors
    ///
    /// [`EventErrorKind::UnsupportedMediaType`] for an event format other than JSON, and for what carries no
    /// event at all; it is never wrapped into one.
    pub fn of(content_type: Option<&str>, has_ce_specversion: bool) -> Result<Self, EventError> {
        let unsupported =
            |message: String| Err(EventError::new(EventErrorKind::UnsupportedMediaType, message));
        let media_type = essence(content_type.unwrap_or_default());
        // As nearly everybody spells it.
        if media_type == "application/cloudevents+json" {
            return Ok(Self::Structured);
        }
        let media_type = media_type.to_ascii_lowercase();
        match media_type.as_str() {
            "application/cloudevents+json" => Ok(Self::Structured),
            "application/cloudevents-batch+json" => Ok(Self::Batch),
            other if other.starts_with("application/cloudevents") => unsupported(format!(
                "events come as application/cloudevents+json or application/cloudevents-batch+json, not as {:?}",
                shortened(other)
            )),
            _ if has_ce_specversion => Ok(Self::Binary),
            "application/json" => Ok(Self::Structured),
            "" => unsupported(
                "there is no Content-Type: send an event as application/cloudevents+json, or its attributes as \
                 ce- headers, ce-specversion among them"
                    .to_owned(),
            ),
            other => unsupported(format!(
                "{:?} is no event: send one as application/cloudevents+json, or its attributes as ce- headers, \
                 ce-specversion among them",
                shortened(other)
            )),
        }
    }
}

fn shortened(media_type: &str) -> String {
    media_type.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_follows_from_content_type_and_specversion() {
        // covers: U14, U26
        use ContentMode::{Batch, Binary, Structured};
        let cases = [
            (Some("application/cloudevents+json"), false, Some(Structured)),
            (Some("Application/CloudEvents+JSON; charset=utf-8"), false, Some(Structured)),
            (Some("application/cloudevents+json"), true, Some(Structured)),
            (Some("application/cloudevents-batch+json;charset=utf-8"), true, Some(Batch)),
            (Some("application/json"), false, Some(Structured)),
            (Some("application/json; charset=utf-8"), true, Some(Binary)),
            (Some("text/plain"), true, Some(Binary)),
            (None, true, Some(Binary)),
            (Some("application/cloudevents+avro"), true, None),
            (Some("application/cloudevents-batch+xml"), false, None),
            (Some("application/cloudevents"), false, None),
            (Some("text/plain"), false, None),
            (Some("application/x-www-form-urlencoded"), false, None),
            (Some(""), false, None),
            (None, false, None),
        ];
        for (content_type, has_specversion, expected) in cases {
            let mode = ContentMode::of(content_type, has_specversion);
            match expected {
                Some(expected) => assert_eq!(mode, Ok(expected), "{content_type:?}"),
                None => {
                    let error = mode.expect_err("no mode");
                    assert_eq!(error.kind, EventErrorKind::UnsupportedMediaType, "{content_type:?}");
                    assert!(error.message.contains("application/cloudevents+json"), "{error}");
                }
            }
        }
    }
}
