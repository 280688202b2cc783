//! A text that is never printed.

use std::fmt;

pub(crate) use mesh_base::MASK;

/// A secret: `Debug` shows a mask, there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret with this text.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text, to be compared in constant time.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}
