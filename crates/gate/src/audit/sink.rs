//! The seam to what keeps audit records, and the sink that logs them.

use thiserror::Error;

use super::{AuditRecord, Interest, Outcome};
use crate::Action;

/// A sink did not take a record.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct SinkFailed(pub String);

/// Keeps audit records. Called on the request's own task: it must not block; what has to wait queues itself,
/// bounded.
pub trait AuditSink: Send + Sync + std::fmt::Debug {
    /// The name in logs and metrics.
    fn name(&self) -> &'static str;

    /// Which decisions it wants.
    fn interest(&self) -> Interest;

    /// Takes a record.
    ///
    /// # Errors
    /// When it is lost; the gate logs and counts it, and the request goes on.
    fn record(&self, record: &AuditRecord<'_>) -> Result<(), SinkFailed>;
}

/// Logs: denials, what failed open and administration at INFO, the rest at DEBUG, under the target `audit`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoggingAuditSink;

impl AuditSink for LoggingAuditSink {
    fn name(&self) -> &'static str {
        "log"
    }

    fn interest(&self) -> Interest {
        if tracing::enabled!(target: "audit", tracing::Level::DEBUG) {
            Interest::Everything
        } else {
            Interest::Denials
        }
    }

    fn record(&self, record: &AuditRecord<'_>) -> Result<(), SinkFailed> {
        let is_loud = record.outcome != Outcome::Allowed || record.operation == Some(Action::Admin);
        macro_rules! say {
            ($level:ident) => {
                tracing::$level!(
                    target: "audit",
                    outcome = record.outcome.as_str(),
                    filter = record.filter,
                    reason = record.reason,
                    operation = record.operation.map(Action::as_str),
                    resource = record.resource,
                    tenant = record.tenant,
                    principal = record.principal,
                    credential = record.credential.as_str(),
                    remote = record.remote.map(tracing::field::display),
                    protocol = record.protocol.as_str(),
                    trace = record.trace,
                    "audit"
                )
            };
        }
        if is_loud {
            say!(info);
        } else {
            say!(debug);
        }
        Ok(())
    }
}
