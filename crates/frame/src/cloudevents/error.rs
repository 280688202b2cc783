//! How reading an event from a client can fail.

use std::fmt;

use thiserror::Error;

use crate::frame::FrameError;

/// What kind of failure; each kind is answered differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventErrorKind {
    /// The event breaks a rule of CloudEvents or a limit of its attributes.
    Invalid,
    /// The event sets an attribute that only the server sets.
    ReservedAttribute,
    /// The data, or the whole event, is over its limit.
    TooLarge,
    /// The content type is none that carries events.
    UnsupportedMediaType,
}

/// Why an event was refused. The message is for the client: it names the attribute and shows no more of the
/// parser than a position.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct EventError {
    /// What kind of failure.
    pub kind: EventErrorKind,
    /// The attribute that is wrong, if it is one.
    pub attribute: Option<String>,
    /// Which event of a batch it is, counted from 0.
    pub index: Option<usize>,
    /// What is wrong, in a sentence.
    pub message: String,
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl EventError {
    pub(crate) fn new(kind: EventErrorKind, message: impl Into<String>) -> Self {
        Self { kind, attribute: None, index: None, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(EventErrorKind::Invalid, message)
    }

    /// The attribute `name` is wrong: `is_wrong` goes on from there.
    pub(crate) fn of_attribute(name: &str, is_wrong: impl fmt::Display) -> Self {
        // A name can be as long as the body.
        let shown: String = name.chars().take(256).collect();
        Self {
            message: format!("attribute `{shown}` {is_wrong}"),
            attribute: Some(shown),
            ..Self::invalid(String::new())
        }
    }

    /// The same failure as that of one event of a batch.
    pub(crate) fn at_index(self, index: usize) -> Self {
        Self { index: Some(index), message: format!("event {index} of the batch: {}", self.message), ..self }
    }
}

impl From<FrameError> for EventError {
    fn from(error: FrameError) -> Self {
        let kind = match error {
            FrameError::DataTooLarge { .. } | FrameError::FrameTooLarge { .. } => EventErrorKind::TooLarge,
            FrameError::Truncated
            | FrameError::Surplus { .. }
            | FrameError::Magic { .. }
            | FrameError::Version { .. }
            | FrameError::Kind { .. }
            | FrameError::NotText
            | FrameError::EmptyName
            | FrameError::Duplicate { .. }
            | FrameError::TooManyAttributes { .. }
            | FrameError::NameTooLong { .. }
            | FrameError::ValueTooLong { .. }
            | FrameError::AttributesTooLarge { .. } => EventErrorKind::Invalid,
        };
        Self::new(kind, error.to_string())
    }
}
