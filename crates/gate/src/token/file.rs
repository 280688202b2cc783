//! The token file: who holds which token. What stands in it is held as a fingerprint, never in the clear.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use data_encoding::HEXLOWER_PERMISSIVE;
use ring::digest::{SHA256, digest};

use super::fingerprint::{Fingerprint, Fingerprints};
use crate::{CredentialKind, EntryId, Identity, entries, filter::LoadError, holder};

/// The shortest token that is accepted, in bytes: what can be guessed is none.
const SHORTEST: usize = 16;

/// The tokens of a file.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    holders: HashMap<Fingerprint, Arc<Identity>>,
    /// Whether one of them stands in the file in the clear.
    pub(super) has_plain: bool,
}

impl Tokens {
    pub(super) fn parse(path: &Path, text: &str, fingerprints: &Fingerprints) -> Result<Self, LoadError> {
        let mut tokens = Self::default();
        let mut names = HashSet::new();
        for mut entry in entries::parse(path, text, "token")? {
            let name = entry.required("name")?;
            let sha256 = match (entry.text("value")?, entry.text("sha256")?) {
                (Some(value), None) => {
                    if value.len() < SHORTEST || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
                        let problem =
                            format!("`value` must have {SHORTEST} or more visible ASCII characters");
                        return Err(entry.unusable(problem));
                    }
                    tokens.has_plain = true;
                    digest(&SHA256, value.as_bytes()).as_ref().to_vec()
                }
                (None, Some(hex)) => {
                    let sha256 = HEXLOWER_PERMISSIVE.decode(hex.as_bytes()).unwrap_or_default();
                    if sha256.len() != 32 {
                        return Err(entry.unusable("`sha256` must be 64 hexadecimal digits".into()));
                    }
                    if sha256 == digest(&SHA256, b"").as_ref() {
                        return Err(entry.unusable("`sha256` is that of nothing at all".into()));
                    }
                    sha256
                }
                (Some(_), Some(_)) => {
                    return Err(entry.unusable("`value` and `sha256` exclude each other".into()));
                }
                (None, None) => return Err(entry.unusable("`value` or `sha256` is missing".into())),
            };
            let identity = holder::of(&mut entry, CredentialKind::Token)?;
            if !names.insert(name) {
                return Err(entry.unusable("another token has the same `name`".into()));
            }
            let fingerprint = fingerprints.of_sha256(&sha256);
            let identity = Identity { entry: Some(EntryId(fingerprint)), ..identity };
            if tokens.holders.insert(fingerprint, Arc::new(identity)).is_some() {
                return Err(entry.unusable("another token is the same".into()));
            }
            entry.finish("`name`, `value`, `sha256`, `tenant`, `principal` and `roles`")?;
        }
        Ok(tokens)
    }

    /// Whose token that is.
    pub(super) fn holder(&self, fingerprint: &Fingerprint) -> Option<&Arc<Identity>> {
        self.holders.get(fingerprint)
    }
}
