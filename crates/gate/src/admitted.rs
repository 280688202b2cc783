//! `Admitted<T>`: proof that the gate let something through, for whom, and why.

use crate::{Caller, RequestContext, TenantLimits};

/// On what basis something was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Basis {
    /// No filter is configured.
    NoGate,
    /// Every filter let it pass.
    Passed,
    /// A filter would have denied it, but the gate is told to stay open.
    FailedOpen,
    /// The connection was authenticated when it was made.
    ConnectionAuth,
}

impl Basis {
    /// The name in the audit log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoGate => "no_gate",
            Self::Passed => "passed",
            Self::FailedOpen => "failed_open",
            Self::ConnectionAuth => "connection_auth",
        }
    }
}

/// A request that the gate admitted. Only the gate makes one:
///
/// ```compile_fail
/// # let context: mesh_gate::RequestContext = unimplemented!();
/// # let limits = mesh_gate::TenantLimits::default();
/// let forged = mesh_gate::Admitted { value: (), context, basis: mesh_gate::Basis::Passed, limits };
/// ```
///
/// and only of a value that says itself what it asks for ([`Asks`](crate::Asks)):
///
/// ```compile_fail
/// # fn of(gate: &mesh_gate::SecurityGate, caller: &mesh_gate::Caller) {
/// let admitted = gate.admit(caller, "whatever");
/// # }
/// ```
#[derive(Debug)]
pub struct Admitted<T> {
    value: T,
    context: RequestContext,
    basis: Basis,
    limits: TenantLimits,
}

impl<T> Admitted<T> {
    pub(crate) fn new(value: T, context: RequestContext, basis: Basis, limits: TenantLimits) -> Self {
        Self { value, context, basis, limits }
    }

    /// What was admitted.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// The request.
    pub fn context(&self) -> &RequestContext {
        &self.context
    }

    /// For whom.
    pub fn caller(&self) -> &Caller {
        self.context.caller()
    }

    /// Why.
    pub fn basis(&self) -> Basis {
        self.basis
    }

    /// What the caller's tenant may use of what is counted where it is kept: subscriptions, backlog.
    pub fn limits(&self) -> &TenantLimits {
        &self.limits
    }

    /// What was admitted and for whom, to be acted on.
    pub fn into_parts(self) -> (T, Caller) {
        (self.value, self.context.into_caller())
    }
}
