//! How the failures of delivery's handles become answers.

use mesh_base::{BackendError, BackendErrorKind};
use mesh_delivery::{GroupError, Interrupted, LettersError, SubscribeError, TopicError, TopicsError, Unable};
use mesh_server::{ApiError, ErrorCode};

/// The log failed.
pub(crate) fn of_log(error: &BackendError) -> ApiError {
    tracing::warn!(error = %error.chain(), "the log failed a request of an operator");
    let code = match error.kind() {
        BackendErrorKind::Full => ErrorCode::StorageFull,
        BackendErrorKind::TooLarge => ErrorCode::TooLarge,
        BackendErrorKind::Unavailable | BackendErrorKind::Corrupt | BackendErrorKind::Refused => {
            ErrorCode::StorageUnavailable
        }
    };
    ApiError::new(code, error.chain())
}

pub(crate) fn of_meta(error: &BackendError) -> ApiError {
    ApiError::new(ErrorCode::MetaUnavailable, error.chain())
}

pub(crate) fn of_letters(interrupted: Interrupted) -> ApiError {
    let message = interrupted.to_string();
    let mut answer = match interrupted.error {
        LettersError::GroupGone => {
            return ApiError::new(ErrorCode::GroupGone, LettersError::GroupGone.to_string());
        }
        LettersError::StorageLow => ApiError::new(ErrorCode::StorageLow, ""),
        LettersError::TimedOut => ApiError::new(ErrorCode::StorageUnavailable, ""),
        LettersError::Busy => ApiError::new(ErrorCode::Overloaded, ""),
        LettersError::Ledger(_) => ApiError::new(ErrorCode::LedgerUnavailable, ""),
        LettersError::Stopping | LettersError::Starting => ApiError::new(ErrorCode::NotReady, ""),
        LettersError::Topic(error) => of_making(&error),
        LettersError::Storage(error) => of_log(&error),
        LettersError::Meta(error) => of_meta(&error),
    };
    answer.message = message;
    answer
}

/// A topic is not there and could not be made.
fn of_making(error: &TopicError) -> ApiError {
    match error {
        TopicError::Unknown(_) => ApiError::new(ErrorCode::UnknownTopic, error.to_string()),
        TopicError::TooMany(_) => ApiError::new(ErrorCode::QuotaExceeded, error.to_string()),
        TopicError::Backend { source, .. } => of_log(source),
    }
}

/// A membership could not be changed.
pub(crate) fn of_subscribe(error: SubscribeError) -> ApiError {
    let code = match &error {
        SubscribeError::Topic(error) => return of_making(error),
        SubscribeError::Storage(error) => return of_log(error),
        SubscribeError::Meta(error) if error.kind() == BackendErrorKind::Full => ErrorCode::StorageFull,
        SubscribeError::Meta(error) => return of_meta(error),
        SubscribeError::Ledger(error) if error.is_full() => ErrorCode::StorageFull,
        SubscribeError::Ledger(_) => ErrorCode::LedgerUnavailable,
        SubscribeError::TooManySubscriptions(_) | SubscribeError::TenantFull(_) => ErrorCode::QuotaExceeded,
        SubscribeError::NotYours => ErrorCode::ClientConflict,
        SubscribeError::GroupConflict { .. }
        | SubscribeError::ModeConflict
        | SubscribeError::AckConflict
        | SubscribeError::Changed => ErrorCode::GroupConflict,
        SubscribeError::Unable(Unable::Busy) => ErrorCode::Overloaded,
        SubscribeError::Unable(Unable::Recovering | Unable::Stopping) => ErrorCode::NotReady,
        SubscribeError::BadStart(_) => ErrorCode::InvalidArgument,
    };
    ApiError::new(code, error.to_string())
}

pub(crate) fn of_group(error: GroupError) -> ApiError {
    match error {
        GroupError::Unknown(_) => ApiError::new(ErrorCode::NotFound, error.to_string()),
        GroupError::Ambiguous => ApiError::invalid(error.to_string()),
        GroupError::Changed => ApiError::new(ErrorCode::GroupConflict, error.to_string()),
        GroupError::Other(SubscribeError::BadStart(reason)) => ApiError::invalid(format!("`to`: {reason}")),
        GroupError::Other(error) => of_subscribe(error),
    }
}

pub(crate) fn of_topic(error: TopicsError) -> ApiError {
    match error {
        TopicsError::Unknown(_) => ApiError::new(ErrorCode::UnknownTopic, error.to_string()),
        TopicsError::GroupsExist(_) => ApiError::new(ErrorCode::GroupsExist, error.to_string()),
        TopicsError::Fewer { .. } => ApiError::new(ErrorCode::TopicConflict, error.to_string()),
        TopicsError::Topic(error) => of_making(&error),
        TopicsError::Group(error) => of_subscribe(error),
        TopicsError::DeadLetters(error) => of_letters(error),
        TopicsError::Storage(error) => of_log(&error),
    }
}
