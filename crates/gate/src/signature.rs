//! `SignatureVerifierFilter`: whether a request was signed by whom it says, as it came, lately, and once.

use std::{path::PathBuf, sync::Arc};

use mesh_base::UnixMillis;
use mesh_frame::Event;

use crate::{
    Caller, Identity,
    filter::{Finding, LoadError, Reload},
};

/// How signatures are verified.
#[derive(Clone, Debug)]
pub struct SignatureSettings {
    /// The key file.
    pub key_file: PathBuf,
    /// Whether events signed by the `emsignature` attribute are accepted for publishing.
    pub legacy: bool,
}

/// The head of a request whose signature is verified.
#[derive(Clone, Copy)]
pub struct SignedHead<'a> {
    /// The method, in capitals.
    pub method: &'a str,
    /// The path as it was sent.
    pub path: &'a str,
    /// The query as it was sent, without `?`.
    pub query: Option<&'a str>,
    /// The values of a header by its name in small letters, in their order.
    pub header: &'a dyn Fn(&str) -> Vec<&'a [u8]>,
}

/// Verifies signatures.
#[derive(Debug)]
pub struct SignatureVerifierFilter;

impl SignatureVerifierFilter {
    /// Reads the keys.
    ///
    /// # Errors
    /// When the file cannot be read or used.
    pub fn load(_settings: &SignatureSettings) -> Result<Self, LoadError> {
        Ok(Self)
    }

    /// What the head alone says, before the body is read: whether there is a signature at all, under a known key,
    /// within its time. Takes no nonce.
    pub fn glance(&self, _head: &SignedHead<'_>, _now: UnixMillis) -> Finding {
        Finding::Deny("a signature is needed".into())
    }

    /// Whether the whole request was signed, by the principal of `caller` where that is known; its key's identity
    /// where not. The nonce is used up when it passes.
    pub fn verify(
        &self,
        _caller: &Caller,
        _head: &SignedHead<'_>,
        _body: &[u8],
        _now: UnixMillis,
    ) -> Finding<Arc<Identity>> {
        Finding::Deny("a signature is needed".into())
    }

    /// Whether events signed by their `emsignature` attribute are accepted.
    pub fn takes_legacy(&self) -> bool {
        false
    }

    /// Whether an event carries the signature of the caller's principal in `emsignature`.
    pub fn verify_legacy(
        &self,
        _caller: &Caller,
        _event: &Event,
        _now: UnixMillis,
    ) -> Finding<Arc<Identity>> {
        Finding::Deny("a signature is needed".into())
    }

    /// Reads the keys again if the file changed. Blocks.
    ///
    /// # Errors
    /// When what is new cannot be used; the keys there were hold.
    pub fn reload(&self) -> Result<Reload, LoadError> {
        Ok(Reload::Unchanged)
    }
}
