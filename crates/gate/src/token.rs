//! `TokenAuthFilter`: who presents this credential.

use std::{path::PathBuf, sync::Arc};

use mesh_base::UnixMillis;

use crate::{
    CertificateNames, Identity,
    filter::{Finding, LoadError, Reload},
};

/// Where credentials are looked up.
#[derive(Clone, Debug, Default)]
pub struct TokenSettings {
    /// The token file.
    pub token_file: Option<PathBuf>,
}

/// Looks at credentials: tokens of a file, signed tokens of an issuer, client certificates.
#[derive(Debug)]
pub struct TokenAuthFilter;

impl TokenAuthFilter {
    /// Reads the files.
    ///
    /// # Errors
    /// When one of them cannot be read or used.
    pub fn load(_settings: &TokenSettings) -> Result<Self, LoadError> {
        Ok(Self)
    }

    /// Who presents this. The `Authorization` value counts first; a certificate where there is none.
    pub fn authenticate(
        &self,
        _authorization: Option<&[u8]>,
        _certificate: Option<&CertificateNames>,
        _now: UnixMillis,
    ) -> Finding<Arc<Identity>> {
        Finding::Deny("a credential is needed".into())
    }

    /// Reads its files again where they changed. Blocks.
    ///
    /// # Errors
    /// When what is new cannot be used; what was there holds.
    pub fn reload(&self) -> Result<Reload, LoadError> {
        Ok(Reload::Unchanged)
    }
}
