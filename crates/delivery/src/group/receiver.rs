//! `Receiver`: on whose behalf a client is used, and what may be handed out to it now.
//!
//! A client belongs to the principal that used it first, until its last subscription ends; for everybody else it
//! is not there. Rights can change while a client waits or has a stream open, so it is asked at each
//! hand-out, through a trait that the gate's side implements.

use std::{fmt, sync::Arc};

use mesh_frame::{TenantId, TopicName};

/// What may be handed out to a receiver; asked each time, so it must be quick and must not block.
pub trait HandOutTerms: Send + Sync {
    /// Whether it may be given events of this topic now.
    fn may_receive(&self, topic: &TopicName) -> bool;

    /// Whether it may be given nothing any more: what it was known by has ended. Its stream is closed.
    fn has_ended(&self) -> bool;

    /// What its tenant may have handed out and neither finished nor timed out; `None`: any number.
    fn backlog_limit(&self) -> Option<u64>;
}

/// Who receives.
#[derive(Clone)]
pub struct Receiver {
    tenant: TenantId,
    principal: Option<Arc<str>>,
    over_others: bool,
    terms: Option<Arc<dyn HandOutTerms>>,
}

impl Receiver {
    /// A caller of a tenant without a principal, who may receive everything.
    pub fn anybody(tenant: TenantId) -> Self {
        Self { tenant, principal: None, over_others: false, terms: None }
    }

    /// A caller of a tenant who may receive what the terms allow.
    pub fn new(tenant: TenantId, principal: Option<&str>, terms: Arc<dyn HandOutTerms>) -> Self {
        Self { tenant, principal: principal.map(Into::into), over_others: false, terms: Some(terms) }
    }

    /// The same, who may use what belongs to others.
    #[must_use]
    pub fn over_others(self) -> Self {
        Self { over_others: true, ..self }
    }

    /// Its tenant.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Its name, if it has one.
    pub fn principal(&self) -> Option<&str> {
        self.principal.as_deref()
    }

    /// Whether it may use what `owner` made. What has no owner may be used by every caller of the tenant.
    pub(crate) fn may_use(&self, owner: Option<&str>) -> bool {
        self.over_others || owner.is_none() || owner == self.principal()
    }

    pub(crate) fn may_receive(&self, topic: &TopicName) -> bool {
        self.terms.as_ref().is_none_or(|terms| !terms.has_ended() && terms.may_receive(topic))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.terms.as_ref().is_some_and(|terms| terms.has_ended())
    }

    pub(crate) fn backlog_limit(&self) -> Option<u64> {
        self.terms.as_ref().and_then(|terms| terms.backlog_limit())
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("tenant", &self.tenant)
            .field("principal", &self.principal)
            .field("over_others", &self.over_others)
            .finish_non_exhaustive()
    }
}
