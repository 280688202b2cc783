//! Keys of what tenants may use.

use crate::config::{
    declared::{Fallback, Group, keys},
    kind::{Bytes, Count, File},
};

/// This group.
pub const GROUP: Group = Group {
    title: "Tenant quotas",
    about: "What each tenant may use. They hold whether the gate is closed or not; over a quota a request is answered \
            429. Rates and connections are counted by each instance for itself.",
};

const ANY: Count = Count { min: 0, max: 1_000_000_000 };
const UNLIMITED: Fallback = Fallback::Unset("unlimited");

keys! {
    CONNECTIONS: Count = ANY,
    "eventmesh.security.gate.quota.connections", UNLIMITED,
    "Open connections of a tenant.", never_blank;

    SUBSCRIPTIONS: Count = ANY,
    "eventmesh.security.gate.quota.subscriptions", UNLIMITED,
    "Subscriptions of a tenant.", never_blank;

    EVENTS: Count = ANY,
    "eventmesh.security.gate.quota.eventsPerSecond", UNLIMITED,
    "Events a second that a tenant may publish; a second's worth may come at once.", never_blank;

    BYTES: Bytes = Bytes { min: 0, max: 1 << 40 },
    "eventmesh.security.gate.quota.bytesPerSecond", UNLIMITED,
    "Bytes a second that a tenant may publish.", never_blank;

    BACKLOG: Count = ANY,
    "eventmesh.security.gate.quota.backlog", UNLIMITED,
    "Deliveries of a tenant that are handed out and neither finished nor timed out. When it is reached polls are \
     answered `[]` and streams wait.", never_blank;

    FILE: File = File,
    "eventmesh.security.gate.quota.file", Fallback::Unset("the same for every tenant"),
    "The limits of tenants that have their own: TOML of `[[tenant]]` with `name` and any of `connections`, \
     `subscriptions`, `eventsPerSecond`, `bytesPerSecond`, `backlog`.", never_blank;
}
