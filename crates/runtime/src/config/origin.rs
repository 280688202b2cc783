//! Where a value comes from, and a value that knows it.

use std::{fmt, path::PathBuf};

/// Where a value comes from; shown in every message about it. The order is the order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// It was not given.
    Default,
    /// A line of the configuration file.
    File {
        /// The file, as it was named on the command line.
        path: PathBuf,
        /// The line, from 1; 0 for the file as a whole.
        line: usize,
    },
    /// The environment variable of this name.
    Environment(String),
    /// `-Dkey=value`.
    CommandLine,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line: 0 } => write!(f, "{}", path.display()),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => f.write_str(name),
            Self::CommandLine => f.write_str("-D"),
        }
    }
}

/// A name and a value as some source gave them: not yet known to be a key, trimmed, possibly blank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The key's name, or the variable's.
    pub name: String,
    /// The value; may be blank.
    pub value: String,
    /// Where it stands.
    pub origin: Origin,
}
