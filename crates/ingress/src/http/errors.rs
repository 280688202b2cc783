//! How each failure of the inside becomes an error of HTTP.

use std::time::Duration;

use mesh_base::{BackendError, BackendErrorKind};
use mesh_delivery::{LedgerUnavailable, PollError, SubscribeError, Unable};
use mesh_gate::{Denied, DeniedKind};
use mesh_server::{ApiError, ErrorCode};
use mesh_storage::TopicError;

use crate::intake::{Hidden, MembershipError, PublishError, ReceiveError};

/// The gate said no. A connection without a known caller is closed: it would take the place of one that has one.
pub(super) fn of_denied(denied: Denied) -> ApiError {
    let code = match denied.kind {
        DeniedKind::Unauthenticated => ErrorCode::Unauthenticated,
        DeniedKind::Forbidden => ErrorCode::Forbidden,
        DeniedKind::RateLimited => ErrorCode::RateLimited,
        DeniedKind::QuotaExceeded => ErrorCode::QuotaExceeded,
    };
    let error = ApiError::new(code, denied.reason);
    ApiError {
        retry_after: denied.retry_after.or(error.retry_after),
        closes: code == ErrorCode::Unauthenticated,
        ..error
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

fn of_topic(error: &TopicError) -> ApiError {
    match error {
        TopicError::Unknown(_) => ApiError::new(ErrorCode::UnknownTopic, error.to_string()),
        TopicError::TooMany(_) => ApiError::new(ErrorCode::QuotaExceeded, error.to_string()),
        TopicError::Backend { source, .. } => of_storage(source, "making the topic"),
    }
}

impl From<PublishError> for ApiError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Topic(error) => of_topic(&error),
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

fn of_ledger(error: &LedgerUnavailable) -> ApiError {
    ledger_unavailable(error.is_full())
}

fn of_poll(error: &PollError) -> ApiError {
    match error {
        // A caller is not told of a client of another principal.
        PollError::UnknownClient | PollError::NotYours => Hidden.into(),
        PollError::Expired => ApiError::new(ErrorCode::SubscriptionExpired, PollError::Expired.to_string()),
        PollError::Ledger(error) => of_ledger(error),
    }
}

impl From<ReceiveError> for ApiError {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::TooManyPolls(_) => {
                Self::later(ErrorCode::QuotaExceeded, error.to_string(), Duration::from_secs(1))
            }
            ReceiveError::Poll(error) => of_poll(&error),
            ReceiveError::Adopt(error) => of_subscribe(error),
        }
    }
}

impl From<Hidden> for ApiError {
    fn from(_: Hidden) -> Self {
        Self::new(ErrorCode::UnknownClient, PollError::UnknownClient.to_string())
    }
}

impl From<MembershipError> for ApiError {
    fn from(error: MembershipError) -> Self {
        match error {
            MembershipError::Denied(denied) => of_denied(denied),
            MembershipError::Hidden(hidden) => hidden.into(),
            MembershipError::Delivery(error) => of_subscribe(error),
        }
    }
}

fn of_subscribe(error: SubscribeError) -> ApiError {
    match error {
        SubscribeError::Topic(error) => of_topic(&error),
        SubscribeError::TooManySubscriptions(most) => ApiError::new(
            ErrorCode::QuotaExceeded,
            format!("the client already has {most} subscriptions, which is the most it may have"),
        ),
        SubscribeError::TenantFull(most) => ApiError::later(
            ErrorCode::QuotaExceeded,
            format!("the tenant already has {most} subscriptions, which is the most it may have"),
            Duration::from_secs(1),
        ),
        SubscribeError::NotYours => {
            ApiError::new(ErrorCode::ClientConflict, "the client id belongs to another principal")
        }
        SubscribeError::GroupConflict { setting } => ApiError::new(
            ErrorCode::GroupConflict,
            format!("the group has another `{setting}` and other members; leave it out to take the group's"),
        ),
        SubscribeError::ModeConflict => ApiError::new(
            ErrorCode::GroupConflict,
            "the client is subscribed to this topic in another `mode`",
        ),
        SubscribeError::AckConflict => {
            ApiError::new(ErrorCode::GroupConflict, "`ack` cannot change while deliveries are outstanding")
        }
        SubscribeError::BadStart(reason) => ApiError::invalid(format!("`from`: {reason}")),
        SubscribeError::Ledger(error) => of_ledger(&error),
        SubscribeError::Meta(error) => {
            tracing::warn!(error = %error.chain(), "a subscription could not be recorded");
            match error.kind() {
                BackendErrorKind::Full => ApiError::new(
                    ErrorCode::StorageFull,
                    "the Meta store has no space left for the subscription",
                ),
                BackendErrorKind::Unavailable
                | BackendErrorKind::Corrupt
                | BackendErrorKind::Refused
                | BackendErrorKind::TooLarge => ApiError::new(
                    ErrorCode::MetaUnavailable,
                    "the subscription could not be recorded in the Meta store; try again",
                ),
            }
        }
        SubscribeError::Storage(error) => of_storage(&error, "finding the start"),
        SubscribeError::Changed => ApiError::new(ErrorCode::GroupConflict, error.to_string()),
        SubscribeError::Unable(Unable::Busy) => {
            ApiError::new(ErrorCode::Overloaded, Unable::Busy.to_string())
        }
        SubscribeError::Unable(why @ (Unable::Recovering | Unable::Stopping)) => {
            ApiError::new(ErrorCode::NotReady, why.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use mesh_server::status;

    use super::*;

    #[test]
    fn every_denial_has_its_status_and_whoever_is_unknown_does_not_keep_the_connection() {
        // proves: SG-3
        let told = |kind| {
            let denied = Denied { kind, reason: "no".into(), retry_after: Some(Duration::from_secs(3)) };
            let error = of_denied(denied);
            assert_eq!((&*error.message, error.retry_after), ("no", Some(Duration::from_secs(3))));
            (status(error.code), error.closes)
        };
        assert_eq!(told(DeniedKind::Unauthenticated), (401, true));
        assert_eq!(told(DeniedKind::Forbidden), (403, false));
        assert_eq!(told(DeniedKind::RateLimited), (429, false));
        assert_eq!(told(DeniedKind::QuotaExceeded), (429, false));
    }
}
