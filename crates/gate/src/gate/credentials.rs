//! Who calls, by what the request presents: a credential, a ticket, a signature.

use std::sync::Arc;

use mesh_frame::{ClientId, Event};

use super::{
    Inner, Mode, SecurityGate,
    verdict::{Asking, Judged},
};
use crate::{
    Action, Caller, CredentialKind, Denied, DeniedKind, Identity, Outcome, Presented, SignedHead,
    filter::{self, Finding},
    tickets::Ticket,
};

/// A caller whose request needs no signature, or carries one that holds. Only the gate makes one:
///
/// ```compile_fail
/// # fn of(caller: mesh_gate::Caller) {
/// let forged = mesh_gate::Verified { caller, by_event: false };
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Verified {
    caller: Caller,
    by_event: bool,
}

impl Verified {
    /// Who.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Whether the events of the request have to carry the signature: ask [`SecurityGate::verify_event`] about each.
    pub fn by_event(&self) -> bool {
        self.by_event
    }
}

impl SecurityGate {
    /// Who presents this.
    ///
    /// # Errors
    /// [`Denied`] when a credential is needed and missing, or wrong.
    pub fn authenticate(&self, presented: &Presented<'_>, operation: Action) -> Result<Caller, Denied> {
        let inner = &*self.0;
        let nobody = |failed_open| Caller::new(inner.anonymous.clone(), presented, failed_open);
        let Some(filter) = &inner.parts.chain.token else { return Ok(nobody(None)) };
        let now = inner.parts.clock.now();
        let finding = filter.authenticate(presented.authorization, presented.certificate, now);
        if let Finding::Pass(identity) = finding {
            inner.verdicts.token_passed.inc();
            return Ok(Caller::new(identity, presented, None));
        }
        let asking = Asking { caller: &nobody(None), operation, resource: None };
        match inner.judged(filter::TOKEN, DeniedKind::Unauthenticated, finding, &asking)? {
            Judged::Passed(identity) => Ok(Caller::new(identity, presented, None)),
            Judged::FailedOpen => Ok(nobody(Some(filter::TOKEN))),
        }
    }

    /// A ticket that stands for the caller's credential when a stream is opened, for one client or any;
    /// `None`: too many are out.
    pub fn ticket(&self, caller: &Caller, client: Option<ClientId>) -> Option<Ticket> {
        self.0.tickets.issue(caller, client)
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
        let inner = &*self.0;
        let nobody = |failed_open| Caller::new(inner.anonymous.clone(), presented, failed_open);
        let redeemed = inner.tickets.redeem(ticket, client);
        // What it stands for may have ended since it was given.
        if let Some((identity, failed_open)) = redeemed.filter(|(identity, _)| inner.holds(identity)) {
            inner.verdicts.token_passed.inc();
            return Ok(Caller::new(identity, presented, failed_open));
        }
        if inner.is_no_op {
            return Ok(nobody(None));
        }
        let asking = Asking { caller: &nobody(None), operation: Action::Subscribe, resource: None };
        let finding: Finding = Finding::Deny("the ticket is unknown, used or too old".into());
        inner.judged(filter::TOKEN, DeniedKind::Unauthenticated, finding, &asking)?;
        Ok(nobody(Some(filter::TOKEN)))
    }

    /// The denial for what a page sends that may not call, counted and kept. The gate being open or permissive does
    /// not change it: the user whose browser it is was not asked.
    pub fn foreign_page(&self, presented: &Presented<'_>, operation: Action) -> Denied {
        let inner = &*self.0;
        let reason = "pages of this origin may not call (eventmesh.http.cors.origins)";
        inner.verdicts.count(filter::ORIGIN, "deny");
        if inner.interested(Outcome::Denied, operation) {
            let caller = &Caller::new(inner.anonymous.clone(), presented, None);
            let asking = Asking { caller, operation, resource: None };
            inner.keep(&inner.record(&asking, "", Outcome::Denied, Some(filter::ORIGIN), reason));
        }
        Denied { kind: DeniedKind::Forbidden, reason: reason.into(), retry_after: None }
    }

    /// A caller whose request needs no signature, as requests do not where no signature filter is configured.
    ///
    /// # Errors
    /// The caller again, when requests have to be signed: [`Self::glance`] and [`Self::verify`] have something to
    /// look at.
    pub fn unsigned(&self, caller: Caller) -> Result<Verified, Caller> {
        match &self.0.parts.chain.signature {
            None => Ok(Verified { caller, by_event: false }),
            Some(_) => Err(caller),
        }
    }

    /// Looks at the signature's head, before the body is read.
    ///
    /// # Errors
    /// [`Denied`] when there is none that could hold, and none in the event is accepted either.
    pub fn glance(&self, caller: &Caller, head: &SignedHead<'_>, operation: Action) -> Result<(), Denied> {
        let inner = &*self.0;
        let Some(filter) = &inner.parts.chain.signature else { return Ok(()) };
        if caller.identity().credential == CredentialKind::Ticket {
            // The request for the ticket was signed.
            return Ok(());
        }
        if inner.parts.mode == Mode::Permissive || (filter.takes_legacy() && operation == Action::Publish) {
            // Decided, counted and audited once, when the body is there.
            return Ok(());
        }
        let finding = filter.glance(head, inner.parts.clock.now());
        if matches!(finding, Finding::Pass(())) {
            return Ok(());
        }
        let asking = Asking { caller, operation, resource: None };
        inner.judged(filter::SIGNATURE, DeniedKind::Unauthenticated, finding, &asking).map(drop)
    }

    /// Verifies the signature over a whole request, or the events' own where that is accepted. Who signed is who
    /// calls, if nothing else said so.
    ///
    /// # Errors
    /// [`Denied`] when it is missing or wrong.
    pub fn verify(
        &self,
        caller: &Caller,
        head: &SignedHead<'_>,
        body: &[u8],
        operation: Action,
    ) -> Result<Verified, Denied> {
        let inner = &*self.0;
        let is_ticket = caller.identity().credential == CredentialKind::Ticket;
        let Some(filter) = inner.parts.chain.signature.as_ref().filter(|_| !is_ticket) else {
            return Ok(Verified { caller: caller.clone(), by_event: false });
        };
        let now = inner.parts.clock.now();
        let is_signed = !(head.header)("signature-input").is_empty();
        if !is_signed && filter.takes_legacy() && operation == Action::Publish {
            return Ok(Verified { caller: caller.clone(), by_event: true });
        }
        let finding = filter.verify(caller, head, body, now);
        inner.signed(caller, operation, finding)
    }

    /// Verifies the signature that an event carries itself, where [`Verified::by_event`] asks for it.
    ///
    /// # Errors
    /// [`Denied`] when it is missing or wrong.
    pub fn verify_event(&self, caller: &Caller, event: &Event) -> Result<Caller, Denied> {
        let inner = &*self.0;
        let Some(filter) = &inner.parts.chain.signature else { return Ok(caller.clone()) };
        let finding = filter.verify_legacy(caller, event, inner.parts.clock.now());
        Ok(inner.signed(caller, Action::Publish, finding)?.caller)
    }
}

impl Inner {
    /// Whether a credential is still good.
    pub(super) fn holds(&self, identity: &Identity) -> bool {
        let is_over = identity.expires_at.is_some_and(|end| end <= self.parts.clock.now());
        !is_over && self.parts.chain.token.as_ref().is_none_or(|token| token.still_holds(identity))
    }

    fn signed(
        &self,
        caller: &Caller,
        operation: Action,
        finding: Finding<Arc<Identity>>,
    ) -> Result<Verified, Denied> {
        if let Finding::Pass(identity) = finding {
            self.verdicts.signature_passed.inc();
            return Ok(Verified { caller: caller.known_as(identity), by_event: false });
        }
        let asking = Asking { caller, operation, resource: None };
        let caller = match self.judged(filter::SIGNATURE, DeniedKind::Unauthenticated, finding, &asking)? {
            Judged::Passed(identity) => caller.known_as(identity),
            Judged::FailedOpen => caller.although(filter::SIGNATURE),
        };
        Ok(Verified { caller, by_event: false })
    }
}
