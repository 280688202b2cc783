//! TLS of a server: certificates from PEM files, read again when they change, and client certificates.
//!
//! A new certificate holds from the next connection on; open connections keep theirs. Files that do not fit
//! together, as while one of the two was replaced, change nothing until they do. A handshake takes no longer than
//! the head of a request may. A connection that was resumed has shown its certificate to the same configuration.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::PeerCertificate;

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are not asked.
    #[default]
    None,
    /// They are asked, and may have none.
    Optional,
    /// Without one there is no connection.
    Required,
}

/// Where TLS finds its files.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// The server's certificate with what leads to its root, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Who signs client certificates, PEM.
    pub client_ca: Option<PathBuf>,
    /// Whether clients show certificates.
    pub clients: ClientCertificates,
}

/// Why TLS cannot be set up from its files.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {problem}", path.display())]
    Unusable {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// The TLS of one or more servers.
#[derive(Debug)]
pub struct Tls {
    settings: TlsSettings,
    config: ArcSwap<ServerConfig>,
    read: Mutex<Files>,
}

/// What stood in the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Vec<u8>,
}

impl Tls {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn load(settings: TlsSettings) -> Result<Self, TlsError> {
        let files = read(&settings)?;
        let config = ArcSwap::from_pointee(config(&settings, &files)?);
        Ok(Self { settings, config, read: Mutex::new(files) })
    }

    /// Reads the files again; `true`: they changed, and what is new holds from the next connection on. Blocks.
    ///
    /// # Errors
    /// See [`TlsError`]; what was there holds, and the next call tries again.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let files = read(&self.settings)?;
        let mut before = self.read.lock();
        if files == *before {
            return Ok(false);
        }
        self.config.store(Arc::new(config(&self.settings, &files)?));
        *before = files;
        Ok(true)
    }

    /// The handshake of a connection, and who the client is by its certificate.
    pub(crate) async fn accept<S>(&self, socket: S) -> io::Result<(TlsStream<S>, Option<PeerCertificate>)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = TlsAcceptor::from(self.config.load_full()).accept(socket).await?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let names = certificate.map(names_of);
        Ok((stream, names))
    }
}

fn read(settings: &TlsSettings) -> Result<Files, TlsError> {
    let read =
        |path: &PathBuf| fs::read(path).map_err(|source| TlsError::Unreadable { path: path.clone(), source });
    Ok(Files {
        certificate: read(&settings.certificate)?,
        key: read(&settings.key)?,
        client_ca: settings.client_ca.as_ref().map(read).transpose()?.unwrap_or_default(),
    })
}

/// Why a file gives no private key.
fn without_key(file: &[u8]) -> &'static str {
    let has = |text: &str| file.windows(text.len()).any(|part| part == text.as_bytes());
    if has("BEGIN ENCRYPTED PRIVATE KEY") || has("Proc-Type: 4,ENCRYPTED") {
        "its private key is encrypted, and nobody could be asked for the passphrase: store it decrypted (openssl pkey), for \
         the owner alone"
    } else if has("BEGIN CERTIFICATE") {
        "there is a certificate in it and no private key"
    } else if has("PRIVATE KEY") {
        "its private key cannot be read: it must be PEM of PKCS #8, PKCS #1 or SEC1"
    } else {
        "there is no private key in it (PEM)"
    }
}

fn config(settings: &TlsSettings, files: &Files) -> Result<ServerConfig, TlsError> {
    let unusable = |path: &Path, problem: String| TlsError::Unusable { path: path.to_owned(), problem };
    let chain = certificates(&settings.certificate, &files.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&files.key)
        .map_err(|_| unusable(&settings.key, without_key(&files.key).to_owned()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider has cipher suites of both versions");
    let builder = match (settings.clients, &settings.client_ca) {
        (ClientCertificates::None, _) => builder.with_no_client_auth(),
        (clients, Some(path)) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path, &files.client_ca)? {
                roots.add(certificate).map_err(|error| unusable(path, error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match clients {
                ClientCertificates::Optional => verifier.allow_unauthenticated(),
                ClientCertificates::None | ClientCertificates::Required => verifier,
            };
            let verifier = verifier.build().map_err(|error| unusable(path, error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
        (_, None) => {
            let problem = "client certificates are asked for, and nothing says who signs them".to_owned();
            return Err(unusable(&settings.certificate, problem));
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| unusable(&settings.certificate, format!("it does not go with its key: {error}")))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unusable = |problem: String| TlsError::Unusable { path: path.to_owned(), problem };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| unusable(error.to_string()))?;
    if chain.is_empty() {
        return Err(unusable("there is no certificate in it".to_owned()));
    }
    Ok(chain)
}

/// The names in a certificate that was verified.
fn names_of(certificate: &CertificateDer<'_>) -> PeerCertificate {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return PeerCertificate::default();
    };
    let mut common = certificate.subject().iter_common_name();
    let common_name = common.next().and_then(|name| name.as_str().ok()).map(str::to_owned);
    // Of several common names none is the one.
    let common_name = common_name.filter(|_| common.next().is_none());
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let alternative = alternative.map(|extension| &extension.value.general_names);
    let alternative = alternative.into_iter().flatten().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(format!("DNS:{name}")),
        GeneralName::URI(uri) => Some(format!("URI:{uri}")),
        GeneralName::RFC822Name(address) => Some(format!("EMAIL:{address}")),
        GeneralName::IPAddress(bytes) => ip(bytes).map(|ip| format!("IP:{ip}")),
        _ => None,
    });
    PeerCertificate { common_name, alternative: alternative.collect() }
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn the_names_of_a_certificate_are_told_by_their_kind() {
        let mut params = CertificateParams::new(vec!["host.example".to_owned()]).expect("legal");
        params.distinguished_name.push(DnType::CommonName, "alice");
        params.subject_alt_names.push(SanType::URI("spiffe://mesh/alice".try_into().expect("legal")));
        params.subject_alt_names.push(SanType::IpAddress("10.0.0.1".parse().expect("legal")));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let names = names_of(certificate.der());
        assert_eq!(names.common_name.as_deref(), Some("alice"));
        assert_eq!(names.alternative, ["DNS:host.example", "URI:spiffe://mesh/alice", "IP:10.0.0.1"]);
    }

    #[test]
    fn files_that_do_not_fit_change_nothing_and_a_new_pair_holds() {
        let folder = tempfile::tempdir().expect("a folder");
        let pair = || {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("legal");
            (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
        };
        let settings = TlsSettings {
            certificate: folder.path().join("cert.pem"),
            key: folder.path().join("key.pem"),
            client_ca: None,
            clients: ClientCertificates::None,
        };
        assert!(matches!(Tls::load(settings.clone()), Err(TlsError::Unreadable { .. })));
        let (first, second) = (pair(), pair());
        fs::write(&settings.certificate, &first.0).expect("written");
        fs::write(&settings.key, "nothing").expect("written");
        assert!(matches!(Tls::load(settings.clone()), Err(TlsError::Unusable { .. })));
        for (text, word) in [
            (
                "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIE\n-----END ENCRYPTED PRIVATE KEY-----\n",
                "is encrypted",
            ),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIE\n-----END RSA PRIVATE KEY-----\n",
                "is encrypted",
            ),
            (first.0.as_str(), "a certificate in it"),
            ("nothing", "no private key in it"),
        ] {
            fs::write(&settings.key, text).expect("written");
            let told = Tls::load(settings.clone()).map(drop).expect_err("no key").to_string();
            assert!(told.contains(word), "{told}");
        }
        fs::write(&settings.key, &first.1).expect("written");
        let tls = Tls::load(settings.clone()).expect("a pair");
        assert!(!tls.reload().expect("the same"));
        let before = tls.config.load_full();
        fs::write(&settings.certificate, &second.0).expect("written");
        assert!(matches!(tls.reload(), Err(TlsError::Unusable { .. })), "half of it is there");
        assert!(Arc::ptr_eq(&before, &tls.config.load_full()));
        fs::write(&settings.key, &second.1).expect("written");
        assert!(tls.reload().expect("a pair"));
        assert!(!Arc::ptr_eq(&before, &tls.config.load_full()));
        let asking = TlsSettings { clients: ClientCertificates::Required, ..settings };
        assert!(matches!(Tls::load(asking), Err(TlsError::Unusable { .. })), "nobody signs them");
    }
}
