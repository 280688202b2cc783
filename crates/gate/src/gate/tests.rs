mod decisions;

use mesh_frame::TopicName;

use super::*;
use crate::{Asks, Basis, Cost, Presented, Protocol, Resource};

/// Asks to publish something to a topic.
struct Publish {
    topic: TopicName,
    cost: Cost,
}

impl Publish {
    /// One event of one byte.
    fn of(topic: TopicName) -> Self {
        Self { topic, cost: Cost { events: 1, bytes: 1 } }
    }
}

impl Asks for Publish {
    fn action(&self) -> Action {
        Action::Publish
    }

    fn resource(&self) -> Resource<'_> {
        Resource::Topic(&self.topic)
    }

    fn cost(&self) -> Option<Cost> {
        Some(self.cost)
    }
}

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
    let admitted = gate.admit(&caller, Publish::of(topic.clone())).expect("no filter");
    assert_eq!((&admitted.value().topic, admitted.basis()), (&topic, Basis::NoGate));
    assert_eq!(admitted.caller().tenant().as_str(), "default");
    assert_eq!(admitted.into_parts().0.topic, topic);
    let line = r#"eventmesh_gate_verdicts_total{filter="no_gate",verdict="allow"} 1"#;
    assert!(signals.text().contains(line), "{}", signals.text());
}
