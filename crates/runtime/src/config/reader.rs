//! Reads single keys, collects what is wrong with them, and remembers which were read.

use std::collections::{HashMap, HashSet};

use super::{
    declared::{Declared, Fallback, Key},
    kind::Kind,
    mode::Mode,
    origin::Pair,
    problems::Problem,
};

/// The winning pairs, being read.
pub(crate) struct Reader {
    given: HashMap<&'static str, Pair>,
    mode: Mode,
    problems: Vec<Problem>,
    unsound: HashSet<&'static str>,
    read: HashSet<&'static str>,
}

impl Reader {
    pub(crate) fn new(given: HashMap<&'static str, Pair>, mode: Mode) -> Self {
        Self { given, mode, problems: Vec::new(), unsound: HashSet::new(), read: HashSet::new() }
    }

    /// The value that was given, else the default, else none; also none after a problem with a key without default.
    pub(crate) fn get<K: Kind>(&mut self, key: &Key<K>) -> Option<K::Value> {
        self.read.insert(key.about.name);
        match self.given_value(key) {
            Ok(Some(value)) => return Some(value),
            Ok(None) => {}
            Err(wrong) => self.forbid(key, wrong, None),
        }
        match (key.about.fallback.value(self.mode), key.about.fallback) {
            (Some(text), _) => Some(default(key, text)),
            (None, Fallback::RequiredByServer { .. }) if self.is_sound(key) => {
                self.forbid(key, MISSING_UNDER_SERVER, None);
                None
            }
            (None, _) => None,
        }
    }

    /// The value of a key that has a default in every mode.
    pub(crate) fn required<K: Kind>(&mut self, key: &Key<K>) -> K::Value {
        self.get(key).expect("a key with a default always has a value")
    }

    /// Whether the value that was given, if any, could be read: rules between keys look at sound ones only.
    pub(crate) fn is_sound(&self, key: &dyn Declared) -> bool {
        !self.unsound.contains(key.about().name)
    }

    /// Whether the key was given a value.
    pub(crate) fn is_given(&self, key: &dyn Declared) -> bool {
        self.given.get(key.about().name).is_some_and(|pair| !pair.value.is_empty())
    }

    /// Records what is wrong with a key, for what a rule between keys forbids.
    pub(crate) fn forbid(&mut self, key: &dyn Declared, wrong: impl Into<String>, accepted: Option<&str>) {
        let about = key.about();
        let mut problem =
            match self.given.get(about.name).filter(|pair| !pair.value.is_empty() || about.never_blank) {
                Some(pair) => Problem::with_value(key, pair, wrong),
                None => Problem::without_value(key, wrong),
            };
        if let Some(accepted) = accepted {
            problem.accepted = Some(accepted.to_owned());
        }
        self.unsound.insert(about.name);
        self.problems.push(problem);
    }

    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// How many different keys were read.
    #[cfg(test)]
    pub(crate) fn read_count(&self) -> usize {
        self.read.len()
    }

    /// The value that was given, or what is wrong with it.
    fn given_value<K: Kind>(&self, key: &Key<K>) -> Result<Option<K::Value>, String> {
        let Some(pair) = self.given.get(key.about.name) else { return Ok(None) };
        match pair.value.as_str() {
            "" if key.about.never_blank => {
                Err("is blank; that never means \"none\": leave the key out for that".to_owned())
            }
            "" => Ok(None),
            text if text.contains("${") => Err("holds a placeholder ${…} that nobody filled in".to_owned()),
            text => key.kind.read(text).map(Some),
        }
    }
}

const MISSING_UNDER_SERVER: &str = "a server needs it and it has no default \
                                    (`eventmesh standalone` starts with nothing configured)";

fn default<K: Kind>(key: &Key<K>, text: &str) -> K::Value {
    match key.kind.read(text) {
        Ok(value) => value,
        Err(wrong) => unreachable!("the default of {} {wrong}: a test reads them all", key.about.name),
    }
}
