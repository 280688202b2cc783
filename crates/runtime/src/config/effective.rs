//! What holds in the end: every key, its value and where it comes from.

use std::fmt;

use super::origin::Origin;

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
