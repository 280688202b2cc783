//! Signed tokens of an issuer (JWT, RFC 7519), verified as RFC 8725 advises.
//!
//! Only compact JWS is taken: header, claims, signature, in strict base64url. The header picks a key by `kid` and
//! names the algorithm, which must be allowed and be the key's own; it can bring no key along (`jwk`, `jku`, `x5u`,
//! `x5c`), and asking for an extension (`crit`) is refused. Claims are read after the signature held.

mod algorithm;
mod cache;
mod claims;
mod fetch;
mod key_set;
mod keys;
mod settings;
mod strict_json;

use std::{borrow::Cow, sync::Arc};

use data_encoding::BASE64URL_NOPAD;
use mesh_base::{Clock, UnixMillis};
use serde_json::Value;

use self::{
    algorithm::Algorithm,
    cache::{Cache, Verified},
    claims::ClaimRules,
    keys::{Found, Held, Keys},
};
pub use self::{
    fetch::{FetchFailed, Fetching, KeyFetcher},
    settings::{JwtSettings, check_key_set_url},
};
use super::fingerprint::Fingerprint;
use crate::{
    Identity,
    filter::{Finding, LoadError, Reload},
};

/// The largest token that is looked at, in bytes.
const LARGEST: usize = 8 << 10;
/// How many verified tokens are remembered.
const MOST_CACHED: usize = 10_000;

/// Verifies signed tokens.
#[derive(Debug)]
pub(super) struct JwtVerifier {
    keys: Keys,
    allowed: Vec<Algorithm>,
    rules: ClaimRules,
    cache: Cache,
}

/// What a token that is not verified yet says of itself.
struct Unverified<'a> {
    algorithm: Algorithm,
    kid: Option<String>,
    /// Header and claims as they were signed.
    signed: &'a str,
    claims: &'a str,
    signature: Vec<u8>,
}

impl JwtVerifier {
    /// A verifier, where one is configured at all.
    pub(super) fn load(
        settings: &JwtSettings,
        fetcher: Option<Arc<dyn KeyFetcher>>,
    ) -> Result<Option<Self>, LoadError> {
        let Some(plan) = settings.plan(fetcher)? else { return Ok(None) };
        let keys = Keys::load(
            plan.allowed.clone(),
            settings.secret_file.as_deref(),
            settings.key_set_file.as_deref(),
            plan.fetched,
        )?;
        Ok(Some(Self { keys, allowed: plan.allowed, rules: plan.rules, cache: Cache::new(MOST_CACHED) }))
    }

    /// Whose token that is.
    pub(super) fn authenticate(
        &self,
        token: &str,
        fingerprint: Fingerprint,
        now: UnixMillis,
    ) -> Finding<Arc<Identity>> {
        let held = self.keys.held();
        if let Some(known) = self.cache.get(&fingerprint, held.revision, now)
            && (!known.by_fetched_key || self.keys.is_fresh(now))
        {
            return Finding::Pass(known.identity);
        }
        match self.verify(token, &held, now) {
            Ok(verified) => {
                let identity = verified.identity.clone();
                self.cache.put(fingerprint, verified);
                Finding::Pass(identity)
            }
            Err(finding) => finding,
        }
    }

    fn verify(&self, token: &str, held: &Held, now: UnixMillis) -> Result<Verified, Finding<Arc<Identity>>> {
        let denied = |reason: &'static str| Finding::Deny(Cow::Borrowed(reason));
        let unverified = self.take_apart(token).map_err(denied)?;
        let (key, is_fetched) =
            match self.keys.find(held, unverified.algorithm, unverified.kid.as_deref(), now) {
                Found::Key { key, is_fetched } => (key, is_fetched),
                Found::Unknown => return Err(denied("the token's key is not known")),
                Found::Ambiguous => return Err(denied("the token does not say which key signed it (kid)")),
                Found::NotNow(reason, retry_after) => {
                    return Err(Finding::Broken { reason: reason.into(), retry_after });
                }
            };
        if !key.verifies(unverified.signed.as_bytes(), &unverified.signature) {
            return Err(denied("the token's signature does not hold"));
        }
        let claims = decoded(unverified.claims)
            .and_then(|claims| strict_json::object(&claims))
            .ok_or_else(|| denied("the token's claims cannot be read"))?;
        let identity = self.rules.identity(&claims, now).map_err(denied)?;
        let until = identity.expires_at.expect("a signed token has an end");
        Ok(Verified { identity, until, revision: held.revision, by_fetched_key: is_fetched })
    }

    fn take_apart<'a>(&self, token: &'a str) -> Result<Unverified<'a>, &'static str> {
        if token.len() > LARGEST {
            return Err("the token is too large");
        }
        const SHAPE: &str = "the token is not a signed token";
        let (signed, signature) = token.rsplit_once('.').ok_or(SHAPE)?;
        let (header, claims) = signed.split_once('.').ok_or(SHAPE)?;
        let signature = decoded(signature).filter(|signature| !signature.is_empty()).ok_or(SHAPE)?;
        let header = decoded(header).and_then(|header| strict_json::object(&header)).ok_or(SHAPE)?;
        const REFUSED: [&str; 8] = ["crit", "jwk", "jku", "x5u", "x5c", "b64", "zip", "enc"];
        if REFUSED.iter().any(|member| header.contains_key(*member)) {
            return Err("the token's header asks for what is not supported");
        }
        let is_access_token = header.get("typ").is_none_or(|kind| {
            let kind = kind.as_str().unwrap_or_default();
            ["JWT", "at+jwt", "application/at+jwt"].iter().any(|known| known.eq_ignore_ascii_case(kind))
        });
        if !is_access_token {
            return Err("the token is of another type (typ)");
        }
        let algorithm = header
            .get("alg")
            .and_then(Value::as_str)
            .and_then(Algorithm::named)
            .filter(|algorithm| self.allowed.contains(algorithm))
            .ok_or("the token's algorithm is not accepted")?;
        let kid = match header.get("kid") {
            None => None,
            Some(Value::String(kid)) => Some(kid.clone()),
            Some(_) => return Err(SHAPE),
        };
        Ok(Unverified { algorithm, kid, signed, claims, signature })
    }

    pub(super) fn reload(&self) -> Result<Reload, LoadError> {
        self.keys.reload()
    }

    pub(super) async fn refresh(&self, now: UnixMillis) -> Result<Reload, FetchFailed> {
        self.keys.refresh(now).await
    }

    pub(super) async fn fetched(&self) {
        self.keys.fetched().await;
    }

    pub(super) async fn keep_fresh(&self, clock: Clock) {
        self.keys.keep_fresh(clock).await;
    }
}

/// Base64url without padding, of which every text has one meaning.
fn decoded(text: &str) -> Option<Vec<u8>> {
    BASE64URL_NOPAD.decode(text.as_bytes()).ok()
}
