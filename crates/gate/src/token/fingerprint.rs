//! What a presented token is looked up by.

use ring::{
    digest::{SHA256, digest},
    hmac::{self, HMAC_SHA256},
    rand::SystemRandom,
};

/// A keyed digest of a token.
pub(crate) type Fingerprint = [u8; 32];

/// Makes fingerprints: HMAC-SHA256 over the SHA-256 of a token, under a key that this process drew for itself.
///
/// Tables keyed by fingerprints are looked up without care for time, and leak nothing: how long a look-up takes
/// depends on how the fingerprint of what is presented compares with those that are held, and who does not know
/// the key can neither tell nor steer a single bit of either. Nobody chooses which slot of a table he fills.
#[derive(Debug)]
pub(crate) struct Fingerprints(hmac::Key);

impl Fingerprints {
    /// With a key of its own.
    pub(crate) fn new() -> Self {
        let key = hmac::Key::generate(HMAC_SHA256, &SystemRandom::new());
        Self(key.expect("the system gives random bytes"))
    }

    /// The fingerprint of a token.
    pub(crate) fn of(&self, token: &[u8]) -> Fingerprint {
        self.of_sha256(digest(&SHA256, token).as_ref())
    }

    /// The fingerprint of a token with this SHA-256.
    pub(crate) fn of_sha256(&self, sha256: &[u8]) -> Fingerprint {
        hmac::sign(&self.0, sha256).as_ref().try_into().expect("HMAC-SHA256 gives 32 bytes")
    }
}
