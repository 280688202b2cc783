//! What filters have in common: what one finds, how one is loaded, how its files are read again.

use std::{borrow::Cow, path::PathBuf, time::Duration};

use thiserror::Error;

/// The filter that looks at credentials, in metrics and the audit log.
pub(crate) const TOKEN: &str = "token";
/// The filter that verifies signatures.
pub(crate) const SIGNATURE: &str = "signature";
/// The filter that asks the rules.
pub(crate) const ACL: &str = "acl";
/// Whose clients, deliveries and subscriptions are whose.
pub(crate) const OWNER: &str = "owner";
/// What tenants may use.
pub(crate) const QUOTA: &str = "quota";
/// How fast a topic may be published to.
pub(crate) const RATE_LIMIT: &str = "ratelimit";
/// Which pages may call.
pub(crate) const ORIGIN: &str = "origin";

/// What a filter finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding<T = ()> {
    /// Nothing against it.
    Pass(T),
    /// It must not be. The sentence is for the client and tells nothing about rules or secrets.
    Deny(Cow<'static, str>),
    /// The rule that would govern cannot be read: denied also where the gate is open.
    Malformed(Cow<'static, str>),
    /// The filter could not judge.
    Broken {
        /// Why, for the operator.
        reason: Cow<'static, str>,
        /// When it may be able to.
        retry_after: Duration,
    },
}

/// Why a filter that is configured cannot be built: the start stops.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// What stands in a file, or in a setting, cannot be used.
    #[error("{origin}: {problem}")]
    Unusable {
        /// The path, with `:line` where that is known, or the name of the setting.
        origin: String,
        /// What is wrong, in a sentence without secrets.
        problem: String,
    },
}

/// What reading a filter's files again did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// They are what they were.
    Unchanged,
    /// What is new holds.
    Changed,
}

impl Reload {
    /// Whether this or the other changed something.
    pub(crate) fn or(self, other: Self) -> Self {
        if self == Self::Changed { self } else { other }
    }
}
