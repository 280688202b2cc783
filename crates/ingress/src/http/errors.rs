//! Every error the HTTP edges answer, in one closed list, and how each failure of the inside becomes one.
//!
//! An error is `{"error":"<code>","message":"<text>"}`. The code is for programs and never changes its meaning;
//! the message is for people. What a client can do better by waiting carries `Retry-After`.

use std::time::Duration;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};
use mesh_base::{BackendError, BackendErrorKind};
use mesh_delivery::{LedgerUnavailable, PollError, SubscribeError, Unable};
use mesh_frame::{EventError, EventErrorKind, NameError};
use mesh_gate::{Denied, DeniedKind};
use mesh_storage::TopicError;

use crate::intake::{Hidden, PublishError, ReceiveError};

/// Declares the codes with their status and meaning, so that no list of them can miss one.
macro_rules! error_codes {
    ($($code:ident, $name:literal, $status:literal, $meaning:literal;)*) => {
        /// The codes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $(#[doc = $meaning] $code,)*
        }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$code,)*];

            /// The code as text.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => $name,)*
                }
            }

            /// The HTTP status it comes with.
            pub const fn status(self) -> u16 {
                match self {
                    $(Self::$code => $status,)*
                }
            }

            /// What it means, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$code => $meaning,)*
                }
            }
        }
    };
}

error_codes! {
    InvalidEvent, "invalid_event", 400, "The body is not an event, or breaks a rule of CloudEvents.";
    InvalidArgument, "invalid_argument", 400, "A parameter or a member of the body cannot be used.";
    ReservedAttribute, "reserved_attribute", 400, "The event sets an attribute that only the server sets.";
    MissingParameter, "missing_parameter", 400, "A required parameter or member of the body is not there.";
    Unauthenticated, "unauthenticated", 401, "The credential is missing or wrong.";
    Forbidden, "forbidden", 403, "The caller may not do this.";
    ReservedTopic, "reserved_topic", 403, "The topic belongs to the server.";
    NotFound, "not_found", 404, "There is no such route or object.";
    UnknownClient, "unknown_client", 404, "The client has no subscription.";
    UnknownDelivery, "unknown_delivery", 404, "The delivery is not known, or was finished before.";
    UnknownTopic, "unknown_topic", 404, "The topic does not exist and is not made on the way.";
    MethodNotAllowed, "method_not_allowed", 405, "The route has other methods.";
    Timeout, "timeout", 408, "The client, or who should have answered, was too slow.";
    GroupConflict, "group_conflict", 409, "The group has other settings or another mode.";
    ClientConflict, "client_conflict", 409, "The client id belongs to somebody else.";
    GroupsExist, "groups_exist", 409, "The topic still has groups.";
    GroupGone, "group_gone", 409, "The group was removed meanwhile.";
    TopicConflict, "topic_conflict", 409, "The topic has other partitions.";
    SubscriptionExpired, "subscription_expired", 410, "The subscription was ended by the server.";
    TooLarge, "too_large", 413, "The body, the event or its data is over its limit.";
    UnsupportedMediaType, "unsupported_media_type", 415, "The content type or encoding is not supported.";
    WrongInstance, "wrong_instance", 421, "Another instance holds this.";
    RateLimited, "rate_limited", 429, "More a second than allowed.";
    QuotaExceeded, "quota_exceeded", 429, "More at once than allowed.";
    Internal, "internal", 500, "The server failed in a way it does not know; it is in its log.";
    Overloaded, "overloaded", 503, "Too much is in flight; later is better.";
    LedgerUnavailable, "ledger_unavailable", 503, "Deliveries cannot be recorded now.";
    MetaUnavailable, "meta_unavailable", 503, "The Meta store does not answer.";
    StorageUnavailable, "storage_unavailable", 503, "The log does not answer.";
    NotReady, "not_ready", 503, "The server is starting or stopping.";
    AdminLocked, "admin_locked", 503, "Administration is locked until a token is set.";
    StorageLow, "storage_low", 507, "The disk is nearly full; publishing has stopped.";
    StorageFull, "storage_full", 507, "The disk is full.";
}

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
    /// An error; 503 says when to try again.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let retry_after = (code.status() == 503).then_some(Duration::from_secs(1));
        Self { code, message: message.into(), retry_after, closes: false }
    }

    /// A parameter or member that cannot be used.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }

    /// A parameter or member that is not there.
    pub fn missing(what: &str) -> Self {
        Self::new(ErrorCode::MissingParameter, format!("`{what}` is missing"))
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
        super::answer::push_text(&mut json, &self.message);
        json.push(b'}');
        json
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.json()));
        *response.status_mut() =
            StatusCode::from_u16(self.code.status()).expect("the list has legal statuses");
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.code == ErrorCode::Unauthenticated {
            // RFC 9110, 15.5.2: such an answer says which credential would do.
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_millis().div_ceil(1_000).clamp(1, 86_400);
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(u64::try_from(seconds).unwrap_or(1)));
        }
        response
    }
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

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        let code = match denied.kind {
            DeniedKind::Unauthenticated => ErrorCode::Unauthenticated,
            DeniedKind::Forbidden => ErrorCode::Forbidden,
            DeniedKind::RateLimited => ErrorCode::RateLimited,
            DeniedKind::QuotaExceeded => ErrorCode::QuotaExceeded,
        };
        let mut error = Self::new(code, denied.reason);
        error.retry_after = denied.retry_after;
        error
    }
}

/// A failure of the log. Its chain is logged where it is counted, the client is told no internals.
fn of_storage(error: &BackendError, doing: &str) -> ApiError {
    tracing::warn!(error = %error.chain(), "{doing} failed");
    match error.kind() {
        BackendErrorKind::Full => {
            ApiError::new(ErrorCode::StorageFull, format!("{doing} failed: the disk is full"))
        }
        BackendErrorKind::TooLarge => {
            ApiError::new(ErrorCode::TooLarge, format!("{doing} failed: too large for the log"))
        }
        BackendErrorKind::Unavailable | BackendErrorKind::Corrupt | BackendErrorKind::Refused => {
            ApiError::new(
                ErrorCode::StorageUnavailable,
                format!("{doing} failed: the log is {}", error.kind().as_str()),
            )
        }
    }
}

impl From<TopicError> for ApiError {
    fn from(error: TopicError) -> Self {
        match &error {
            TopicError::Unknown(_) => Self::new(ErrorCode::UnknownTopic, error.to_string()),
            TopicError::TooMany(_) => Self::new(ErrorCode::QuotaExceeded, error.to_string()),
            TopicError::Backend { source, .. } => of_storage(source, "making the topic"),
        }
    }
}

impl From<PublishError> for ApiError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Topic(error) => error.into(),
            PublishError::StorageLow => Self::new(
                ErrorCode::StorageLow,
                "there is too little free space to publish; acknowledging and receiving go on",
            ),
            PublishError::TimedOut => Self::new(
                ErrorCode::StorageUnavailable,
                "the log did not answer in time: what was published may or may not have been stored",
            ),
            PublishError::Storage(error) => of_storage(&error, "publishing"),
        }
    }
}

impl From<LedgerUnavailable> for ApiError {
    fn from(error: LedgerUnavailable) -> Self {
        ledger_unavailable(error.is_full())
    }
}

/// The ledger cannot write; the delivery stays as it is.
pub(super) fn ledger_unavailable(full: bool) -> ApiError {
    if full {
        ApiError::new(
            ErrorCode::StorageFull,
            "the disk is full: deliveries cannot be recorded; nothing has changed",
        )
    } else {
        ApiError::new(
            ErrorCode::LedgerUnavailable,
            "deliveries cannot be recorded now; nothing has changed, try again",
        )
    }
}

impl From<PollError> for ApiError {
    fn from(error: PollError) -> Self {
        match error {
            // Nobody is told of a client that is not theirs.
            PollError::UnknownClient | PollError::NotYours => {
                Self::new(ErrorCode::UnknownClient, PollError::UnknownClient.to_string())
            }
            PollError::Expired => Self::new(ErrorCode::SubscriptionExpired, PollError::Expired.to_string()),
            PollError::Ledger(error) => error.into(),
        }
    }
}

impl From<ReceiveError> for ApiError {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::TooManyPolls(_) => Self {
                retry_after: Some(Duration::from_secs(1)),
                ..Self::new(ErrorCode::QuotaExceeded, error.to_string())
            },
            ReceiveError::Poll(error) => error.into(),
            ReceiveError::Adopt(error) => error.into(),
        }
    }
}

impl From<Hidden> for ApiError {
    fn from(_: Hidden) -> Self {
        PollError::UnknownClient.into()
    }
}

impl From<Unable> for ApiError {
    fn from(why: Unable) -> Self {
        let code = match why {
            Unable::Recovering | Unable::Stopping => ErrorCode::NotReady,
            Unable::Busy => ErrorCode::Overloaded,
        };
        Self::new(code, why.to_string())
    }
}

impl From<SubscribeError> for ApiError {
    fn from(error: SubscribeError) -> Self {
        match error {
            SubscribeError::Topic(error) => error.into(),
            SubscribeError::TooManySubscriptions(most) => Self::new(
                ErrorCode::QuotaExceeded,
                format!("the client already has {most} subscriptions, which is the most it may have"),
            ),
            SubscribeError::TenantFull(most) => Self {
                retry_after: Some(Duration::from_secs(1)),
                ..Self::new(
                    ErrorCode::QuotaExceeded,
                    format!("the tenant already has {most} subscriptions, which is the most it may have"),
                )
            },
            SubscribeError::NotYours => {
                Self::new(ErrorCode::ClientConflict, "the client id belongs to another principal")
            }
            SubscribeError::GroupConflict { setting } => Self::new(
                ErrorCode::GroupConflict,
                format!(
                    "the group has another `{setting}` and other members; leave it out to take the group's"
                ),
            ),
            SubscribeError::ModeConflict => Self::new(
                ErrorCode::GroupConflict,
                "the client is subscribed to this topic in another `mode`",
            ),
            SubscribeError::AckConflict => {
                Self::new(ErrorCode::GroupConflict, "`ack` cannot change while deliveries are outstanding")
            }
            SubscribeError::BadStart(reason) => Self::invalid(format!("`from`: {reason}")),
            SubscribeError::Ledger(error) => error.into(),
            SubscribeError::Meta(error) => {
                tracing::warn!(error = %error.chain(), "a subscription could not be recorded");
                match error.kind() {
                    BackendErrorKind::Full => Self::new(
                        ErrorCode::StorageFull,
                        "the Meta store has no space left for the subscription",
                    ),
                    BackendErrorKind::Unavailable
                    | BackendErrorKind::Corrupt
                    | BackendErrorKind::Refused
                    | BackendErrorKind::TooLarge => Self::new(
                        ErrorCode::MetaUnavailable,
                        "the subscription could not be recorded in the Meta store; try again",
                    ),
                }
            }
            SubscribeError::Storage(error) => of_storage(&error, "finding the start"),
            SubscribeError::Changed => Self::new(ErrorCode::GroupConflict, error.to_string()),
            SubscribeError::Unable(why) => why.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_an_error_is_json_with_both_members() {
        let mut names: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ErrorCode::ALL.len());
        let error = ApiError::invalid("a \"quoted\"\nword");
        assert_eq!(error.json(), br#"{"error":"invalid_argument","message":"a \"quoted\"\nword"}"#);
    }

    #[test]
    fn only_what_waiting_helps_says_when_to_try_again() {
        for code in ErrorCode::ALL {
            let response = ApiError::new(*code, "m").into_response();
            assert_eq!(response.status().as_u16(), code.status());
            assert_eq!(
                response.headers().contains_key(RETRY_AFTER),
                code.status() == 503,
                "{}",
                code.as_str()
            );
        }
    }
}
