//! The settings of signed tokens, and whether they make a whole.

use std::{path::PathBuf, sync::Arc, time::Duration};

use mesh_frame::TenantId;

use super::{algorithm::Algorithm, claims::ClaimRules, fetch::KeyFetcher, keys::FetchPlan};
use crate::filter::LoadError;

/// What the keys of these settings begin with.
const PREFIX: &str = "eventmesh.security.gate.token.jwt";
/// The longest leeway.
const MOST_LEEWAY: Duration = Duration::from_secs(300);

/// How signed tokens (JWT) of one issuer are verified.
///
/// They are verified when there is a source of keys: a key set from a file *or* a URL, a shared secret, or a set and
/// a secret. Then `issuer` and `audience` must be set too: without them a token that the issuer made for another
/// service would be accepted. Anything of it without a source of keys is refused, not ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// A key set (JWKS, RFC 7517) in a file, which is read again when it changes. Shared secrets (`oct`) in it count
    /// only where `algorithms` names `HS256`. (`….jwt.jwks.file`)
    pub key_set_file: Option<PathBuf>,
    /// Where the issuer publishes its key set: `https://…`, or `http://` to this machine. Shared secrets in it are
    /// never used. (`….jwt.jwks.url`)
    pub key_set_url: Option<String>,
    /// How often the set is fetched; an unknown `kid` makes it be fetched sooner, once in 30 seconds. A key that is
    /// no longer in the set is not used from then on. 5 minutes unless set. (`….jwt.jwks.refresh`)
    pub refresh_interval: Duration,
    /// For how long the last set holds when it cannot be fetched again; then no token of the issuer can be judged.
    /// 1 hour unless set, and not less than the interval. (`….jwt.jwks.maxStale`)
    pub max_stale: Duration,
    /// The shared secret for `HS256` in a file: its text without the end of the line, or base64 after `base64:`; 32
    /// bytes or more. It is used for every `HS256` token, whatever its `kid`. (`….jwt.secret.file`)
    pub secret_file: Option<PathBuf>,
    /// The algorithms that are accepted, of `HS256`, `RS256`, `ES256` and `EdDSA`. Empty: the last three with a key
    /// set, `HS256` with a secret. (`….jwt.algorithms`)
    pub algorithms: Vec<String>,
    /// What `iss` must be, to the letter. (`….jwt.issuer`)
    pub issuer: Option<String>,
    /// Of which one must be in `aud`. (`….jwt.audience`)
    pub audience: Vec<String>,
    /// By how much `exp` and `nbf` may be off: clocks differ. 30 seconds unless set, at most 5 minutes.
    /// (`….jwt.leeway`)
    pub leeway: Duration,
    /// The claim with the tenant, as all claims by its name or, where there is none of that name, by a dotted path
    /// such as `realm_access.roles`. `tenant` unless set. (`….jwt.claim.tenant`)
    pub tenant_claim: String,
    /// The tenant of a token that names none; without it such a token is refused. (`….jwt.tenant`)
    pub default_tenant: Option<TenantId>,
    /// The claim with the principal, `sub` unless set. (`….jwt.claim.principal`)
    pub principal_claim: String,
    /// The claim with the roles, `roles` unless set: a list, or words with blanks between. (`….jwt.claim.roles`)
    pub roles_claim: String,
}

impl Default for JwtSettings {
    fn default() -> Self {
        Self {
            key_set_file: None,
            key_set_url: None,
            refresh_interval: Duration::from_secs(300),
            max_stale: Duration::from_secs(3600),
            secret_file: None,
            algorithms: Vec::new(),
            issuer: None,
            audience: Vec::new(),
            leeway: Duration::from_secs(30),
            tenant_claim: "tenant".into(),
            default_tenant: None,
            principal_claim: "sub".into(),
            roles_claim: "roles".into(),
        }
    }
}

/// What complete settings come to.
pub(super) struct Plan {
    pub(super) allowed: Vec<Algorithm>,
    pub(super) rules: ClaimRules,
    pub(super) fetched: Option<FetchPlan>,
}

impl JwtSettings {
    /// What is to be done, `None` where nothing is set.
    pub(super) fn plan(&self, fetcher: Option<Arc<dyn KeyFetcher>>) -> Result<Option<Plan>, LoadError> {
        let has_set = self.key_set_file.is_some() || self.key_set_url.is_some();
        if !has_set && self.secret_file.is_none() {
            let keys =
                ["jwks.file", "jwks.url", "secret.file"].map(|key| format!("{PREFIX}.{key}")).join(", ");
            return match *self == Self::default() {
                true => Ok(None),
                false => {
                    Err(unusable("", format!("signed tokens are configured, but none of {keys} is set")))
                }
            };
        }
        if self.key_set_file.is_some() && self.key_set_url.is_some() {
            return Err(unusable(".jwks.url", format!("it excludes {PREFIX}.jwks.file")));
        }
        if self.leeway > MOST_LEEWAY {
            return Err(unusable(
                ".leeway",
                format!("it must not be over {} seconds", MOST_LEEWAY.as_secs()),
            ));
        }
        Ok(Some(Plan {
            allowed: self.allowed(has_set)?,
            rules: self.rules()?,
            fetched: self.fetched(fetcher)?,
        }))
    }

    fn allowed(&self, has_set: bool) -> Result<Vec<Algorithm>, LoadError> {
        if self.algorithms.is_empty() {
            let by_set = [Algorithm::Rs256, Algorithm::Es256, Algorithm::EdDsa];
            let by_secret = self.secret_file.is_some().then_some(Algorithm::Hs256);
            return Ok(by_set.into_iter().filter(|_| has_set).chain(by_secret).collect());
        }
        let mut allowed = Vec::new();
        for name in &self.algorithms {
            let algorithm = Algorithm::named(name).ok_or_else(|| {
                let known = Algorithm::ALL.map(Algorithm::name).join(", ");
                unusable(".algorithms", format!("{name:?} is not one of {known}"))
            })?;
            let has_key = match algorithm {
                Algorithm::Hs256 => self.secret_file.is_some() || self.key_set_file.is_some(),
                Algorithm::Rs256 | Algorithm::Es256 | Algorithm::EdDsa => has_set,
            };
            if !has_key {
                return Err(unusable(".algorithms", format!("there is no source of keys for {name}")));
            }
            allowed.push(algorithm);
        }
        if self.secret_file.is_some() && !allowed.contains(&Algorithm::Hs256) {
            return Err(unusable(".secret.file", format!("{PREFIX}.algorithms does not name HS256")));
        }
        if has_set && allowed == [Algorithm::Hs256] && self.secret_file.is_some() {
            return Err(unusable(".algorithms", "it names no algorithm that the key set is for".into()));
        }
        Ok(allowed)
    }

    fn rules(&self) -> Result<ClaimRules, LoadError> {
        let filled = |key: &str, text: &str| match text {
            text if text.trim().is_empty() => Err(unusable(key, "it is blank".into())),
            text if text.contains("${") => {
                Err(unusable(key, "it is a placeholder (`${…}`) that nothing has filled in".into()))
            }
            text => Ok(text.to_owned()),
        };
        let missing = || "it must be set: else tokens made for others would be accepted".into();
        let issuer = self.issuer.as_ref().ok_or_else(|| unusable(".issuer", missing()))?;
        if self.audience.is_empty() {
            return Err(unusable(".audience", missing()));
        }
        Ok(ClaimRules {
            issuer: filled(".issuer", issuer)?,
            audience: self.audience.iter().map(|one| filled(".audience", one)).collect::<Result<_, _>>()?,
            leeway: self.leeway,
            tenant: filled(".claim.tenant", &self.tenant_claim)?,
            default_tenant: self.default_tenant.clone(),
            principal: filled(".claim.principal", &self.principal_claim)?,
            roles: filled(".claim.roles", &self.roles_claim)?,
        })
    }

    fn fetched(&self, fetcher: Option<Arc<dyn KeyFetcher>>) -> Result<Option<FetchPlan>, LoadError> {
        let Some(url) = &self.key_set_url else { return Ok(None) };
        let key = ".jwks.url";
        check_key_set_url(url).map_err(|problem| unusable(key, format!("it {problem}")))?;
        if self.refresh_interval.is_zero() {
            return Err(unusable(".jwks.refresh", "it must be longer than nothing".into()));
        }
        if self.max_stale < self.refresh_interval {
            return Err(unusable(
                ".jwks.maxStale",
                format!("it must not be shorter than {PREFIX}.jwks.refresh"),
            ));
        }
        let fetcher =
            fetcher.ok_or_else(|| unusable(key, "there is nothing here that can fetch it".into()))?;
        Ok(Some(FetchPlan {
            url: url.clone(),
            fetcher,
            interval: self.refresh_interval,
            max_stale: self.max_stale,
        }))
    }
}

/// Whether a key set may be fetched from there: nobody on the way can put keys of their own into it.
///
/// # Errors
/// Half a sentence that says what is wrong, without the URL.
pub fn check_key_set_url(url: &str) -> Result<(), &'static str> {
    const SCHEME: &str = "must begin with https://, or with http:// and this machine";
    if url.bytes().any(|byte| byte <= b' ' || byte >= 0x7f) || url.contains("${") {
        return Err("has a character that no URL has");
    }
    if url.contains('@') {
        return Err("must have no user part: it would not be sent");
    }
    let is_https = url.strip_prefix("https://");
    let Some(rest) = is_https.or_else(|| url.strip_prefix("http://")) else { return Err(SCHEME) };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_of = |local| host.strip_prefix(local).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
    let is_local = ["localhost", "127.0.0.1", "[::1]"].into_iter().any(is_of);
    if host.is_empty() {
        Err("has no host")
    } else if is_https.is_some() || is_local {
        Ok(())
    } else {
        Err(SCHEME)
    }
}

fn unusable(key: &str, problem: String) -> LoadError {
    LoadError::Unusable { origin: format!("{PREFIX}{key}"), problem }
}
