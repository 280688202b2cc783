//! `SecurityGate`: authenticates callers and admits what they ask for.
//!
//! This is the gate without filters. It denies nothing, says so once, loudly, when it is made, and counts what
//! it let through as `no_gate`.

use std::sync::Arc;

use mesh_base::{Counter, Signals};
use mesh_frame::TenantId;

use crate::{Action, Admitted, Basis, Caller, Denied, Presented, Resource};

/// The gate; cheap to clone.
#[derive(Clone, Debug)]
pub struct SecurityGate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    default_tenant: TenantId,
    admitted_without_filter: Counter,
}

impl SecurityGate {
    /// The gate without filters: every caller belongs to `default_tenant`, everything is admitted.
    pub fn open(default_tenant: TenantId, signals: &Signals) -> Self {
        let verdicts = signals.counters("gate_verdicts", "Verdicts of the security gate by filter");
        let labels = vec![("filter", "no_gate".to_owned()), ("verdict", "allow".to_owned())];
        let admitted_without_filter = verdicts.get_or_create(&labels).clone();
        tracing::warn!("THE SECURITY GATE IS OPEN: no filter is configured, everybody may do everything");
        Self(Arc::new(Inner { default_tenant, admitted_without_filter }))
    }

    /// Whether no filter is configured; health says so.
    pub fn is_open(&self) -> bool {
        true
    }

    /// The tenant of a caller that presents no credential.
    pub fn default_tenant(&self) -> &TenantId {
        &self.0.default_tenant
    }

    /// Who presents this.
    ///
    /// # Errors
    /// [`Denied`] when a credential is needed and missing, or wrong. The open gate looks at none.
    pub fn authenticate(&self, presented: &Presented<'_>) -> Result<Caller, Denied> {
        Ok(Caller::new(self.0.default_tenant.clone(), None, presented))
    }

    /// Lets `value` through if `caller` may do `action` to `resource`.
    ///
    /// # Errors
    /// [`Denied`] when it may not, or not now.
    pub fn admit<T>(
        &self,
        caller: &Caller,
        action: Action,
        resource: Resource<'_>,
        value: T,
    ) -> Result<Admitted<T>, Denied> {
        tracing::trace!(action = action.as_str(), ?resource, tenant = %caller.tenant(), "admitted: no filter");
        self.0.admitted_without_filter.inc();
        Ok(Admitted::new(value, caller.clone(), Basis::NoGate))
    }
}

#[cfg(test)]
mod tests {
    use mesh_frame::TopicName;

    use super::*;
    use crate::{DeniedKind, Protocol};

    #[test]
    fn without_filters_everything_is_admitted_for_the_default_tenant_and_counted() {
        let signals = Signals::new();
        let gate = SecurityGate::open(TenantId::new("default").expect("legal"), &signals);
        let remote = "127.0.0.1:9".parse().ok();
        let presented = Presented { authorization: Some(b"Bearer x"), remote, protocol: Protocol::Http };
        let caller = gate.authenticate(&presented).expect("no filter");
        assert_eq!((caller.tenant(), caller.principal()), (gate.default_tenant(), None));
        assert_eq!((caller.remote(), caller.protocol()), (remote, Protocol::Http));

        let topic = TopicName::client("orders").expect("legal");
        let admitted = gate.admit(&caller, Action::Publish, Resource::Topic(&topic), 7).expect("no filter");
        assert_eq!((*admitted.value(), admitted.basis()), (7, Basis::NoGate));
        assert_eq!(admitted.caller().tenant().as_str(), "default");
        assert_eq!(admitted.into_parts().0, 7);
        let line = r#"eventmesh_gate_verdicts_total{filter="no_gate",verdict="allow"} 1"#;
        assert!(signals.text().contains(line), "{}", signals.text());
    }

    #[test]
    fn every_denial_has_its_status() {
        let kinds = [
            DeniedKind::Unauthenticated,
            DeniedKind::Forbidden,
            DeniedKind::RateLimited,
            DeniedKind::QuotaExceeded,
        ];
        assert_eq!(kinds.map(DeniedKind::http_status), [401, 403, 429, 429]);
    }
}
