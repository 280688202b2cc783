//! Fetches the key sets of issuers over HTTPS.
//!
//! The host's certificate is verified, against the system's authorities or the ones that were given; redirects are
//! not followed; a body is read only as far as it may go. The caller bounds the time.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use http::{Request, Uri, header::ACCEPT};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use mesh_gate::{FetchFailed, Fetching, KeyFetcher, LoadError};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

/// The client.
#[derive(Debug)]
pub(super) struct HttpsKeyFetcher(Client<HttpsConnector<HttpConnector>, Empty<Bytes>>);

impl HttpsKeyFetcher {
    /// A client that trusts who signs in this file, else the system's authorities. Blocks.
    ///
    /// # Errors
    /// When there is no certificate authority to trust.
    pub(super) fn new(authorities: Option<&Path>) -> Result<Self, LoadError> {
        let unusable = |origin: String, problem: String| LoadError::Unusable { origin, problem };
        let mut roots = RootCertStore::empty();
        match authorities {
            Some(path) => {
                let origin = path.display().to_string();
                let pem = std::fs::read(path)
                    .map_err(|source| LoadError::Unreadable { path: path.to_owned(), source })?;
                for certificate in CertificateDer::pem_slice_iter(&pem) {
                    let certificate =
                        certificate.map_err(|error| unusable(origin.clone(), error.to_string()))?;
                    roots.add(certificate).map_err(|error| unusable(origin.clone(), error.to_string()))?;
                }
                if roots.is_empty() {
                    return Err(unusable(origin, "there is no certificate in it".to_owned()));
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has cipher suites of both versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        // A plain URL is let through only where it leads to this machine: the gate sees to that.
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build();
        Ok(Self(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(1).build(connector)))
    }
}

impl KeyFetcher for HttpsKeyFetcher {
    fn fetch<'a>(&'a self, url: &'a str, most: usize) -> Fetching<'a> {
        Box::pin(async move {
            let failed = |error: &dyn std::error::Error| {
                let cause = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
                FetchFailed(format!("{error}{cause}"))
            };
            let uri: Uri = url.parse().map_err(|error: http::uri::InvalidUri| failed(&error))?;
            let request = Request::get(uri).header(ACCEPT, "application/json").body(Empty::new());
            let request = request.map_err(|error| failed(&error))?;
            let answer = self.0.request(request).await.map_err(|error| failed(&error))?;
            if answer.status() != http::StatusCode::OK {
                return Err(FetchFailed(format!("the answer is {}", answer.status())));
            }
            let body = Limited::new(answer.into_body(), most).collect().await;
            let body = body.map_err(|error| FetchFailed(format!("the body: {error}")))?;
            Ok(body.to_bytes().to_vec())
        })
    }
}
