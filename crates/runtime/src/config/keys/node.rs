//! Keys of the instance itself.

use mesh_frame::{InstanceId, TenantId};

use crate::config::{
    declared::{Fallback, Group, keys},
    kind::{Name, Span},
};

pub mod log;
pub mod meta;

/// This group.
pub const GROUP: Group = Group { title: "Instance", about: "Who this instance is and how it ends." };

const NAME: &str = "1 to 255 bytes without control characters";

keys! {
    INSTANCE_ID: Name<InstanceId> = Name { read: InstanceId::new, accepted: NAME },
    "eventmesh.instance.id", Fallback::Unset("made once and kept in the data directory"),
    "The name of this instance among all that share a Meta store.";

    TENANT_DEFAULT: Name<TenantId> = Name { read: TenantId::new, accepted: NAME },
    "eventmesh.tenant.default", Fallback::Value("default"),
    "The tenant of requests that carry no credential.";

    SHUTDOWN_TIMEOUT: Span = Span { min_ms: 100, max_ms: 3_600_000, zero_means: None },
    "eventmesh.shutdown.timeout", Fallback::Value("10s"),
    "How long a planned stop may take before what is left is cut off.";
}
