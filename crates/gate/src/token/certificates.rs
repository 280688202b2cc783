//! The certificate file: who is meant by which name in a client certificate.

use std::{collections::HashMap, path::Path, sync::Arc};

use super::fingerprint::Fingerprints;
use crate::{CertificateNames, CredentialKind, EntryId, Identity, entries, filter::LoadError, holder};

/// The kinds of alternative names.
const KINDS: [&str; 4] = ["DNS", "URI", "EMAIL", "IP"];

/// The entries of a file.
#[derive(Debug, Default)]
pub(super) struct Certificates {
    /// By the name they go by.
    names: HashMap<Name, Arc<Identity>>,
    entries: HashMap<EntryId, Arc<Identity>>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Name {
    Common(String),
    Alternative(String),
}

/// Whom the names of a certificate mean.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meant<'a> {
    Nobody,
    One(&'a Arc<Identity>),
    /// More than one, and not the same.
    Several,
}

impl Certificates {
    pub(super) fn parse(path: &Path, text: &str, fingerprints: &Fingerprints) -> Result<Self, LoadError> {
        let mut certificates = Self::default();
        for mut entry in entries::parse(path, text, "certificate")? {
            let name = match (entry.text("commonName")?, entry.text("san")?) {
                (Some(name), None) => Name::Common(name),
                (None, Some(name)) => match alternative(&name) {
                    Some(name) => Name::Alternative(name),
                    None => {
                        let kinds = KINDS.join(":…`, `");
                        return Err(entry.unusable(format!("`san` must be one of `{kinds}:…`")));
                    }
                },
                (Some(_), Some(_)) => {
                    return Err(entry.unusable("`commonName` and `san` exclude each other".into()));
                }
                (None, None) => return Err(entry.unusable("`commonName` or `san` is missing".into())),
            };
            let identity = holder::of(&mut entry, CredentialKind::Certificate)?;
            // No token has a blank in it, so none is taken for this.
            let id = match &name {
                Name::Common(name) => fingerprints.of(format!("common name {name}").as_bytes()),
                Name::Alternative(name) => fingerprints.of(format!("alternative name {name}").as_bytes()),
            };
            let identity = Arc::new(Identity { entry: Some(EntryId(id)), ..identity });
            certificates.entries.insert(EntryId(id), identity.clone());
            if certificates.names.insert(name, identity).is_some() {
                return Err(entry.unusable("another entry goes by the same name".into()));
            }
            entry.finish("`commonName`, `san`, `tenant`, `principal` and `roles`")?;
        }
        Ok(certificates)
    }

    /// Whom a verified certificate with these names means.
    pub(super) fn holder(&self, names: CertificateNames<'_>) -> Meant<'_> {
        let common = names.common_name.iter().map(|name| Name::Common((*name).to_owned()));
        let alternative =
            names.alternative.iter().filter_map(|name| alternative(name).map(Name::Alternative));
        let mut meant = Meant::Nobody;
        for holder in common.chain(alternative).filter_map(|name| self.names.get(&name)) {
            match meant {
                Meant::One(other) if !other.is_holder_of(holder) => return Meant::Several,
                _ => meant = Meant::One(holder),
            }
        }
        meant
    }

    /// Whom an entry means.
    pub(super) fn of_entry(&self, entry: EntryId) -> Option<&Arc<Identity>> {
        self.entries.get(&entry)
    }
}

/// An alternative name as it is compared: the case of a domain does not count.
fn alternative(name: &str) -> Option<String> {
    let (kind, value) = name.split_once(':')?;
    if value.is_empty() || !KINDS.contains(&kind) {
        return None;
    }
    Some(if kind == "DNS" { format!("DNS:{}", value.to_ascii_lowercase()) } else { name.to_owned() })
}
