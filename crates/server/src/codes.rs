//! The closed list of error codes: what a program is told when a request fails, by whichever protocol it came.
//!
//! A code never changes its meaning. It knows no protocol; each protocol says in one exhaustive match of its own
//! what a code looks like there, as [`status`](crate::status) does for HTTP.

/// Declares the codes with their meaning, so that no list of them can miss one.
macro_rules! error_codes {
    ($($code:ident, $name:literal, $meaning:literal;)*) => {
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
    InvalidEvent, "invalid_event", "The body is not an event, or breaks a rule of CloudEvents.";
    InvalidArgument, "invalid_argument", "A parameter or a member of the body cannot be used.";
    ReservedAttribute, "reserved_attribute", "The event sets an attribute that only the server sets.";
    MissingParameter, "missing_parameter", "A required parameter or member of the body is not there.";
    Unauthenticated, "unauthenticated", "The credential is missing or wrong.";
    Forbidden, "forbidden", "The caller may not do this.";
    ReservedTopic, "reserved_topic", "The topic belongs to the server.";
    NotFound, "not_found", "There is no such route or object.";
    UnknownClient, "unknown_client", "The client has no subscription.";
    UnknownDelivery, "unknown_delivery", "The delivery is not known, or was finished before.";
    UnknownTopic, "unknown_topic", "The topic does not exist and is not made on the way.";
    MethodNotAllowed, "method_not_allowed", "The route has other methods.";
    Timeout, "timeout", "The client, or who should have answered, was too slow.";
    GroupConflict, "group_conflict", "The group has other settings or another mode.";
    ClientConflict, "client_conflict", "The client id belongs to somebody else.";
    GroupsExist, "groups_exist", "The topic still has groups.";
    GroupGone, "group_gone", "The group was removed meanwhile.";
    TopicConflict, "topic_conflict", "The topic has other partitions.";
    SubscriptionExpired, "subscription_expired", "The subscription was ended by the server.";
    HeadTooLarge, "head_too_large", "The head of the request has too many or too large headers.";
    TooLarge, "too_large", "The body, the event or its data is over its limit.";
    UnsupportedMediaType, "unsupported_media_type", "The content type or encoding is not supported.";
    WrongInstance, "wrong_instance", "Another instance holds this.";
    RateLimited, "rate_limited", "More a second than allowed.";
    QuotaExceeded, "quota_exceeded", "More at once than allowed.";
    Internal, "internal", "The server failed in a way it does not know; it is in its log.";
    Overloaded, "overloaded", "Too much is in flight; later is better.";
    LedgerUnavailable, "ledger_unavailable", "Deliveries cannot be recorded now.";
    MetaUnavailable, "meta_unavailable", "The Meta store does not answer.";
    StorageUnavailable, "storage_unavailable", "The log does not answer.";
    NotReady, "not_ready", "The server is starting or stopping.";
    AdminLocked, "admin_locked", "Administration is locked until a token is set.";
    StorageLow, "storage_low", "The disk is nearly full; publishing has stopped.";
    StorageFull, "storage_full", "The disk is full.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique() {
        let mut names: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ErrorCode::ALL.len());
    }
}
