//! The one error of every plugin seam: what kind of failure, which backend, during what.
//!
//! The kinds mirror the failure matrix: each of them is handled differently by some caller, and
//! nothing else is told apart.

use std::{error::Error, fmt};

/// What kind of failure a backend reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackendErrorKind {
    /// Not reachable or not answering now; trying again later can succeed.
    Unavailable,
    /// No space is left; trying again succeeds once some was freed.
    Full,
    /// Stored data is damaged; trying again does not help.
    Corrupt,
    /// The backend refuses the operation as asked; trying again does not help.
    Refused,
    /// The value is over the backend's limit.
    TooLarge,
}

impl BackendErrorKind {
    /// The kind in words, as messages and metric labels show it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Full => "full",
            Self::Corrupt => "corrupt",
            Self::Refused => "refused",
            Self::TooLarge => "too large",
        }
    }
}

/// A failure of something we stand on: a local database, a log, a Meta store.
///
/// `Display` names kind, backend and operation; the cause is its [`Error::source`], printed once by
/// the code that handles it ([`BackendError::chain`]).
#[derive(Debug)]
pub struct BackendError {
    kind: BackendErrorKind,
    backend: &'static str,
    operation: &'static str,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl BackendError {
    /// A failure of `kind` in `backend` while it did `operation`.
    pub fn new(kind: BackendErrorKind, backend: &'static str, operation: &'static str) -> Self {
        Self { kind, backend, operation, source: None }
    }

    /// The same with its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of failure.
    pub fn kind(&self) -> BackendErrorKind {
        self.kind
    }

    /// Which backend.
    pub fn backend(&self) -> &'static str {
        self.backend
    }

    /// What it was doing.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// The whole chain of causes in one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }

    /// A copy for the others that waited for the same operation: the chain becomes text.
    #[must_use]
    pub fn copy(&self) -> Self {
        let mut copy = Self::new(self.kind, self.backend, self.operation);
        if let Some(source) = &self.source {
            let mut text = source.to_string();
            let mut cause = source.source();
            while let Some(error) = cause {
                text.push_str(": ");
                text.push_str(&error.to_string());
                cause = error.source();
            }
            copy.source = Some(text.into());
        }
        copy
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} while {}", self.backend, self.kind.as_str(), self.operation)
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_keeps_the_kind_and_the_whole_chain() {
        let error = BackendError::new(BackendErrorKind::Full, "offset store", "writing")
            .with_source(std::io::Error::other("no space"));
        assert_eq!(error.chain(), "offset store full while writing: no space");
        assert_eq!(error.copy().chain(), error.chain());
        assert_eq!(error.copy().kind(), BackendErrorKind::Full);
    }
}
