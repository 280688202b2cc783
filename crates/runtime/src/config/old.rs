//! Keys of earlier generations, `eventMesh.…`, and what replaces them.

use super::keys;

/// The old names without their prefix, and the key that took over.
const SUCCESSORS: [(&str, &str); 8] = [
    ("server.http.port", "eventmesh.http.port"),
    ("server.admin.http.port", "eventmesh.admin.port"),
    ("server.hostIp", "eventmesh.http.advertisedAddr"),
    ("storage.plugin.type", "eventmesh.storage.type"),
    ("connector.plugin.type", "eventmesh.storage.type"),
    ("metaStorage.plugin.type", "eventmesh.meta.type"),
    ("metaStorage.plugin.server-addr", "eventmesh.meta.addr"),
    ("registry.plugin.server-addr", "eventmesh.meta.addr"),
];

/// What an `eventMesh.…` name means today.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Successor<'a> {
    /// It was never an old key: it is this key of the security gate or the admin port with one capital too many,
    /// and ignoring it would leave a door open.
    Slip(&'static str),
    /// This key does what it did, or comes nearest.
    Key(&'a str),
    /// Nothing does.
    None,
}

/// The successor of `eventMesh.<rest>`; `nearest` is the known key that is most like it.
pub(crate) fn successor<'a>(rest: &str, nearest: Option<&'a str>) -> Successor<'a> {
    if let Some((_, key)) = SUCCESSORS.iter().find(|(old, _)| *old == rest) {
        return Successor::Key(key);
    }
    let small = format!("eventmesh.{rest}");
    let same = keys::all().map(|key| key.about().name).find(|name| *name == small);
    match (same, nearest) {
        (Some(key), _) if key.starts_with("eventmesh.security.") || key == "eventmesh.admin.token" => {
            Successor::Slip(key)
        }
        (Some(key), _) => Successor::Key(key),
        (None, Some(key)) => Successor::Key(key),
        (None, None) => Successor::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_successor_is_a_key() {
        for (old, new) in SUCCESSORS {
            assert!(keys::all().any(|key| key.about().name == new), "{old} -> {new}");
        }
    }

    #[test]
    fn an_old_key_leads_to_the_one_that_replaces_it() {
        for (rest, nearest, expected) in [
            ("server.http.port", None, Successor::Key("eventmesh.http.port")),
            ("http.port", None, Successor::Key("eventmesh.http.port")),
            ("htp.port", Some("eventmesh.http.port"), Successor::Key("eventmesh.http.port")),
            ("sysid", None, Successor::None),
            ("admin.token", None, Successor::Slip("eventmesh.admin.token")),
        ] {
            assert_eq!(successor(rest, nearest), expected, "{rest}");
        }
    }
}
