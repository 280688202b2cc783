//! The files of a security gate: who there is, and what they may do.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use anyhow::Result;

use crate::Server;

/// The token of `name`, who is written as `tenant/principal`.
pub fn token_of(name: &str) -> String {
    format!("token-of-{}-0123456789", name.replace('/', "-"))
}

/// Tokens, rules and limits in a folder of their own; each is replaced as a whole, as operators are told to.
#[derive(Debug)]
pub struct Access(tempfile::TempDir);

impl Access {
    /// A folder without files.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new() -> Result<Self> {
        Ok(Self(tempfile::Builder::new().prefix("gate-").tempdir()?))
    }

    /// Where a file of that name is, or would be.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Puts a text in the place of a file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let (fresh, path) = (self.path("fresh"), self.path(name));
        std::fs::write(&fresh, text)?;
        restrict(&fresh)?;
        std::fs::rename(&fresh, &path)?;
        Ok(path)
    }

    /// The token file: each of `names` is `tenant/principal` and holds [`token_of`] it.
    ///
    /// # Errors
    /// When it cannot be written.
    ///
    /// # Panics
    /// When a name has no tenant.
    pub fn tokens(&self, names: &[&str]) -> Result<()> {
        let text = names.iter().fold(String::new(), |mut text, name| {
            let (tenant, principal) = name.split_once('/').expect("names are tenant/principal");
            let value = token_of(name);
            write!(
                text,
                "[[token]]\nname = \"{name}\"\nvalue = \"{value}\"\ntenant = \"{tenant}\"\nprincipal = \"{principal}\"\n"
            )
            .expect("a string takes everything");
            text
        });
        self.write("tokens.toml", &text).map(drop)
    }

    /// The access rules: each is effect, principal, action and resource; the order does not count, `DENY` wins.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn rules(&self, rules: &[(&str, &str, &str, &str)]) -> Result<()> {
        let text = rules.iter().fold(String::new(), |mut text, (effect, principal, action, resource)| {
            write!(
                text,
                "[[rule]]\nprincipal = \"{principal}\"\naction = \"{action}\"\nresource = \"{resource}\"\neffect = \"{effect}\"\n"
            )
            .expect("a string takes everything");
            text
        });
        self.write("acl.toml", &text).map(drop)
    }

    /// A server whose gate asks the tokens and the rules, and looks at them ten times a second. Where it is not
    /// told to be closed it is told nothing.
    #[must_use]
    pub fn guard(&self, server: Server, closed: bool) -> Server {
        let server = if closed { server.key("eventmesh.security.gate.failClosed", true) } else { server };
        server
            .key("eventmesh.security.gate.token.file", self.path("tokens.toml").display())
            .key("eventmesh.security.gate.acl.file", self.path("acl.toml").display())
            .key("eventmesh.security.reload.interval", "100ms")
    }
}

/// Nobody else reads it.
fn restrict(path: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}
