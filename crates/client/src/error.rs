//! How a call can end badly.

use std::time::Duration;

use thiserror::Error;

/// Why a call failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The base address is not `http://host[:port][/path]` or `https://…`.
    #[error("`{0}` is no address of a server: it must be http://host[:port] or https://host[:port]")]
    Address(String),
    /// The credential cannot be sent in a header.
    #[error("the credential has characters that a header cannot carry")]
    Credential,
    /// The authorities are no certificates.
    #[error("the authorities are not PEM certificates")]
    Authorities,
    /// What was to be sent breaks a rule that is known here. Nothing was sent.
    #[error("{0}")]
    Invalid(String),
    /// The server refused. For 429 and 503 retries, where they are made, did not help.
    #[error("{status} {code}: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The server's error code, as its documentation lists them; empty when the answer had none.
        code: String,
        /// The server's words, for people.
        message: String,
        /// How long the server asked to wait, when it did.
        retry_after: Option<Duration>,
    },
    /// There was no connection: the request did not take effect.
    #[error("cannot connect to the server")]
    Connect(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection was lost before the whole answer was there: whether the request took effect is unknown.
    #[error("the connection was lost before the answer was complete")]
    Lost(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer did not come in time: whether the request took effect is unknown.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The answer is not what this version of the library understands.
    #[error("the answer cannot be read: {0}")]
    Answer(String),
    /// Another stream of the same client took over from this one. It is not opened again by itself, because
    /// two streams of a client would replace each other for ever.
    #[error("another stream of this client has replaced this one")]
    Replaced,
    /// The [`AckerWork`](crate::AckerWork) does not run any more.
    #[error("the acknowledgements are not being sent any more")]
    AckerStopped,
}

impl Error {
    /// The HTTP status, when the server refused.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The server's error code, when it refused with one.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } if !code.is_empty() => Some(code),
            _ => None,
        }
    }

    /// Whether waiting and asking again may help: 429, 503, no connection, a lost one, no answer in time.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused { status, .. } => matches!(status, 429 | 503),
            Self::Connect(_) | Self::Lost(_) | Self::Timeout(_) => true,
            Self::Address(_)
            | Self::Credential
            | Self::Authorities
            | Self::Invalid(_)
            | Self::Answer(_)
            | Self::Replaced
            | Self::AckerStopped => false,
        }
    }

    /// How long the server asked to wait.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
