mod decisions;

use mesh_frame::TopicName;

use super::*;
use crate::{Basis, DeniedKind, Presented, Protocol, Resource};

#[test]
fn without_filters_everything_is_admitted_for_the_default_tenant_and_counted() {
    let signals = Signals::new();
    let gate = SecurityGate::open(TenantId::new("default").expect("legal"), &signals);
    let remote = "127.0.0.1:9".parse().ok();
    let presented = Presented {
        authorization: Some(b"Bearer x"),
        certificate: None,
        trace: None,
        remote,
        protocol: Protocol::Http,
    };
    let caller = gate.authenticate(&presented, Action::Publish).expect("no filter");
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
