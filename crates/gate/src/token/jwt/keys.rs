//! The keys that tokens are verified with: a secret from a file, a key set from a file or fetched from an issuer.
//!
//! All that is in force is one value that is swapped as a whole; its revision tells what was verified with other
//! keys. A fetched set that cannot be fetched again holds for a bounded time, then nothing is verified with it.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, Guard};
use data_encoding::BASE64;
use mesh_base::{Clock, Stop, UnixMillis};
use tokio::sync::Notify;

use super::{
    algorithm::{Algorithm, VerifyingKey},
    fetch::{FetchFailed, KeyFetcher},
    key_set::{self, KeySet, SHORTEST_SECRET, Selected},
};
use crate::{
    filter::{LoadError, Reload},
    watched_file::WatchedFile,
};

/// The largest key set that is fetched, in bytes.
const LARGEST_KEY_SET: usize = 1 << 20;
/// How long fetching may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// After which time a fetch that failed is tried again, at the latest.
const FETCH_AGAIN: Duration = Duration::from_secs(15);
/// How often, and after which time, a first fetch that failed is tried again before that.
const FIRST_TRIES: u32 = 10;
const FIRST_AGAIN: Duration = Duration::from_secs(1);
/// How often an unknown `kid` may make the set be fetched early: anybody can invent one.
const EARLY_FETCH: Duration = Duration::from_secs(30);

/// The keys, where they come from, and how fresh they are.
#[derive(Debug)]
pub(super) struct Keys {
    allowed: Vec<Algorithm>,
    secret_file: Option<WatchedFile>,
    set_file: Option<WatchedFile>,
    fetched: Option<Fetched>,
    held: ArcSwap<Held>,
}

/// A set that is fetched.
#[derive(Debug)]
struct Fetched {
    url: String,
    fetcher: Arc<dyn KeyFetcher>,
    interval: Duration,
    max_stale: Duration,
    /// When it was fetched last; 0: never.
    at: AtomicU64,
    /// When it was asked for early; 0: never.
    asked_early_at: AtomicU64,
    early: Notify,
    /// It was fetched once.
    first: Stop,
}

/// The keys in force.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) revision: u64,
    secret: Option<Arc<VerifyingKey>>,
    set: Option<Arc<KeySet>>,
    set_text: Arc<[u8]>,
}

/// What there is for a token to be verified with.
pub(super) enum Found<'a> {
    Key {
        key: &'a VerifyingKey,
        is_fetched: bool,
    },
    Unknown,
    Ambiguous,
    /// Nothing can be said now; for the operator why, and when to try again.
    NotNow(&'static str, Duration),
}

/// Where a set is fetched from, by what, and for how long it holds.
pub(super) struct FetchPlan {
    pub(super) url: String,
    pub(super) fetcher: Arc<dyn KeyFetcher>,
    pub(super) interval: Duration,
    pub(super) max_stale: Duration,
}

impl Keys {
    /// Reads the files. What is fetched is fetched by [`Self::refresh`].
    pub(super) fn load(
        allowed: Vec<Algorithm>,
        secret_file: Option<&Path>,
        set_file: Option<&Path>,
        fetched: Option<FetchPlan>,
    ) -> Result<Self, LoadError> {
        let keys = Self {
            allowed,
            secret_file: secret_file.map(WatchedFile::new),
            set_file: set_file.map(WatchedFile::new),
            fetched: fetched.map(|plan| Fetched {
                url: plan.url,
                fetcher: plan.fetcher,
                interval: plan.interval,
                max_stale: plan.max_stale,
                at: AtomicU64::new(0),
                asked_early_at: AtomicU64::new(0),
                early: Notify::new(),
                first: Stop::new(),
            }),
            held: ArcSwap::default(),
        };
        if let Some(file) = &keys.secret_file {
            keys.take_secret(parse_secret(file.path(), &file.read()?)?);
        }
        if let Some(file) = &keys.set_file {
            keys.take_set(file.read()?.as_bytes()).map_err(|problem| unusable(file.path(), problem))?;
        }
        Ok(keys)
    }

    /// Reads the files again that changed. Blocks. One that cannot be used keeps no other from being read.
    pub(super) fn reload(&self) -> Result<Reload, LoadError> {
        let secret = self.secret_file.as_ref().map_or(Ok(Reload::Unchanged), |file| {
            let Some(text) = file.read_if_changed()? else { return Ok(Reload::Unchanged) };
            self.take_secret(parse_secret(file.path(), &text)?);
            Ok(Reload::Changed)
        });
        let set = self.set_file.as_ref().map_or(Ok(Reload::Unchanged), |file| {
            let Some(text) = file.read_if_changed()? else { return Ok(Reload::Unchanged) };
            self.take_set(text.as_bytes()).map_err(|problem| unusable(file.path(), problem))
        });
        Ok(secret?.or(set?))
    }

    /// Fetches the set now, where it is fetched at all.
    pub(super) async fn refresh(&self, now: UnixMillis) -> Result<Reload, FetchFailed> {
        let Some(fetched) = &self.fetched else { return Ok(Reload::Unchanged) };
        let fetching = fetched.fetcher.fetch(&fetched.url, LARGEST_KEY_SET);
        let body = tokio::time::timeout(FETCH_TIMEOUT, fetching)
            .await
            .map_err(|_| FetchFailed(format!("no answer within {} seconds", FETCH_TIMEOUT.as_secs())))??;
        if body.len() > LARGEST_KEY_SET {
            return Err(FetchFailed(format!("the key set has more than {LARGEST_KEY_SET} bytes")));
        }
        let reload = self.take_set(&body).map_err(FetchFailed)?;
        fetched.at.store(now.0.max(1), Ordering::Release);
        fetched.first.signal();
        Ok(reload)
    }

    /// Waits until the set was fetched for the first time. Ends at once where nothing is fetched.
    pub(super) async fn fetched(&self) {
        if let Some(fetched) = &self.fetched {
            fetched.first.wait().await;
        }
    }

    /// Fetches the set, again and again: after the interval, sooner when it failed or when a token asks for an
    /// unknown key. Ends at once where nothing is fetched, and otherwise never: dropping it ends it.
    pub(super) async fn keep_fresh(&self, clock: Clock) {
        let Some(fetched) = &self.fetched else { return };
        let url = &*mesh_base::without_url_secrets(&fetched.url);
        let mut first_tries = 0;
        loop {
            let wait = match self.refresh(clock.now()).await {
                Ok(Reload::Unchanged) => fetched.interval,
                Ok(Reload::Changed) => {
                    tracing::info!(url, "the issuer's keys were fetched; they are new");
                    fetched.interval
                }
                Err(error) if fetched.is_fresh(clock.now()) => {
                    tracing::warn!(url, %error, "the issuer's keys cannot be fetched; those there are hold");
                    fetched.interval.min(FETCH_AGAIN)
                }
                Err(error) => {
                    tracing::error!(url, %error, "the issuer's keys cannot be fetched; its tokens cannot be checked");
                    // The start waits for them: the issuer may be starting too.
                    let is_waited_for = !fetched.first.is_signalled() && first_tries < FIRST_TRIES;
                    first_tries += 1;
                    if is_waited_for { FIRST_AGAIN } else { fetched.interval.min(FETCH_AGAIN) }
                }
            };
            tokio::select! {
                () = clock.sleep_until(clock.now().plus(wait)) => {}
                () = fetched.early.notified() => {}
            }
        }
    }

    /// The keys in force.
    pub(super) fn held(&self) -> Guard<Arc<Held>> {
        self.held.load()
    }

    /// Whether what was verified with a fetched key can be relied on.
    pub(super) fn is_fresh(&self, now: UnixMillis) -> bool {
        self.fetched.as_ref().is_none_or(|fetched| fetched.is_fresh(now))
    }

    /// The key among `held` for a token.
    pub(super) fn find<'a>(
        &self,
        held: &'a Held,
        algorithm: Algorithm,
        kid: Option<&str>,
        now: UnixMillis,
    ) -> Found<'a> {
        if let Some(secret) = held.secret.as_deref().filter(|secret| secret.algorithm() == algorithm) {
            return Found::Key { key: secret, is_fetched: false };
        }
        if !self.is_fresh(now) {
            self.ask_early(now);
            return Found::NotNow("the issuer's keys could not be fetched lately", FETCH_AGAIN);
        }
        let Some(set) = &held.set else { return Found::Unknown };
        match set.select(kid, algorithm) {
            Selected::Key(key) => Found::Key { key, is_fetched: self.fetched.is_some() },
            Selected::Ambiguous => Found::Ambiguous,
            Selected::Unknown => {
                self.ask_early(now);
                Found::Unknown
            }
        }
    }

    /// Asks for the set to be fetched before it is due.
    fn ask_early(&self, now: UnixMillis) {
        let Some(fetched) = &self.fetched else { return };
        let asked_at = fetched.asked_early_at.load(Ordering::Relaxed);
        let may_again = asked_at == 0 || now >= UnixMillis(asked_at).plus(EARLY_FETCH);
        let asked = |at| {
            fetched
                .asked_early_at
                .compare_exchange(asked_at, at, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        if may_again && asked(now.0.max(1)) {
            fetched.early.notify_one();
        }
    }

    fn take_secret(&self, secret: VerifyingKey) {
        let secret = Arc::new(secret);
        self.held.rcu(|held| Held {
            revision: held.revision + 1,
            secret: Some(secret.clone()),
            set: held.set.clone(),
            set_text: held.set_text.clone(),
        });
    }

    /// Puts a set into force, unless it is the one that is.
    fn take_set(&self, text: &[u8]) -> Result<Reload, String> {
        let held = self.held.load();
        if held.set.is_some() && *held.set_text == *text {
            return Ok(Reload::Unchanged);
        }
        // Who may read an issuer's public keys must not become able to sign for it.
        let allowed: Vec<_> = self
            .allowed
            .iter()
            .copied()
            .filter(|&algorithm| self.fetched.is_none() || algorithm != Algorithm::Hs256)
            .collect();
        let set = Arc::new(KeySet::parse(text, &allowed)?);
        let text: Arc<[u8]> = text.into();
        self.held.rcu(|held| Held {
            revision: held.revision + 1,
            secret: held.secret.clone(),
            set: Some(set.clone()),
            set_text: text.clone(),
        });
        Ok(Reload::Changed)
    }
}

impl Fetched {
    fn is_fresh(&self, now: UnixMillis) -> bool {
        let at = self.at.load(Ordering::Acquire);
        at != 0 && now.since(UnixMillis(at)) <= self.max_stale
    }
}

fn unusable(path: &Path, problem: String) -> LoadError {
    LoadError::Unusable { origin: path.display().to_string(), problem }
}

/// The secret in a file: its first and only line, as it is or after `base64:`.
fn parse_secret(path: &Path, text: &str) -> Result<VerifyingKey, LoadError> {
    let secret = text.trim_end_matches(['\r', '\n']);
    if secret.trim().is_empty() {
        return Err(unusable(path, "the secret is blank".into()));
    }
    if secret.contains("${") {
        return Err(unusable(path, "the secret is a placeholder (`${…}`) that nothing has filled in".into()));
    }
    let bytes = match secret.strip_prefix("base64:") {
        None => secret.as_bytes().to_vec(),
        Some(encoded) => BASE64
            .decode(encoded.as_bytes())
            .map_err(|_| unusable(path, "what follows `base64:` is not base64".into()))?,
    };
    key_set::secret(&bytes).ok_or_else(|| {
        let problem =
            format!("a secret must have {SHORTEST_SECRET} bytes or more, and must not be a PEM file");
        unusable(path, problem)
    })
}
