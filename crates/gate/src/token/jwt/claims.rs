//! What a verified token says: whether it is for us and holds now, and whose it is.

use std::{sync::Arc, time::Duration};

use mesh_base::UnixMillis;
use mesh_frame::TenantId;
use serde_json::{Map, Value};

use crate::{CredentialKind, Identity, holder};

/// What claims are checked against, and where the holder is found in them.
#[derive(Debug)]
pub(super) struct ClaimRules {
    pub(super) issuer: String,
    pub(super) audience: Vec<String>,
    pub(super) leeway: Duration,
    pub(super) tenant: String,
    pub(super) default_tenant: Option<TenantId>,
    pub(super) principal: String,
    pub(super) roles: String,
}

type Claims = Map<String, Value>;

impl ClaimRules {
    /// Whose token that is; the error says to its holder why it is not accepted.
    pub(super) fn identity(&self, claims: &Claims, now: UnixMillis) -> Result<Arc<Identity>, &'static str> {
        if claims.get("iss").and_then(Value::as_str) != Some(self.issuer.as_str()) {
            return Err("the token is of an issuer that is not accepted (iss)");
        }
        if !self.is_for_us(claims) {
            return Err("the token is for somebody else (aud)");
        }
        let ends = seconds(claims.get("exp")).ok_or("the token does not say when it ends (exp)")?;
        // Over at the end of the leeway, also for a stream that is opened within it.
        let ends = ends.plus(self.leeway);
        if now >= ends {
            return Err("the token has expired");
        }
        if let Some(begins) = claims.get("nbf") {
            let begins = seconds(Some(begins)).ok_or("the token does not say from when on it holds (nbf)")?;
            if now.plus(self.leeway) < begins {
                return Err("the token does not hold yet");
            }
        }
        let tenant = match (at(claims, &self.tenant), &self.default_tenant) {
            (Some(tenant), _) => tenant
                .as_str()
                .and_then(|tenant| TenantId::new(tenant).ok())
                .ok_or("the token does not name a tenant properly")?,
            (None, Some(tenant)) => tenant.clone(),
            (None, None) => return Err("the token does not name a tenant"),
        };
        let principal = at(claims, &self.principal).and_then(Value::as_str).and_then(holder::principal_of);
        let principal = principal.ok_or("the token does not say whose it is")?;
        Ok(Arc::new(Identity {
            tenant,
            principal: Some(principal),
            roles: words(at(claims, &self.roles)).ok_or("the token does not list its roles properly")?,
            credential: CredentialKind::Jwt,
            expires_at: Some(ends),
            entry: None,
        }))
    }

    fn is_for_us(&self, claims: &Claims) -> bool {
        let is_ours = |audience: &Value| {
            audience.as_str().is_some_and(|audience| self.audience.iter().any(|ours| ours == audience))
        };
        match claims.get("aud") {
            Some(Value::Array(audiences)) => {
                audiences.iter().all(Value::is_string) && audiences.iter().any(is_ours)
            }
            Some(audience) => is_ours(audience),
            None => false,
        }
    }
}

/// The claim of that name, else the one that the name is the dotted path of.
fn at<'a>(claims: &'a Claims, name: &str) -> Option<&'a Value> {
    if let Some(value) = claims.get(name) {
        return Some(value);
    }
    let (first, rest) = name.split_once('.')?;
    at(claims.get(first)?.as_object()?, rest)
}

/// A list of words: an array of texts, or one text with blanks between; nothing where there is none.
fn words(value: Option<&Value>) -> Option<Vec<String>> {
    match value {
        None => Some(Vec::new()),
        Some(Value::String(text)) => Some(text.split_whitespace().map(ToOwned::to_owned).collect()),
        Some(Value::Array(items)) => items.iter().map(|item| item.as_str().map(ToOwned::to_owned)).collect(),
        Some(_) => None,
    }
}

/// A time as tokens write it, in seconds since 1970, also with a fraction.
fn seconds(value: Option<&Value>) -> Option<UnixMillis> {
    let value = value?;
    if let Some(seconds) = value.as_u64() {
        return Some(UnixMillis(seconds.saturating_mul(1000)));
    }
    let seconds = value.as_f64().filter(|seconds| *seconds >= 0.0)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and it saturates"
    )]
    Some(UnixMillis((seconds * 1000.0) as u64))
}
