//! Turns names into keys: which source wins, and what becomes of a name that is no key.
//!
//! * A source beats the ones below it as a whole value, a blank one too; blank then means unset.
//! * An unknown `eventmesh.…` in the file or behind `-D` is a problem. An unknown variable is a warning, under
//!   `EVENTMESH_SECURITY_` and `EVENTMESH_ADMIN_` a problem: a slip there would leave a door open.
//! * The variables that Kubernetes makes for services are ignored: they are nobody's intention.

use std::collections::HashMap;

use mesh_base::{nearest, without_url_secrets};

use super::{
    declared::{Declared, Fallback},
    effective::Effective,
    keys,
    mode::Mode,
    old,
    origin::{Origin, Pair},
    problems::{Problem, Warning},
    secret::MASK,
};

/// The winning pair of each key that was given, blank ones included.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    pub(crate) given: HashMap<&'static str, Pair>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) warnings: Vec<Warning>,
}

impl Resolved {
    /// Every key with the value that holds, in the order of the reference.
    pub(crate) fn effective(&self, mode: Mode) -> Vec<Effective> {
        keys::all()
            .map(|key| {
                let about = key.about();
                let without = match about.fallback {
                    Fallback::Unset(without) => Some(without),
                    _ => None,
                };
                let (value, origin) = match self.given.get(about.name).filter(|pair| !pair.value.is_empty()) {
                    Some(pair) if about.secret => (Some(MASK.to_owned()), pair.origin.clone()),
                    Some(pair) => (Some(without_url_secrets(&pair.value).into_owned()), pair.origin.clone()),
                    None => (about.fallback.value(mode).map(str::to_owned), Origin::Default),
                };
                Effective { key: about.name, value, origin, without }
            })
            .collect()
    }
}

/// Sorts pairs by key and origin.
pub(crate) fn resolve(pairs: Vec<Pair>) -> Resolved {
    let mut resolved = Resolved::default();
    let mut links = Vec::new();
    for pair in pairs {
        match &pair.origin {
            Origin::Environment(name) if is_service_link(name, &pair.value) => links.push(name.clone()),
            Origin::Environment(name) => {
                match keys::all().find(|key| keys::variable(key.about().name) == *name) {
                    Some(key) => resolved.take(key, pair),
                    None => resolved.unknown_variable(&pair),
                }
            }
            _ => match keys::all().find(|key| key.about().name == pair.name) {
                Some(key) => resolved.take(key, pair),
                None => resolved.unknown_key(&pair),
            },
        }
    }
    if !links.is_empty() {
        let names = links.join(", ");
        resolved.warn(format!("these variables look like Kubernetes service links and are ignored: {names}"));
    }
    resolved
}

impl Resolved {
    fn take(&mut self, key: &'static dyn Declared, pair: Pair) {
        let name = key.about().name;
        let Some(other) = self.given.get(name) else {
            self.given.insert(name, pair);
            return;
        };
        if level(&other.origin) == level(&pair.origin) && other.value != pair.value {
            let text = format!(
                "{name} is given twice, in {} and in {}: the last one holds",
                other.origin, pair.origin
            );
            self.warn(text);
        }
        if level(&pair.origin) >= level(&self.given[name].origin) {
            self.given.insert(name, pair);
        }
    }

    fn unknown_key(&mut self, pair: &Pair) {
        let name = &pair.name;
        let nearest = nearest(name, keys::all().map(|key| key.about().name));
        if let Some(rest) = name.strip_prefix("eventMesh.") {
            match old::successor(rest, nearest) {
                old::Successor::Slip(key) => {
                    self.problem(
                        pair,
                        "the key is not known: names of keys begin with a small letter",
                        Some(key),
                    );
                }
                old::Successor::Key(key) => {
                    self.warn(format!(
                        "{name} (from {}) is an old key and is ignored; use {key}",
                        pair.origin
                    ));
                }
                old::Successor::None => {
                    self.warn(format!(
                        "{name} (from {}) is an old key without a successor; it is ignored",
                        pair.origin
                    ));
                }
            }
        } else if name.to_ascii_lowercase().replace('_', ".").starts_with("eventmesh.") {
            self.problem(pair, "the key is not known", nearest);
        } else {
            self.warn(format!("{name} (from {}) is no key of this program and is ignored", pair.origin));
        }
    }

    fn unknown_variable(&mut self, pair: &Pair) {
        let known: Vec<_> = keys::all().map(|key| keys::variable(key.about().name)).collect();
        let nearest = nearest(&pair.name, known.iter().map(String::as_str));
        let capitals = keys::variable(&pair.name);
        if ["EVENTMESH_SECURITY_", "EVENTMESH_ADMIN_"].iter().any(|prefix| capitals.starts_with(prefix)) {
            self.problem(pair, "the variable is not known", nearest);
        } else {
            let hint = nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            self.warn(format!("the variable {} belongs to no key and is ignored{hint}", pair.name));
        }
    }

    fn problem(&mut self, pair: &Pair, wrong: &str, nearest: Option<&str>) {
        self.problems.push(Problem {
            key: pair.name.clone(),
            value: Some(if could_be_secret(&pair.name, nearest) {
                MASK.to_owned()
            } else {
                pair.value.clone()
            }),
            origin: Some(pair.origin.clone()),
            wrong: wrong.to_owned(),
            accepted: None,
            nearest: nearest.map(str::to_owned),
        });
    }

    fn warn(&mut self, text: String) {
        self.warnings.push(Warning(text));
    }
}

/// Which source: the file, the environment, the command line.
fn level(origin: &Origin) -> u8 {
    match origin {
        Origin::Default => 0,
        Origin::File { .. } => 1,
        Origin::Environment(_) => 2,
        Origin::CommandLine => 3,
    }
}

/// Kubernetes gives every pod `<SERVICE>_SERVICE_HOST`, `<SERVICE>_PORT_<n>_TCP` and their like for each service, and
/// a service can be called `eventmesh` or `eventmesh-http`.
fn is_service_link(name: &str, value: &str) -> bool {
    let numbered_port = name.match_indices("_PORT_").any(|(at, found)| {
        let rest = &name[at + found.len()..];
        rest.split_once('_')
            .is_some_and(|(n, _)| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
    });
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || numbered_port
        || value.starts_with("tcp://")
        || value.starts_with("udp://")
}

/// A misspelt secret is a secret.
fn could_be_secret(name: &str, nearest: Option<&str>) -> bool {
    let secret = |key: &dyn Declared| {
        key.about().secret
            && nearest
                .is_some_and(|near| near == key.about().name || near == keys::variable(key.about().name))
    };
    let name = name.to_ascii_lowercase();
    let tell_tale = ["token", "secret", "passw", "credential", "apikey", "signature"];
    keys::all().any(secret) || tell_tale.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests;
