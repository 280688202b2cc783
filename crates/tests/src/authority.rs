//! A certificate authority of a test, and what it signs.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, pem::PemObject};

/// An authority that nobody trusts who was not told to.
#[derive(Debug)]
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its private key, both PEM.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl Pair {
    /// The certificate as it is shown in a handshake.
    ///
    /// # Errors
    /// When the PEM has none.
    pub fn der(&self) -> Result<Vec<u8>> {
        Ok(CertificateDer::from_pem_slice(self.certificate.as_bytes())?.to_vec())
    }

    /// Writes both.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, certificate: &Path, key: &Path) -> Result<()> {
        fs::write(certificate, &self.certificate)?;
        Ok(fs::write(key, &self.key)?)
    }
}

impl Authority {
    /// A new authority.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { pem, issuer: Issuer::new(params, key) })
    }

    /// Its own certificate, PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A server's certificate for this machine.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn server(&self) -> Result<Pair> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, "a server of the tests");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// A client's certificate with that common name, and perhaps a URI beside it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn client(&self, common_name: &str, uri: Option<&str>) -> Result<Pair> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if let Some(uri) = uri {
            params.subject_alt_names.push(SanType::URI(uri.try_into().context("a URI")?));
        }
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Result<Pair> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Pair { certificate, key: key.serialize_pem() })
    }
}
