//! How the failures of delivery's handles become answers.

use mesh_base::{BackendError, BackendErrorKind};
use mesh_delivery::{GroupError, Interrupted, LettersError, SubscribeError, TopicsError};
use mesh_ingress::http::{ApiError, ErrorCode};

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
        LettersError::Topic(error) => error.into(),
        LettersError::Storage(error) => of_log(&error),
        LettersError::Meta(error) => of_meta(&error),
    };
    answer.message = message;
    answer
}

pub(crate) fn of_group(error: GroupError) -> ApiError {
    match error {
        GroupError::Unknown(_) => ApiError::new(ErrorCode::NotFound, error.to_string()),
        GroupError::Ambiguous => ApiError::invalid(error.to_string()),
        GroupError::Changed => ApiError::new(ErrorCode::GroupConflict, error.to_string()),
        GroupError::Other(SubscribeError::BadStart(reason)) => ApiError::invalid(format!("`to`: {reason}")),
        GroupError::Other(error) => error.into(),
    }
}

pub(crate) fn of_topic(error: TopicsError) -> ApiError {
    match error {
        TopicsError::Unknown(_) => ApiError::new(ErrorCode::UnknownTopic, error.to_string()),
        TopicsError::GroupsExist(_) => ApiError::new(ErrorCode::GroupsExist, error.to_string()),
        TopicsError::Fewer { .. } => ApiError::new(ErrorCode::TopicConflict, error.to_string()),
        TopicsError::Topic(error) => error.into(),
        TopicsError::Group(error) => error.into(),
        TopicsError::DeadLetters(error) => of_letters(error),
        TopicsError::Storage(error) => of_log(&error),
    }
}
