//! `TokenAuthFilter`: who presents this credential.
//!
//! Three kinds of credential, each where it is configured: tokens of a file, signed tokens of an issuer (JWT), and
//! client certificates that the TLS layer verified. Every kind gives a shared [`Identity`]; to look one up that was
//! seen before costs a digest and a look-up. Files are read again when they change; one that cannot be used leaves
//! what was read before in force.

mod certificates;
mod file;
mod fingerprint;
mod jwt;
#[cfg(test)]
mod tests;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use mesh_base::{Clock, UnixMillis};

pub use self::jwt::{FetchFailed, Fetching, JwtSettings, KeyFetcher, check_key_set_url};
use self::{
    certificates::{Certificates, Meant},
    file::Tokens,
    fingerprint::Fingerprints,
    jwt::JwtVerifier,
};
use crate::{
    CertificateNames, Identity,
    filter::{Finding, LoadError, Reload},
    watched_file::WatchedFile,
};

/// Where credentials are looked up. One of the three must be configured: a filter that can let nobody in is not built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenSettings {
    /// The token file: TOML of `[[token]]` entries with `name`, `tenant`, `principal`, perhaps `roles`, and the token
    /// as `value` (16 or more visible ASCII characters) or as `sha256` (64 hexadecimal digits of its SHA-256).
    /// Names and tokens must not repeat. It is read again when it changes. A file with `value`s that everybody on
    /// the machine may read is warned of. (`eventmesh.security.gate.token.file`)
    pub token_file: Option<PathBuf>,
    /// The certificate file: TOML of `[[certificate]]` entries with `tenant`, `principal`, perhaps `roles`, and a
    /// name as client certificates have it: `commonName`, or `san` with `DNS:…`, `URI:…`, `EMAIL:…` or `IP:…`. A
    /// certificate whose names mean different holders is refused. It is read again when it changes.
    /// (`eventmesh.security.gate.certificate.file`)
    pub certificate_file: Option<PathBuf>,
    /// Signed tokens.
    pub jwt: JwtSettings,
}

/// Looks at credentials: tokens of a file, signed tokens of an issuer, client certificates.
#[derive(Debug)]
pub struct TokenAuthFilter {
    fingerprints: Fingerprints,
    tokens: Option<(WatchedFile, ArcSwap<Tokens>)>,
    certificates: Option<(WatchedFile, ArcSwap<Certificates>)>,
    jwt: Option<JwtVerifier>,
    revision: AtomicU64,
}

impl TokenAuthFilter {
    /// Reads the files. For settings that fetch nothing.
    ///
    /// # Errors
    /// When one of them cannot be read or used, or the settings are not whole.
    pub fn load(settings: &TokenSettings) -> Result<Self, LoadError> {
        Self::load_with(settings, None)
    }

    /// Reads the files. Key sets are fetched by `fetcher`, later: [`Self::keep_keys_fresh`]; until the first is
    /// there, the tokens that need it cannot be judged.
    ///
    /// # Errors
    /// When a file cannot be read or used, or the settings are not whole.
    pub fn load_with(
        settings: &TokenSettings,
        fetcher: Option<Arc<dyn KeyFetcher>>,
    ) -> Result<Self, LoadError> {
        let fingerprints = Fingerprints::new();
        let tokens = match &settings.token_file {
            None => None,
            Some(path) => {
                let file = WatchedFile::new(path);
                let tokens = parse_tokens(&file, &file.read()?, &fingerprints)?;
                Some((file, ArcSwap::from_pointee(tokens)))
            }
        };
        let certificates = match &settings.certificate_file {
            None => None,
            Some(path) => {
                let file = WatchedFile::new(path);
                let certificates = Certificates::parse(path, &file.read()?, &fingerprints)?;
                Some((file, ArcSwap::from_pointee(certificates)))
            }
        };
        let jwt = JwtVerifier::load(&settings.jwt, fetcher)?;
        if tokens.is_none() && certificates.is_none() && jwt.is_none() {
            return Err(LoadError::Unusable {
                origin: "eventmesh.security.gate.token".into(),
                problem: "no token file, no certificate file and no signed tokens are configured".into(),
            });
        }
        Ok(Self { fingerprints, tokens, certificates, jwt, revision: AtomicU64::new(0) })
    }

    /// Who presents this. The `Authorization` value counts first; a certificate where there is none.
    pub fn authenticate(
        &self,
        authorization: Option<&[u8]>,
        certificate: Option<CertificateNames<'_>>,
        now: UnixMillis,
    ) -> Finding<Arc<Identity>> {
        match (authorization, certificate) {
            (Some(authorization), _) => match presented_token(authorization) {
                Some(token) => self.of_token(token, now),
                None => Finding::Deny("the credential is not a bearer token".into()),
            },
            (None, Some(names)) => self.of_certificate(names),
            (None, None) => Finding::Deny("a credential is needed".into()),
        }
    }

    fn of_token(&self, token: &str, now: UnixMillis) -> Finding<Arc<Identity>> {
        let fingerprint = self.fingerprints.of(token.as_bytes());
        if let Some((_, tokens)) = &self.tokens
            && let Some(holder) = tokens.load().holder(&fingerprint)
        {
            return Finding::Pass(holder.clone());
        }
        let is_signed_token = token.bytes().filter(|&byte| byte == b'.').count() == 2;
        match &self.jwt {
            Some(jwt) if is_signed_token => jwt.authenticate(token, fingerprint, now),
            _ => Finding::Deny("the credential is not known".into()),
        }
    }

    fn of_certificate(&self, names: CertificateNames<'_>) -> Finding<Arc<Identity>> {
        let Some((_, certificates)) = &self.certificates else {
            return Finding::Deny("a credential is needed".into());
        };
        match certificates.load().holder(names) {
            Meant::One(holder) => Finding::Pass(holder.clone()),
            Meant::Nobody => Finding::Deny("the client certificate is not known".into()),
            Meant::Several => Finding::Deny("the client certificate means more than one".into()),
        }
    }

    /// Whether the file still has the entry that a caller was authenticated by, with the same tenant,
    /// principal and roles. Quick. What stands in no file ends by itself, and is not looked at here.
    pub fn still_holds(&self, identity: &Identity) -> bool {
        let Some(entry) = identity.entry else { return true };
        let is_his = |holder: &Arc<Identity>| holder.is_holder_of(identity);
        let by_token = self
            .tokens
            .as_ref()
            .is_some_and(|(_, tokens)| tokens.load().holder(&entry.0).is_some_and(is_his));
        by_token
            || self
                .certificates
                .as_ref()
                .is_some_and(|(_, certificates)| certificates.load().of_entry(entry).is_some_and(is_his))
    }

    /// Grows whenever what [`Self::still_holds`] says may have changed.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Reads its files again where they changed. Blocks. One that cannot be used keeps no other from being read.
    ///
    /// # Errors
    /// When what is new cannot be used; what was there holds.
    pub fn reload(&self) -> Result<Reload, LoadError> {
        let tokens = self.tokens.as_ref().map_or(Ok(Reload::Unchanged), |(file, tokens)| {
            let Some(text) = file.read_if_changed()? else { return Ok(Reload::Unchanged) };
            tokens.store(Arc::new(parse_tokens(file, &text, &self.fingerprints)?));
            Ok(Reload::Changed)
        });
        let certificates =
            self.certificates.as_ref().map_or(Ok(Reload::Unchanged), |(file, certificates)| {
                let Some(text) = file.read_if_changed()? else { return Ok(Reload::Unchanged) };
                let read = Certificates::parse(file.path(), &text, &self.fingerprints)?;
                certificates.store(Arc::new(read));
                Ok(Reload::Changed)
            });
        let jwt = self.jwt.as_ref().map_or(Ok(Reload::Unchanged), JwtVerifier::reload);
        if [&tokens, &certificates].into_iter().any(|read| matches!(read, Ok(Reload::Changed))) {
            self.revision.fetch_add(1, Ordering::AcqRel);
        }
        Ok(tokens?.or(certificates?).or(jwt?))
    }

    /// Fetches the issuer's keys once, where they are fetched at all.
    ///
    /// # Errors
    /// When they cannot be fetched or used; those there were hold.
    pub async fn refresh(&self, now: UnixMillis) -> Result<Reload, FetchFailed> {
        match &self.jwt {
            Some(jwt) => jwt.refresh(now).await,
            None => Ok(Reload::Unchanged),
        }
    }

    /// Waits until the issuer's keys were fetched for the first time. Ends at once where nothing is fetched.
    pub async fn keys_fetched(&self) {
        if let Some(jwt) = &self.jwt {
            jwt.fetched().await;
        }
    }

    /// Keeps the issuer's keys fresh: fetches them at once, after each interval, and when a token names a key that
    /// is not known. For a task of its own; ends at once where nothing is fetched, else when it is dropped.
    pub async fn keep_keys_fresh(&self, clock: Clock) {
        if let Some(jwt) = &self.jwt {
            jwt.keep_fresh(clock).await;
        }
    }
}

/// The token in an `Authorization` value: after `Bearer` in any case, or the bare value. Nothing where another scheme
/// is named, where it is empty, and where it holds what no token has.
fn presented_token(authorization: &[u8]) -> Option<&str> {
    let value = str::from_utf8(authorization).ok()?;
    let token = match value.split_once(' ') {
        None => value,
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim_start_matches(' '),
        Some(_) => return None,
    };
    // Every byte is looked at, also behind a wrong one: that is many at a time.
    let is_graphic = token.bytes().fold(true, |so_far, byte| so_far & byte.is_ascii_graphic());
    let is_token = !token.is_empty() && is_graphic;
    is_token.then_some(token)
}

fn parse_tokens(file: &WatchedFile, text: &str, fingerprints: &Fingerprints) -> Result<Tokens, LoadError> {
    let tokens = Tokens::parse(file.path(), text, fingerprints)?;
    if tokens.has_plain && is_read_by_everybody(file.path()).unwrap_or(false) {
        tracing::warn!(
            file = %file.path().display(),
            "everybody on this machine may read the token file, which holds tokens in the clear: take the right \
             away, or write their `sha256`"
        );
    }
    Ok(tokens)
}

/// Whether every user of the machine may read it.
#[cfg(unix)]
fn is_read_by_everybody(path: &Path) -> io::Result<bool> {
    Ok(std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path)?.permissions()) & 0o004 != 0)
}

#[cfg(not(unix))]
fn is_read_by_everybody(_path: &Path) -> io::Result<bool> {
    Ok(false)
}
