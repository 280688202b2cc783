//! The dialogue with the gate: who calls, whether the request is signed as it must be, and whether it may.
//!
//! Every protocol asks in this order: [`Intake::authenticate`], [`Intake::count_connection`], [`Intake::unsigned`]
//! or else [`Intake::verify`], [`Intake::admit`]. Each step takes what the one before it gave, which nobody else can
//! make: a [`Caller`], a [`Verified`] one, an [`Admitted`] request. So none of them can be left out; only that a
//! connection is counted is up to the protocol, which may have none.

use std::borrow::Cow;

use mesh_frame::{ClientId, Event};
use mesh_gate::{Action, Admitted, Asks, Caller, Denied, DeniedKind, Presented, SignedHead, Verified};
use mesh_server::ConnectionTenants;

use super::Intake;

/// A request that comes in through the intake.
pub trait Incoming: Asks {
    /// The events it brings, which may have to carry a signature of their own.
    fn events(&self) -> &[Event];
}

impl Intake {
    /// Who presents this.
    ///
    /// # Errors
    /// [`Denied`] when a credential is needed and missing, or wrong.
    pub fn authenticate(&self, presented: &Presented<'_>, action: Action) -> Result<Caller, Denied> {
        self.gate.authenticate(presented, action).map_err(|denied| self.counted(denied))
    }

    /// Who shows this ticket, for this client. It is used up.
    ///
    /// # Errors
    /// [`Denied`] when it is not good, or not any more.
    pub fn redeem(
        &self,
        ticket: &str,
        client: &ClientId,
        presented: &Presented<'_>,
    ) -> Result<Caller, Denied> {
        self.gate.redeem(ticket, client, presented).map_err(|denied| self.counted(denied))
    }

    /// The denial for what a page sends that may not call, counted and kept.
    pub fn foreign_page(&self, presented: &Presented<'_>, action: Action) -> Denied {
        self.gate.foreign_page(presented, action)
    }

    /// Counts a connection among those of the caller's tenant, once, until the connection ends.
    ///
    /// # Errors
    /// [`Denied`] when the tenant has as many as it may.
    pub fn count_connection(
        &self,
        connection: &ConnectionTenants,
        caller: &Caller,
        action: Action,
    ) -> Result<(), Denied> {
        if !self.gate.limits_connections(caller) {
            return Ok(());
        }
        connection
            .count(caller.tenant(), || self.gate.connection(caller, action))
            .map_err(|denied| self.counted(denied))
    }

    /// A caller whose request needs no signature.
    ///
    /// # Errors
    /// The caller again, when requests have to be signed: see [`Intake::glance`] and [`Intake::verify`].
    pub fn unsigned(&self, caller: Caller) -> Result<Verified, Caller> {
        self.gate.unsigned(caller)
    }

    /// Looks at the signature's head, before the body is read.
    ///
    /// # Errors
    /// [`Denied`] when no signature can hold.
    pub fn glance(&self, caller: &Caller, head: &SignedHead<'_>, action: Action) -> Result<(), Denied> {
        self.gate.glance(caller, head, action).map_err(|denied| self.counted(denied))
    }

    /// Verifies the signature over a whole request.
    ///
    /// # Errors
    /// [`Denied`] when it is missing or wrong.
    pub fn verify(
        &self,
        caller: &Caller,
        head: &SignedHead<'_>,
        body: &[u8],
        action: Action,
    ) -> Result<Verified, Denied> {
        self.gate.verify(caller, head, body, action).map_err(|denied| self.counted(denied))
    }

    /// Lets a request through that its caller may make: verifies what its events have to carry themselves, then asks
    /// the gate.
    ///
    /// # Errors
    /// [`Denied`] when an event is not signed as it must be, or when the caller may not do this, or not now.
    pub fn admit<T: Incoming>(&self, verified: &Verified, request: T) -> Result<Admitted<T>, Denied> {
        let caller = self.caller_by_events(verified, request.events());
        caller.and_then(|caller| self.gate.admit(&caller, request)).map_err(|denied| self.counted(denied))
    }

    /// Who calls, by the signatures that the events carry where they have to.
    fn caller_by_events<'a>(
        &self,
        verified: &'a Verified,
        events: &[Event],
    ) -> Result<Cow<'a, Caller>, Denied> {
        let mut caller = Cow::Borrowed(verified.caller());
        if verified.by_event() {
            for event in events {
                caller = Cow::Owned(self.gate.verify_event(&caller, event)?);
            }
        }
        Ok(caller)
    }

    /// A denial, counted where it is one of a rate.
    pub(super) fn counted(&self, denied: Denied) -> Denied {
        if denied.kind == DeniedKind::RateLimited {
            self.signals.rate_limited.inc();
        }
        denied
    }
}
