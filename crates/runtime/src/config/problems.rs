//! What is wrong with a configuration, and what is only remarkable.
//!
//! All problems of a start are printed together; each names the key, its value (masked when it is a secret),
//! where the value comes from, what is accepted, and the known key that was probably meant.

use std::fmt;

use mesh_base::without_url_secrets;

use super::{
    declared::Declared,
    origin::{Origin, Pair},
    secret::MASK,
};

/// Something that stops the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key or variable; for what is not about a key, what it is about.
    pub key: String,
    /// Its value, masked when it could be a secret; `None` when there is none.
    pub value: Option<String>,
    /// Where the value comes from; `None` when none was given.
    pub origin: Option<Origin>,
    /// What is wrong, as half a sentence.
    pub wrong: String,
    /// What is accepted instead.
    pub accepted: Option<String>,
    /// The known name that was probably meant.
    pub nearest: Option<String>,
}

impl Problem {
    /// A problem with a value of a known key.
    pub(crate) fn with_value(key: &dyn Declared, pair: &Pair, wrong: impl Into<String>) -> Self {
        Self {
            key: key.about().name.to_owned(),
            value: Some(if key.about().secret && !pair.value.is_empty() {
                MASK.to_owned()
            } else {
                pair.value.clone()
            }),
            origin: Some(pair.origin.clone()),
            wrong: wrong.into(),
            accepted: Some(key.accepted()),
            nearest: None,
        }
    }

    /// A known key has no value and needs one.
    pub(crate) fn without_value(key: &dyn Declared, wrong: impl Into<String>) -> Self {
        Self {
            key: key.about().name.to_owned(),
            value: None,
            origin: None,
            wrong: wrong.into(),
            accepted: Some(key.accepted()),
            nearest: None,
        }
    }

    /// A problem with a source as such.
    pub(crate) fn with_source(about: impl Into<String>, origin: Origin, wrong: impl Into<String>) -> Self {
        Self {
            key: about.into(),
            value: None,
            origin: Some(origin),
            wrong: wrong.into(),
            accepted: None,
            nearest: None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if let Some(value) = &self.value {
            write!(f, " = {}", printable(&without_url_secrets(value)))?;
        }
        if let Some(origin) = &self.origin {
            write!(f, " (from {origin})")?;
        }
        write!(f, ": {}", without_url_secrets(&self.wrong))?;
        if let Some(accepted) = &self.accepted {
            write!(f, "\n      accepted: {accepted}")?;
        }
        if let Some(nearest) = &self.nearest {
            write!(f, "\n      did you mean {nearest}?")?;
        }
        Ok(())
    }
}

/// The value on one line, whatever is in it.
fn printable(value: &str) -> String {
    if value.is_empty() {
        return "(blank)".to_owned();
    }
    value.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// All problems of a start, as they are printed.
pub(crate) fn report(problems: &[Problem]) -> String {
    let count = match problems.len() {
        1 => "one problem".to_owned(),
        n => format!("{n} problems"),
    };
    let mut text = format!("eventmesh: the configuration has {count}; nothing was started.\n");
    for problem in problems {
        text.push_str(&format!("  - {problem}\n"));
    }
    text
}

/// Something that does not stop the start and that a person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning(pub String);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
