//! The key file: who signs with which key, and when.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use data_encoding::BASE64;
use mesh_base::UnixMillis;
use mesh_frame::parse_timestamp;
use ring::{
    hmac::{self, HMAC_SHA256},
    signature::{ED25519, UnparsedPublicKey},
};

use crate::{CredentialKind, Identity, entries, filter::LoadError, holder};

/// How long a shared secret must be, in bytes.
const SHORTEST_SECRET: usize = 32;
/// What stands before the 32 bytes of an Ed25519 key in a PEM file (RFC 8410): its type.
const ED25519_IN_DER: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// A key that a principal signs with.
#[derive(Debug)]
pub(super) struct SigningKey {
    pub(super) id: String,
    verifier: Verifier,
    /// Whose.
    pub(super) holder: Arc<Identity>,
    not_before: Option<UnixMillis>,
    not_after: Option<UnixMillis>,
}

#[derive(Debug)]
enum Verifier {
    Hmac(hmac::Key),
    Ed25519([u8; 32]),
}

impl SigningKey {
    /// The name of its algorithm in RFC 9421.
    pub(super) fn algorithm(&self) -> &'static str {
        match self.verifier {
            Verifier::Hmac(_) => "hmac-sha256",
            Verifier::Ed25519(_) => "ed25519",
        }
    }

    /// Whether it signed that. Of a MAC every byte is compared, whatever the first ones are.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.verifier {
            Verifier::Hmac(key) => hmac::verify(key, message, signature).is_ok(),
            Verifier::Ed25519(key) => {
                UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
            }
        }
    }

    /// Whether it is a shared secret.
    pub(super) fn is_secret(&self) -> bool {
        matches!(self.verifier, Verifier::Hmac(_))
    }

    /// Whether it may be used at that time.
    pub(super) fn holds(&self, now: UnixMillis) -> bool {
        self.not_before.is_none_or(|begin| begin <= now) && self.not_after.is_none_or(|end| now < end)
    }
}

/// The keys of a file.
#[derive(Debug)]
pub(super) struct SigningKeys(HashMap<String, Arc<SigningKey>>);

impl SigningKeys {
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, LoadError> {
        let mut keys = HashMap::new();
        let mut seen = HashSet::new();
        for mut entry in entries::parse(path, text, "key")? {
            let id = entry.required("id")?;
            if id.len() > 255 || !id.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
                return Err(entry.unusable("`id` must have up to 255 printable ASCII characters".into()));
            }
            let algorithm = entry.required("algorithm")?;
            let (secret, public_key) = (entry.text("secret")?, entry.text("publicKey")?);
            let (verifier, bytes) = match (algorithm.as_str(), secret, public_key) {
                ("hmac-sha256", Some(secret), None) => {
                    let secret = BASE64.decode(secret.as_bytes()).unwrap_or_default();
                    if secret.len() < SHORTEST_SECRET {
                        let problem = format!("`secret` must be {SHORTEST_SECRET} bytes or more in base64");
                        return Err(entry.unusable(problem));
                    }
                    (Verifier::Hmac(hmac::Key::new(HMAC_SHA256, &secret)), secret)
                }
                ("ed25519", None, Some(key)) => {
                    let key = ed25519(&key).ok_or_else(|| {
                        entry.unusable(
                            "`publicKey` must be an Ed25519 key, as 32 bytes in base64 or as PEM".into(),
                        )
                    })?;
                    (Verifier::Ed25519(key), key.to_vec())
                }
                ("hmac-sha256", ..) => {
                    return Err(entry.unusable("`hmac-sha256` goes with `secret` alone".into()));
                }
                ("ed25519", ..) => return Err(entry.unusable("`ed25519` goes with `publicKey` alone".into())),
                _ => return Err(entry.unusable("`algorithm` must be `hmac-sha256` or `ed25519`".into())),
            };
            let mut holder = holder::of(&mut entry, CredentialKind::Signature)?;
            let mut time = |name: &str| match entry.text(name)? {
                None => Ok(None),
                Some(text) => match parse_timestamp(&text).and_then(|time| u64::try_from(time).ok()) {
                    Some(time) => Ok(Some(UnixMillis(time))),
                    None => Err(entry.unusable(format!("`{name}` must be an RFC 3339 time with its zone"))),
                },
            };
            let (not_before, not_after) = (time("notBefore")?, time("notAfter")?);
            if let (Some(begin), Some(end)) = (not_before, not_after)
                && end <= begin
            {
                return Err(entry.unusable("`notAfter` must be later than `notBefore`".into()));
            }
            holder.expires_at = not_after;
            if !seen.insert(bytes) {
                return Err(entry.unusable("another key is the same".into()));
            }
            let key =
                SigningKey { id: id.clone(), verifier, holder: Arc::new(holder), not_before, not_after };
            if keys.insert(id, Arc::new(key)).is_some() {
                return Err(entry.unusable("another key has the same `id`".into()));
            }
            entry.finish(
                "`id`, `algorithm`, `secret`, `publicKey`, `tenant`, `principal`, `roles`, `notBefore` and `notAfter`",
            )?;
        }
        Ok(Self(keys))
    }

    /// The key of that id.
    pub(super) fn get(&self, id: &str) -> Option<&Arc<SigningKey>> {
        self.0.get(id)
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<SigningKey>> {
        self.0.values()
    }

    /// How many there are, one at least.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}

/// A public key in base64, or in PEM.
fn ed25519(text: &str) -> Option<[u8; 32]> {
    let text = text.trim();
    let Some(rest) = text.strip_prefix("-----BEGIN PUBLIC KEY-----") else {
        return BASE64.decode(text.as_bytes()).ok()?.try_into().ok();
    };
    let body: String = rest.strip_suffix("-----END PUBLIC KEY-----")?.split_ascii_whitespace().collect();
    BASE64.decode(body.as_bytes()).ok()?.strip_prefix(&ED25519_IN_DER)?.try_into().ok()
}
