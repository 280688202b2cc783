//! What holds in the end: every key, its value and where it comes from.

use std::{collections::HashMap, fmt};

use super::{
    keys,
    mode::Mode,
    origin::{Origin, Pair},
    secret::MASK,
    settings::Settings,
};

/// A key with the value that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// The key.
    pub key: &'static str,
    /// Its value, masked when it is a secret; `None` when it has none.
    pub value: Option<String>,
    /// Where the value comes from.
    pub origin: Origin,
    /// What holds without a value, for a key that has none.
    pub without: Option<&'static str>,
}

impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.value, self.without) {
            (Some(value), _) => write!(f, "{}={value}  # {}", self.key, self.origin),
            (None, Some(without)) => write!(f, "{}=  # unset: {without}", self.key),
            (None, None) => write!(f, "{}=  # unset", self.key),
        }
    }
}

impl Settings {
    /// Every key with the value that holds, in the order of the reference.
    pub fn effective(&self) -> &[Effective] {
        &self.effective
    }

    /// Those that somebody gave: what the start-up log names.
    pub fn given(&self) -> impl Iterator<Item = &Effective> {
        self.effective.iter().filter(|effective| effective.origin != Origin::Default)
    }
}

/// Makes the list from the winning pairs.
pub(crate) fn list(given: &HashMap<&'static str, Pair>, mode: Mode) -> Vec<Effective> {
    keys::all()
        .map(|key| {
            let about = key.about();
            let without = match about.fallback {
                keys::Fallback::Unset(without) => Some(without),
                _ => None,
            };
            let (value, origin) = match given.get(about.name).filter(|pair| !pair.value.is_empty()) {
                Some(pair) if about.secret => (Some(MASK.to_owned()), pair.origin.clone()),
                Some(pair) => (Some(pair.value.clone()), pair.origin.clone()),
                None => (about.fallback.value(mode).map(str::to_owned), Origin::Default),
            };
            Effective { key: about.name, value, origin, without }
        })
        .collect()
}
