//! A denial: an outcome that every protocol tells its client in its own words.

use std::{borrow::Cow, time::Duration};

use thiserror::Error;

/// What kind of denial; each is answered differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeniedKind {
    /// The credential or the signature is missing or wrong.
    Unauthenticated,
    /// The caller is known and may not do this.
    Forbidden,
    /// More a second than the tenant may.
    RateLimited,
    /// More at once than the tenant may.
    QuotaExceeded,
}

impl DeniedKind {
    /// The name in the audit log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::RateLimited => "rate_limited",
            Self::QuotaExceeded => "quota_exceeded",
        }
    }
}

/// The gate said no. The reason is for the client and tells nothing about rules or secrets.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct Denied {
    /// What kind of denial.
    pub kind: DeniedKind,
    /// Why, in a sentence.
    pub reason: Cow<'static, str>,
    /// After which time the same request can succeed, where waiting helps.
    pub retry_after: Option<Duration>,
}
