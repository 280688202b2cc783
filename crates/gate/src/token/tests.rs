//! Tokens of a file, client certificates, signed tokens and their keys.

mod attacks;
mod certificates;
mod files;
mod issuer;
mod rotation;
mod settings;

use std::{path::PathBuf, sync::Arc};

use mesh_base::UnixMillis;
use tempfile::TempDir;

use super::*;

/// The time in these tests.
const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

/// A folder for the files of a test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// Writes a file anew, so that it is another one than before.
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        let fresh = self.0.path().join("fresh");
        fs::write(&fresh, text).expect("written");
        fs::rename(&fresh, &path).expect("renamed");
        path
    }
}

/// What a finding comes to, in words that can be compared.
fn told(finding: Finding<Arc<Identity>>) -> String {
    match finding {
        Finding::Pass(identity) => format!(
            "{} of {} with {}",
            identity.principal.as_ref().map_or("nobody", |principal| principal.as_str()),
            identity.tenant,
            identity.roles.join("+")
        ),
        Finding::Deny(reason) => format!("denied: {reason}"),
        Finding::Malformed(reason) => format!("malformed: {reason}"),
        Finding::Broken { reason, retry_after } => format!("broken for {retry_after:?}: {reason}"),
    }
}

fn bearer(filter: &TokenAuthFilter, token: &str) -> String {
    told(filter.authenticate(Some(format!("Bearer {token}").as_bytes()), None, NOW))
}
