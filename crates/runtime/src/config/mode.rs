//! The two ways to start a server.

use std::fmt;

/// How the server is started; decides some defaults and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `eventmesh standalone`: starts with nothing configured; embedded storage, loopback only.
    Standalone,
    /// `eventmesh server`: the strict one; the storage must be chosen.
    Server,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Standalone => "standalone",
            Self::Server => "server",
        })
    }
}
