//! Whether a caller may do what it asks for: whose it is, what the rules say, what the tenant has left.

use mesh_base::Lease;
use mesh_frame::TopicName;

use super::{
    Inner, SecurityGate,
    verdict::{Asking, Judged},
};
use crate::{
    AclFilter, Action, Admitted, Asks, Basis, Caller, Denied, DeniedKind, Identity, Outcome, Principal,
    RequestContext, Resource,
    filter::{self, Finding},
    quota::{Cost, Exceeded},
};

/// Whether something is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// It belongs to the caller, or has no owner yet.
    Own,
    /// It belongs to another principal, and the gate is open.
    OverOthers,
    /// For the caller it does not exist.
    Hidden,
}

impl SecurityGate {
    /// Whether what `owner` made may be touched by `caller`. What has no owner may be touched by every caller of the tenant.
    pub fn owns(
        &self,
        caller: &Caller,
        owner: Option<&str>,
        operation: Action,
        resource: Resource<'_>,
    ) -> Ownership {
        let principal = caller.principal().map(Principal::as_str);
        if owner.is_none() || owner == principal {
            return Ownership::Own;
        }
        self.not_owned(caller, operation, resource)
    }

    /// Decides about something that is known to belong to another principal, and keeps the decision.
    pub fn not_owned(&self, caller: &Caller, operation: Action, resource: Resource<'_>) -> Ownership {
        let inner = &*self.0;
        if inner.is_no_op {
            return Ownership::OverOthers;
        }
        let asking = Asking { caller, operation, resource: Some(resource) };
        let finding: Finding = Finding::Deny("it is another principal's".into());
        match inner.judged(filter::OWNER, DeniedKind::Forbidden, finding, &asking) {
            Ok(_) => Ownership::OverOthers,
            Err(_hidden) => Ownership::Hidden,
        }
    }

    /// Lets a request through if `caller` may do what it asks for, and takes what that costs from the rates of the
    /// topic and of the tenant. A request that is denied takes nothing.
    ///
    /// # Errors
    /// [`Denied`] when the caller may not do it, or not now.
    pub fn admit<T: Asks>(&self, caller: &Caller, request: T) -> Result<Admitted<T>, Denied> {
        let inner = &*self.0;
        let (action, resource) = (request.action(), request.resource());
        let asking = Asking { caller, operation: action, resource: Some(resource) };
        let mut although = caller.failed_open();
        if let Some(acl) = inner.parts.chain.acl.as_ref().filter(|_| action != Action::Unsubscribe) {
            let finding = judge(acl, caller.identity(), action, resource);
            if matches!(finding, Finding::Pass(())) {
                inner.verdicts.acl_passed.inc();
            } else if let Judged::FailedOpen =
                inner.judged(filter::ACL, DeniedKind::Forbidden, finding, &asking)?
            {
                although = although.or(Some(filter::ACL));
            }
        }
        if let Some(cost) = request.cost() {
            let topic = match resource {
                Resource::Topic(topic) if cost.events > 0 => Some(topic),
                Resource::Topic(_) | Resource::Client(..) | Resource::Deliveries(_) | Resource::Named(_) => {
                    None
                }
            };
            inner.charge(caller, topic, cost, &asking)?;
        }
        let basis = match although {
            _ if inner.is_no_op => Basis::NoGate,
            None => Basis::Passed,
            Some(_) => Basis::FailedOpen,
        };
        if inner.is_no_op {
            inner.verdicts.admitted_without_filter.inc();
        }
        // What failed open was kept when it did.
        let is_kept = although.is_none() && inner.interested(Outcome::Allowed, action);
        let context = RequestContext::new(caller.clone(), action, resource, is_kept);
        if is_kept {
            inner.keep(&inner.record(&asking, context.resource(), Outcome::Allowed, None, ""));
        }
        let limits = inner.parts.quota.limits(caller.tenant());
        Ok(Admitted::new(request, context, basis, limits))
    }

    /// One more connection of the caller's tenant, until the lease is dropped; `None`: they are not limited.
    ///
    /// # Errors
    /// [`Denied`] when the tenant has as many as it may.
    pub fn connection(&self, caller: &Caller, operation: Action) -> Result<Option<Lease>, Denied> {
        let inner = &*self.0;
        inner.parts.quota.connection(caller.tenant()).map_err(|exceeded| {
            let asking = Asking { caller, operation, resource: None };
            inner.exceeded(filter::QUOTA, DeniedKind::QuotaExceeded, exceeded, &asking)
        })
    }

    /// Whether connections of the caller's tenant are limited.
    pub fn limits_connections(&self, caller: &Caller) -> bool {
        self.0.parts.quota.limits(caller.tenant()).connections.is_some()
    }

    /// The denial for a limit that was found reached where it is counted: `subscriptions`, `backlog`.
    pub fn quota_exceeded(
        &self,
        caller: &Caller,
        operation: Action,
        resource: Resource<'_>,
        exceeded: Exceeded,
    ) -> Denied {
        let asking = Asking { caller, operation, resource: Some(resource) };
        self.0.exceeded(filter::QUOTA, DeniedKind::QuotaExceeded, exceeded, &asking)
    }
}

impl Inner {
    /// Takes what a publish costs: from the topic's rate, then from the tenant's.
    fn charge(
        &self,
        caller: &Caller,
        topic: Option<&TopicName>,
        cost: Cost,
        asking: &Asking<'_>,
    ) -> Result<(), Denied> {
        let taken = match topic {
            Some(topic) => self.parts.topic_rates.take(topic, cost.events).map_err(|exceeded| {
                self.exceeded(filter::RATE_LIMIT, DeniedKind::RateLimited, exceeded, asking)
            })?,
            None => None,
        };
        self.parts.quota.publish(caller.tenant(), cost).map_err(|exceeded| {
            if let Some(taken) = taken {
                taken.give_back();
            }
            self.exceeded(filter::QUOTA, DeniedKind::RateLimited, exceeded, asking)
        })
    }
}

fn judge(acl: &AclFilter, identity: &Identity, action: Action, resource: Resource<'_>) -> Finding {
    match resource {
        Resource::Topic(topic) => acl.judge(identity, action, topic.as_str()),
        Resource::Client(_, topics) => any(acl, identity, action, topics.iter()),
        Resource::Deliveries(topics) => any(acl, identity, action, topics.iter().flatten()),
        Resource::Named(name) => acl.judge(identity, action, name),
    }
}

/// Passes when it may have one of the topics, or when there is none; else the first objection.
fn any<'a>(
    acl: &AclFilter,
    identity: &Identity,
    action: Action,
    topics: impl Iterator<Item = &'a TopicName>,
) -> Finding {
    let mut objection = None;
    for topic in topics {
        match acl.judge(identity, action, topic.as_str()) {
            Finding::Pass(()) => return Finding::Pass(()),
            finding => objection = objection.or(Some(finding)),
        }
    }
    objection.unwrap_or(Finding::Pass(()))
}
