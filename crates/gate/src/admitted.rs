//! `Admitted<T>`: proof that the gate let something through, for whom, and why.

use crate::Caller;

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
/// # let caller: mesh_gate::Caller = unimplemented!();
/// let forged = mesh_gate::Admitted { value: (), caller, basis: mesh_gate::Basis::Passed };
/// ```
#[derive(Debug)]
pub struct Admitted<T> {
    value: T,
    caller: Caller,
    basis: Basis,
}

impl<T> Admitted<T> {
    pub(crate) fn new(value: T, caller: Caller, basis: Basis) -> Self {
        Self { value, caller, basis }
    }

    /// What was admitted.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// For whom.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Why.
    pub fn basis(&self) -> Basis {
        self.basis
    }

    /// What was admitted and for whom, to be acted on.
    pub fn into_parts(self) -> (T, Caller) {
        (self.value, self.caller)
    }
}
