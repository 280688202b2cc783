//! `SignatureVerifierFilter`: whether a request was signed by whom it says, as it came, lately, and once.
//!
//! Signatures are HTTP Message Signatures (RFC 9421). One must cover `@method`, `@path`, `@query` and, where there is
//! a body, `content-digest` (RFC 9530), `content-type` and every `ce-` header where they are sent, and must carry `created`, `nonce` and `keyid`. The nonce is used up only after
//! everything else held: who cannot sign can use up none.
//!
//! The older `emsignature` attribute of an event covers its id, source and type alone, not its data, and can be sent
//! again; it counts only where that is switched on.

mod base;
mod content_digest;
mod head;
mod input;
mod keys;
mod nonces;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use data_encoding::HEXLOWER_PERMISSIVE;
use mesh_base::UnixMillis;
use mesh_frame::Event;

pub use self::head::SignedHead;
use self::{
    input::Input,
    keys::{SigningKey, SigningKeys},
    nonces::{Nonces, Taken},
};
use crate::{
    Caller, Identity,
    filter::{Finding, LoadError, Reload},
    watched_file::WatchedFile,
};

/// What every signature must cover; a body also by `content-digest`.
const REQUIRED: [&str; 3] = ["@method", "@path", "@query"];
/// By how much the clock of a signer may be ahead.
const MOST_AHEAD: Duration = Duration::from_secs(30);
/// The longest window.
const LONGEST_WINDOW: Duration = Duration::from_secs(3600);

/// How signatures are verified.
#[derive(Clone, Debug)]
pub struct SignatureSettings {
    /// The key file: TOML of `[[key]]` entries with `id`, `tenant`, `principal`, perhaps `roles`, and `algorithm`:
    /// `hmac-sha256` with `secret` (32 bytes or more in base64), or `ed25519` with `publicKey` (base64, or PEM). A key
    /// holds from `notBefore` until `notAfter` (RFC 3339), where they are given. A principal may have several keys at
    /// once, so that one can replace another. It is read again when it changes.
    /// (`eventmesh.security.gate.signature.file`)
    pub key_file: PathBuf,
    /// Whether events signed by the `emsignature` attribute are accepted for publishing.
    /// (`eventmesh.security.gate.signature.legacy`)
    pub legacy: bool,
    /// How old a signature may be, by its `created`; up to an hour. (`eventmesh.security.gate.signature.window`)
    pub window: Duration,
    /// How many nonces are remembered within the window, of all keys together; each key may use an equal share of
    /// them, and its further requests are refused until one of its nonces has had its time.
    /// (`eventmesh.security.gate.signature.maxNonces`)
    pub max_nonces: usize,
    /// The time of the start. Signatures of a second that had begun by then are refused: nonces are remembered in memory
    /// only, so what was signed before the start could have been used already.
    pub accept_from: UnixMillis,
}

impl SignatureSettings {
    /// With this key file, a window of 5 minutes, room for 100,000 nonces, and nothing else.
    pub fn new(key_file: PathBuf) -> Self {
        Self {
            key_file,
            legacy: false,
            window: Duration::from_secs(300),
            max_nonces: 100_000,
            accept_from: UnixMillis(0),
        }
    }
}

/// Verifies signatures.
#[derive(Debug)]
pub struct SignatureVerifierFilter {
    file: WatchedFile,
    keys: ArcSwap<SigningKeys>,
    nonces: Nonces,
    legacy: bool,
    window: Duration,
    accept_from: UnixMillis,
}

impl SignatureVerifierFilter {
    /// Reads the keys.
    ///
    /// # Errors
    /// When the file cannot be read or used, or a setting makes no sense.
    pub fn load(settings: &SignatureSettings) -> Result<Self, LoadError> {
        let unusable = |key: &str, problem: &str| LoadError::Unusable {
            origin: format!("eventmesh.security.gate.signature.{key}"),
            problem: problem.into(),
        };
        if settings.window.is_zero() || settings.window > LONGEST_WINDOW {
            return Err(unusable("window", "it must be longer than nothing and not longer than an hour"));
        }
        let file = WatchedFile::new(&settings.key_file);
        let keys = SigningKeys::parse(&settings.key_file, &file.read()?)?;
        if settings.max_nonces < keys.count() {
            return Err(unusable("maxNonces", "there are more keys than that"));
        }
        if settings.legacy && !keys.all().any(|key| key.is_secret()) {
            return Err(unusable("legacy", "no key is of the algorithm hmac-sha256, which it needs"));
        }
        Ok(Self {
            file,
            keys: ArcSwap::from_pointee(keys),
            nonces: Nonces::new(settings.max_nonces),
            legacy: settings.legacy,
            window: settings.window,
            accept_from: settings.accept_from,
        })
    }

    /// What the head alone says, before the body is read: whether there is a signature at all, under a known key,
    /// within its time. Takes no nonce.
    pub fn glance(&self, head: &SignedHead<'_>, now: UnixMillis) -> Finding {
        match self.plausible(head, now) {
            Ok(_) => Finding::Pass(()),
            Err(reason) => Finding::Deny(reason.into()),
        }
    }

    /// Whether the whole request was signed, by the principal of `caller` where that is known; its key's identity
    /// where not. The nonce is used up when it passes.
    pub fn verify(
        &self,
        caller: &Caller,
        head: &SignedHead<'_>,
        body: &[u8],
        now: UnixMillis,
    ) -> Finding<Arc<Identity>> {
        let (input, key) = match self.signed(caller, head, body, now) {
            Ok(signed) => signed,
            Err(reason) => return Finding::Deny(reason.into()),
        };
        // As long as the signature would be accepted by its age, to its last second.
        let until = UnixMillis(input.created.saturating_mul(1000)).plus(self.window);
        match self.nonces.take(&key.id, self.keys.load().count(), &input.nonce, until, now) {
            Taken::Fresh => Finding::Pass(known_by(caller, &key)),
            Taken::Repeated => Finding::Deny("the request was received before (nonce)".into()),
            Taken::Full(retry_after) => Finding::Broken {
                reason: "a key has used up its room for nonces (eventmesh.security.gate.signature.maxNonces)"
                    .into(),
                retry_after,
            },
        }
    }

    /// The signature that the head promises, if it can hold at this time.
    fn plausible(
        &self,
        head: &SignedHead<'_>,
        now: UnixMillis,
    ) -> Result<(Input, Arc<SigningKey>), &'static str> {
        let keys = self.keys.load();
        let (input, key) = Input::find(head, |id| keys.get(id).filter(|key| key.holds(now)).cloned())?;
        if input.algorithm.as_deref().is_some_and(|algorithm| algorithm != key.algorithm()) {
            return Err("the signature's algorithm is not the key's");
        }
        if !REQUIRED.iter().all(|component| input.covers(component)) {
            return Err("the signature must cover @method, @path and @query");
        }
        if !head.speaking.iter().all(|name| input.covers(name)) {
            return Err("the signature must cover content-type and every ce- header that is sent");
        }
        let created = UnixMillis(input.created.saturating_mul(1000));
        if created > now.plus(MOST_AHEAD) {
            return Err("the signature was created in the future");
        }
        if created.plus(self.window) < now {
            return Err("the signature is too old");
        }
        if created < self.accept_from {
            return Err("the signature is older than this server's start; sign again");
        }
        if input.expires.is_some_and(|expires| UnixMillis(expires.saturating_mul(1000)) <= now) {
            return Err("the signature has expired");
        }
        Ok((input, key))
    }

    /// The signature, if it holds for the head, the body and the caller.
    fn signed(
        &self,
        caller: &Caller,
        head: &SignedHead<'_>,
        body: &[u8],
        now: UnixMillis,
    ) -> Result<(Input, Arc<SigningKey>), &'static str> {
        let (input, key) = self.plausible(head, now)?;
        if input.covers("content-digest") {
            content_digest::check(head, body)?;
        } else if !body.is_empty() {
            return Err("the signature must cover content-digest where there is a body");
        }
        let base = base::of(head, &input)?;
        if !key.verifies(base.as_bytes(), &input.signature) {
            return Err("the signature does not hold");
        }
        if !is_of(caller, &key) {
            return Err("the signature is somebody else's than the credential");
        }
        Ok((input, key))
    }

    /// Whether events signed by their `emsignature` attribute are accepted.
    pub fn takes_legacy(&self) -> bool {
        self.legacy
    }

    /// Whether an event carries the signature of the caller's principal in `emsignature`: the HMAC-SHA256 over
    /// `id|source|type` in hexadecimal. Without a principal any key will do, and says who it is.
    pub fn verify_legacy(&self, caller: &Caller, event: &Event, now: UnixMillis) -> Finding<Arc<Identity>> {
        if !self.legacy {
            return Finding::Deny("a signature is needed".into());
        }
        let Some(signature) = event.attribute("emsignature") else {
            return Finding::Deny("a signature is needed, of the request or as emsignature".into());
        };
        let (id, source) = (event.id(), event.source());
        if id.contains('|') || source.contains('|') {
            // The same bytes would be signed for another division into id and source.
            return Finding::Deny("with emsignature neither id nor source may contain `|`".into());
        }
        let signed = format!("{id}|{source}|{}", event.event_type());
        let signature = HEXLOWER_PERMISSIVE.decode(signature.as_bytes()).unwrap_or_default();
        let keys = self.keys.load();
        let candidates = keys.all().filter(|key| key.is_secret() && key.holds(now) && is_of(caller, key));
        let matching = candidates.filter(|key| key.verifies(signed.as_bytes(), &signature)).last();
        match matching {
            Some(key) => Finding::Pass(known_by(caller, key)),
            None => Finding::Deny("emsignature does not hold".into()),
        }
    }

    /// Reads the keys again if the file changed. Blocks. Nonces stay remembered.
    ///
    /// # Errors
    /// When what is new cannot be used; the keys there were hold.
    pub fn reload(&self) -> Result<Reload, LoadError> {
        let Some(text) = self.file.read_if_changed()? else { return Ok(Reload::Unchanged) };
        self.keys.store(Arc::new(SigningKeys::parse(self.file.path(), &text)?));
        Ok(Reload::Changed)
    }
}

/// Whether the key may speak for the caller: whose principal is known must have signed himself.
fn is_of(caller: &Caller, key: &SigningKey) -> bool {
    caller.principal().is_none()
        || (caller.principal() == key.holder.principal.as_ref() && *caller.tenant() == key.holder.tenant)
}

/// Who the caller is: whom the credential says, else whose key it is.
fn known_by(caller: &Caller, key: &SigningKey) -> Arc<Identity> {
    if caller.principal().is_some() { caller.identity().clone() } else { key.holder.clone() }
}
