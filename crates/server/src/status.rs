//! The HTTP status of each error code.

use crate::ErrorCode;

/// The HTTP status that a code comes with.
pub const fn status(code: ErrorCode) -> u16 {
    match code {
        ErrorCode::InvalidEvent
        | ErrorCode::InvalidArgument
        | ErrorCode::ReservedAttribute
        | ErrorCode::MissingParameter => 400,
        ErrorCode::Unauthenticated => 401,
        ErrorCode::Forbidden | ErrorCode::ReservedTopic => 403,
        ErrorCode::NotFound
        | ErrorCode::UnknownClient
        | ErrorCode::UnknownDelivery
        | ErrorCode::UnknownTopic => 404,
        ErrorCode::MethodNotAllowed => 405,
        ErrorCode::Timeout => 408,
        ErrorCode::GroupConflict
        | ErrorCode::ClientConflict
        | ErrorCode::GroupsExist
        | ErrorCode::GroupGone
        | ErrorCode::TopicConflict => 409,
        ErrorCode::SubscriptionExpired => 410,
        ErrorCode::HeadTooLarge => 431,
        ErrorCode::TooLarge => 413,
        ErrorCode::UnsupportedMediaType => 415,
        ErrorCode::WrongInstance => 421,
        ErrorCode::RateLimited | ErrorCode::QuotaExceeded => 429,
        ErrorCode::Internal => 500,
        ErrorCode::Overloaded
        | ErrorCode::LedgerUnavailable
        | ErrorCode::MetaUnavailable
        | ErrorCode::StorageUnavailable
        | ErrorCode::NotReady
        | ErrorCode::AdminLocked => 503,
        ErrorCode::StorageLow | ErrorCode::StorageFull => 507,
    }
}
