//! Every key, declared once: its name, its default, what it means, what it accepts.
//!
//! The server reads through these declarations, and `conf/eventmesh.properties`, `docs/configuration.md` and
//! every message are made from them. A file here holds the keys of one group; a new key is one entry in one of
//! them and one line in `validate.rs` that reads it.

pub mod admin;
pub mod delivery;
pub mod http;
pub mod node;
pub mod security;
pub mod storage;

use super::declared::{Declared, Group};

/// The groups with their keys, in the order of the reference.
pub fn groups() -> [(Group, &'static [&'static dyn Declared]); 13] {
    [
        (delivery::GROUP, delivery::KEYS),
        (storage::GROUP, storage::KEYS),
        (storage::topics::GROUP, storage::topics::KEYS),
        (http::GROUP, http::KEYS),
        (admin::GROUP, admin::KEYS),
        (node::meta::GROUP, node::meta::KEYS),
        (node::GROUP, node::KEYS),
        (security::GROUP, security::KEYS),
        (security::jwt::GROUP, security::jwt::KEYS),
        (security::quota::GROUP, security::quota::KEYS),
        (security::audit::GROUP, security::audit::KEYS),
        (security::tls::GROUP, security::tls::KEYS),
        (node::log::GROUP, node::log::KEYS),
    ]
}

/// Every key, in the order of the reference.
pub fn all() -> impl Iterator<Item = &'static dyn Declared> {
    groups().into_iter().flat_map(|(_, keys)| keys.iter().copied())
}

/// The name of the environment variable of a key: capitals, `.` becomes `_`, humps are not split.
pub fn variable(name: &str) -> String {
    name.to_ascii_uppercase().replace('.', "_")
}

#[cfg(test)]
mod tests;
