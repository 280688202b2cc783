//! Keys of the security gate.

use crate::config::{
    keys::{Fallback, Group, keys},
    kind::Switch,
};

/// This group.
pub const GROUP: Group = Group {
    title: "Security gate",
    about: "Who may do what. Nothing set: every request is allowed. The filters of the gate are not in this build.",
};

keys! {
    FAIL_CLOSED: Switch = Switch,
    "eventmesh.security.gate.failClosed", Fallback::Value("false"),
    "Whether a request that a filter denies, or cannot judge, is refused; with `false` it is allowed, counted and \
     audited. `true` stops the start while no filter is configured: there would be nothing to check against.";
}
