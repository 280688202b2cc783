//! Audit: every decision of the gate as a record, given to sinks that keep it.
//!
//! Best effort: a sink that fails is logged at ERROR and counted, and the request goes on.

mod chain;
mod event;
mod file;
mod json;
mod log_file;
mod sink;
mod verify;

pub use event::{AuditPublisher, EventAuditSink};
pub use file::{FileAuditSettings, FileAuditSink};
pub use sink::{AuditSink, LoggingAuditSink, SinkFailed};
pub use verify::{AuditReport, VerifyError, verify_audit};

use std::net::SocketAddr;

use mesh_base::UnixMillis;

use crate::{Action, CredentialKind, Protocol};

/// How a decision went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Let through.
    Allowed,
    /// Let through although a filter would have denied it: the gate is open.
    FailedOpen,
    /// Not let through.
    Denied,
}

impl Outcome {
    /// The name in the audit log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::FailedOpen => "failed_open",
            Self::Denied => "denied",
        }
    }
}

/// Which outcomes a sink takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interest {
    /// Denials, what failed open, and administration.
    #[default]
    Denials,
    /// Every decision.
    Everything,
}

impl Interest {
    /// Whether a decision is of interest.
    pub fn takes(self, outcome: Outcome, operation: Option<Action>) -> bool {
        self == Self::Everything || outcome != Outcome::Allowed || operation == Some(Action::Admin)
    }
}

/// One decision. No secret is ever in it: no credential, no signature, no body.
#[derive(Clone, Debug)]
pub struct AuditRecord<'a> {
    /// When.
    pub at: UnixMillis,
    /// How it went.
    pub outcome: Outcome,
    /// The filter that decided; `None`: none objected.
    pub filter: Option<&'static str>,
    /// Why, where something objected.
    pub reason: &'a str,
    /// What was asked for; `None` before that was known.
    pub operation: Option<Action>,
    /// What it was done to, such as `topic:orders`; empty where that is not known.
    pub resource: &'a str,
    /// The tenant.
    pub tenant: &'a str,
    /// The principal, where it is known.
    pub principal: Option<&'a str>,
    /// What it is known by.
    pub credential: CredentialKind,
    /// Where it came from.
    pub remote: Option<SocketAddr>,
    /// How it came.
    pub protocol: Protocol,
    /// Its `traceparent`.
    pub trace: Option<&'a str>,
}
