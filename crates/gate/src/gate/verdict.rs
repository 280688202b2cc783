//! The table: what becomes of what a filter found, counted and kept.

use std::{borrow::Cow, sync::atomic::Ordering, time::Duration};

use mesh_base::UnixMillis;

use super::{Inner, Mode};
use crate::{
    Action, AuditRecord, Caller, Denied, DeniedKind, Outcome, Principal, Resource,
    filter::{self, Finding},
    quota::Exceeded,
};

/// How long a sink has to work before its next failure is told again.
const CALM: Duration = Duration::from_secs(10);

/// Who asks for what.
pub(super) struct Asking<'a> {
    pub(super) caller: &'a Caller,
    pub(super) operation: Action,
    pub(super) resource: Option<Resource<'a>>,
}

/// What became of a finding: passed, or let through although.
pub(super) enum Judged<T> {
    Passed(T),
    FailedOpen,
}

impl Inner {
    /// The table: what becomes of what a filter found.
    pub(super) fn judged<T>(
        &self,
        filter: &'static str,
        kind: DeniedKind,
        finding: Finding<T>,
        asking: &Asking<'_>,
    ) -> Result<Judged<T>, Denied> {
        let is_closed = self.parts.mode == Mode::Closed;
        let (reason, retry_after, is_denied, verdict): (Cow<'static, str>, Option<Duration>, _, _) =
            match finding {
                Finding::Pass(value) => {
                    self.verdicts.count(filter, "allow");
                    return Ok(Judged::Passed(value));
                }
                Finding::Deny(reason) => {
                    (reason, None, is_closed, if is_closed { "deny" } else { "would_deny" })
                }
                Finding::Malformed(reason) => (reason, None, true, "malformed"),
                Finding::Broken { reason, retry_after } => {
                    tracing::warn!(filter, %reason, "a filter cannot judge");
                    (
                        "the server cannot check this now".into(),
                        Some(retry_after),
                        is_closed,
                        if is_closed { "broken" } else { "would_deny" },
                    )
                }
            };
        self.verdicts.count(filter, verdict);
        let outcome = if is_denied { Outcome::Denied } else { Outcome::FailedOpen };
        if self.interested(outcome, asking.operation) {
            let resource = asking.resource.map_or_else(String::new, |resource| resource.describe());
            self.keep(&self.record(asking, &resource, outcome, Some(filter), &reason));
        }
        if is_denied { Err(Denied { kind, reason, retry_after }) } else { Ok(Judged::FailedOpen) }
    }

    pub(super) fn record<'a>(
        &self,
        asking: &Asking<'a>,
        resource: &'a str,
        outcome: Outcome,
        filter: Option<&'static str>,
        reason: &'a str,
    ) -> AuditRecord<'a> {
        let caller = asking.caller;
        AuditRecord {
            at: self.parts.clock.now(),
            outcome,
            filter,
            reason,
            operation: Some(asking.operation),
            resource,
            tenant: caller.tenant().as_str(),
            principal: caller.principal().map(Principal::as_str),
            credential: caller.identity().credential,
            remote: caller.remote(),
            protocol: caller.protocol(),
            trace: caller.trace(),
        }
    }

    /// Gives a record to the sinks. One that fails is counted each time; it is told when it begins to fail, not for
    /// each record of a flood.
    pub(super) fn keep(&self, record: &AuditRecord<'_>) {
        for (sink, failed_at) in self.parts.audit.iter().zip(&self.audit_failed_at) {
            if !sink.interest().takes(record.outcome, record.operation) {
                continue;
            }
            if let Err(error) = sink.record(record) {
                let labels = vec![("sink", sink.name().to_owned())];
                self.audit_failed.get_or_create(&labels).inc();
                let now = self.parts.clock.now();
                let before = UnixMillis(failed_at.swap(now.0, Ordering::Relaxed));
                if before.0 == 0 || now.since(before) > CALM {
                    tracing::error!(
                        sink = sink.name(),
                        %error,
                        "audit records are lost; the requests go on (eventmesh_audit_failures_total counts them)"
                    );
                }
            }
        }
    }

    pub(super) fn interested(&self, outcome: Outcome, operation: Action) -> bool {
        self.parts.audit.iter().any(|sink| sink.interest().takes(outcome, Some(operation)))
    }

    pub(super) fn exceeded(
        &self,
        filter: &'static str,
        kind: DeniedKind,
        exceeded: Exceeded,
        asking: &Asking<'_>,
    ) -> Denied {
        self.verdicts.count(filter, "deny");
        let whose = if filter == filter::QUOTA { "tenant" } else { "topic" };
        let reason = format!("the {whose} has reached its limit of {}", exceeded.what);
        if self.interested(Outcome::Denied, asking.operation) {
            let resource = asking.resource.map_or_else(String::new, |resource| resource.describe());
            self.keep(&self.record(asking, &resource, Outcome::Denied, Some(filter), &reason));
        }
        Denied { kind, reason: reason.into(), retry_after: Some(exceeded.retry_after) }
    }
}
