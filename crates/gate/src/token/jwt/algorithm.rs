//! The algorithms of signed tokens, and the keys that go with them.
//!
//! A key knows the one algorithm it is for, and is never used for another: what a token claims can only pick
//! among the keys, not decide how one is read. A public key taken for a shared secret is therefore not possible.

use ring::{
    hmac,
    signature::{
        ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
        UnparsedPublicKey,
    },
};

/// What a token may be signed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Algorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// RSA PKCS #1 v1.5 with SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Hs256, Self::Rs256, Self::Es256, Self::EdDsa];

    /// The name in a token and in a key set.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }

    /// The one of that name; the case counts.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// A key that verifies.
#[derive(Debug)]
pub(crate) enum VerifyingKey {
    /// A shared secret.
    Hmac(hmac::Key),
    /// Modulus and exponent, without leading zeros.
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    /// An uncompressed point.
    P256([u8; 65]),
    /// A public key.
    Ed25519([u8; 32]),
}

impl VerifyingKey {
    /// What it is for.
    pub(crate) fn algorithm(&self) -> Algorithm {
        match self {
            Self::Hmac(_) => Algorithm::Hs256,
            Self::Rsa(_) => Algorithm::Rs256,
            Self::P256(_) => Algorithm::Es256,
            Self::Ed25519(_) => Algorithm::EdDsa,
        }
    }

    /// Whether it signed that.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Hmac(key) => hmac::verify(key, message, signature).is_ok(),
            Self::Rsa(key) => key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature).is_ok(),
            Self::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature).is_ok()
            }
            Self::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok(),
        }
    }
}
