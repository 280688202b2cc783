//! A key set as issuers publish it (JWKS, RFC 7517), reduced to the keys that tokens can be verified with.
//!
//! Keys of a kind that is not used here, for encryption, or that do not hold what their kind needs are passed
//! over, as the RFC asks. A set is refused as a whole when it holds a private key, when two keys of one
//! algorithm have one `kid`, or when nothing in it can be used.

use std::collections::HashSet;

use data_encoding::BASE64URL_NOPAD;
use ring::{
    hmac::{self, HMAC_SHA256},
    signature::RsaPublicKeyComponents,
};
use serde_json::{Map, Value};

use super::{
    algorithm::{Algorithm, VerifyingKey},
    strict_json,
};

/// The most keys a set may have.
const MOST_KEYS: usize = 1000;
/// How long a shared secret must be, in bytes: RFC 7518, 3.2.
pub(crate) const SHORTEST_SECRET: usize = 32;

/// Keys of an issuer.
#[derive(Debug, Default)]
pub(crate) struct KeySet(Vec<(Option<String>, VerifyingKey)>);

/// What a look-up in a key set gives.
#[derive(Debug)]
pub(crate) enum Selected<'a> {
    Key(&'a VerifyingKey),
    Unknown,
    /// The token names no key, and several could be meant.
    Ambiguous,
}

impl KeySet {
    /// The keys of a set for these algorithms. The error is a sentence without anything of a key.
    pub(crate) fn parse(body: &[u8], allowed: &[Algorithm]) -> Result<Self, String> {
        let set = strict_json::object(body).ok_or("this is not a JSON object, or it names a member twice")?;
        let Some(Value::Array(items)) = set.get("keys") else {
            return Err("there is no array `keys`".into());
        };
        if items.len() > MOST_KEYS {
            return Err(format!("there are more than {MOST_KEYS} keys"));
        }
        let mut keys = Vec::new();
        let mut seen = HashSet::new();
        for item in items {
            let Value::Object(item) = item else { return Err("`keys` must hold objects".into()) };
            if ["d", "p", "q", "dp", "dq", "qi", "oth"].iter().any(|member| item.contains_key(*member)) {
                return Err("it holds a private key, which does not belong here".into());
            }
            let kid = item.get("kid").and_then(Value::as_str).map(ToOwned::to_owned);
            let Some(key) = usable(item).filter(|key| allowed.contains(&key.algorithm())) else { continue };
            if let Some(kid) = &kid
                && !seen.insert((kid.clone(), key.algorithm()))
            {
                return Err("two keys of one algorithm have the same `kid`".into());
            }
            keys.push((kid, key));
        }
        if keys.is_empty() {
            return Err("it holds no key that can verify tokens of the allowed algorithms".into());
        }
        Ok(Self(keys))
    }

    /// The key for a token. A token without `kid` gets the only key of its algorithm.
    pub(crate) fn select(&self, kid: Option<&str>, algorithm: Algorithm) -> Selected<'_> {
        let mut fitting = self.0.iter().filter(|(name, key)| {
            key.algorithm() == algorithm && kid.is_none_or(|kid| name.as_deref() == Some(kid))
        });
        match (fitting.next(), fitting.next()) {
            (None, _) => Selected::Unknown,
            (Some((_, key)), None) => Selected::Key(key),
            (Some(_), Some(_)) => Selected::Ambiguous,
        }
    }
}

/// The key that an entry of a set describes, if it can verify and its members agree with each other.
fn usable(item: &Map<String, Value>) -> Option<VerifyingKey> {
    let text = |name: &str| item.get(name).and_then(Value::as_str);
    let bytes = |name: &str| BASE64URL_NOPAD.decode(text(name)?.as_bytes()).ok();
    let key = match (text("kty")?, text("crv")) {
        ("oct", _) => secret(&bytes("k")?)?,
        ("RSA", _) => {
            let number = |name: &str| {
                let number = bytes(name)?;
                let zeros = number.iter().take_while(|&&byte| byte == 0).count();
                Some(number[zeros..].to_vec())
            };
            let key = RsaPublicKeyComponents { n: number("n")?, e: number("e")? };
            if !(256..=1024).contains(&key.n.len()) {
                return None;
            }
            VerifyingKey::Rsa(key)
        }
        ("EC", Some("P-256")) => {
            let mut point = [4; 65];
            point[1..33].copy_from_slice(&<[u8; 32]>::try_from(bytes("x")?).ok()?);
            point[33..].copy_from_slice(&<[u8; 32]>::try_from(bytes("y")?).ok()?);
            VerifyingKey::P256(point)
        }
        ("OKP", Some("Ed25519")) => VerifyingKey::Ed25519(bytes("x")?.try_into().ok()?),
        _ => return None,
    };
    let is_for_signatures = item.get("use").is_none_or(|purpose| purpose == "sig");
    let verifies = item.get("key_ops").is_none_or(|operations| {
        operations
            .as_array()
            .is_some_and(|operations| operations.iter().any(|operation| operation == "verify"))
    });
    let agrees = item.get("alg").is_none_or(|algorithm| algorithm == key.algorithm().name());
    let is_named = item.get("kid").is_none_or(Value::is_string);
    (is_for_signatures && verifies && agrees && is_named).then_some(key)
}

/// A shared secret; none where it is short, or the text of a key that is no secret.
pub(crate) fn secret(bytes: &[u8]) -> Option<VerifyingKey> {
    let is_long = bytes.len() >= SHORTEST_SECRET;
    let is_pem = bytes.trim_ascii_start().starts_with(b"-----BEGIN");
    (is_long && !is_pem).then(|| VerifyingKey::Hmac(hmac::Key::new(HMAC_SHA256, bytes)))
}
