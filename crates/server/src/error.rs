//! [`ApiError`]: a failed request as its client is told, in every protocol.
//!
//! In JSON it is `{"error":"<code>","message":"<text>"}`. The code is for programs; the message is for people. What a
//! client can do better by waiting says for how long.

use std::time::Duration;

use mesh_base::nearest;
use mesh_frame::{EventError, EventErrorKind, NameError};

use crate::{ErrorCode, json_text::push_text};

/// An error as it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The code.
    pub code: ErrorCode,
    /// The message.
    pub message: String,
    /// When to try again, where that helps.
    pub retry_after: Option<Duration>,
    /// Whether the connection ends with the answer.
    pub closes: bool,
}

impl ApiError {
    /// An error. What is only unavailable now says when to try again.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let retry_after = is_temporary(code).then_some(Duration::from_secs(1));
        Self { code, message: message.into(), retry_after, closes: false }
    }

    /// An error that says when to try again.
    pub fn later(code: ErrorCode, message: impl Into<String>, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(code, message) }
    }

    /// A parameter or member that cannot be used.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }

    /// A parameter or member that is not there.
    pub fn missing(what: &str) -> Self {
        Self::new(ErrorCode::MissingParameter, format!("`{what}` is missing"))
    }

    /// A parameter or member that nobody knows. It is named with the nearest known one, and with all of them.
    pub fn unknown_name(of: &str, what: &str, name: &str, known: &[&str]) -> Self {
        let shown: String = name.chars().take(64).collect();
        let all: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
        Self::invalid(match (nearest(name, known.iter().copied()), known) {
            (_, []) => format!("{of} has no {what} `{shown}`; it takes none"),
            (None, _) => format!("{of} has no {what} `{shown}`; it has {}", all.join(", ")),
            (Some(meant), _) => {
                format!("{of} has no {what} `{shown}`; did you mean `{meant}`? It has {}", all.join(", "))
            }
        })
    }

    /// A name that is none; `what` says of what.
    pub fn of_name(what: &str, error: NameError) -> Self {
        let code = match error {
            NameError::Reserved => ErrorCode::ReservedTopic,
            NameError::Empty
            | NameError::TooLong { .. }
            | NameError::Character { .. }
            | NameError::Dots
            | NameError::Internal => ErrorCode::InvalidArgument,
        };
        Self::new(code, format!("`{what}`: {error}"))
    }

    /// The JSON of it.
    pub fn json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(64 + self.message.len());
        json.extend_from_slice(b"{\"error\":\"");
        json.extend_from_slice(self.code.as_str().as_bytes());
        json.extend_from_slice(b"\",\"message\":");
        push_text(&mut json, &self.message);
        json.push(b'}');
        json
    }
}

/// Whether the same request may succeed a moment later, with nothing changed by its client.
fn is_temporary(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::Overloaded
            | ErrorCode::LedgerUnavailable
            | ErrorCode::MetaUnavailable
            | ErrorCode::StorageUnavailable
            | ErrorCode::NotReady
            | ErrorCode::RateLimited
            | ErrorCode::QuotaExceeded
    )
}

impl From<EventError> for ApiError {
    fn from(error: EventError) -> Self {
        let code = match error.kind {
            EventErrorKind::Invalid => ErrorCode::InvalidEvent,
            EventErrorKind::ReservedAttribute => ErrorCode::ReservedAttribute,
            EventErrorKind::TooLarge => ErrorCode::TooLarge,
            EventErrorKind::UnsupportedMediaType => ErrorCode::UnsupportedMediaType,
        };
        Self::new(code, error.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_json_with_both_members() {
        let error = ApiError::invalid("a \"quoted\"\nword");
        assert_eq!(error.json(), br#"{"error":"invalid_argument","message":"a \"quoted\"\nword"}"#);
    }
}
