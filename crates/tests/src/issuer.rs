//! An issuer of tokens: keys, tokens signed with them, and the host that publishes the key set over HTTPS.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use http::Response;
use http_body_util::Full;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair},
};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::{Authority, free_port};

/// A key that signs tokens.
#[derive(Debug)]
pub struct TokenKey {
    kid: String,
    pair: SigningPair,
}

#[derive(Debug)]
enum SigningPair {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
}

impl TokenKey {
    /// A key for `EdDSA`.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn ed25519(kid: &str) -> Result<Self> {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| anyhow!("no key"))?;
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).map_err(|error| anyhow!("{error}"))?;
        Ok(Self { kid: kid.to_owned(), pair: SigningPair::Ed25519(pair) })
    }

    /// A key for `ES256`.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn es256(kid: &str) -> Result<Self> {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(|_| anyhow!("no key"))?;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random);
        Ok(Self { kid: kid.to_owned(), pair: SigningPair::P256(pair.map_err(|error| anyhow!("{error}"))?) })
    }

    /// Its public part as key sets have it.
    pub fn public(&self) -> Value {
        match &self.pair {
            SigningPair::Ed25519(pair) => json!({
                "kty": "OKP", "crv": "Ed25519", "kid": self.kid, "use": "sig", "alg": "EdDSA",
                "x": BASE64URL_NOPAD.encode(pair.public_key().as_ref()),
            }),
            SigningPair::P256(pair) => {
                // 4, then both coordinates.
                let point = pair.public_key().as_ref();
                json!({
                    "kty": "EC", "crv": "P-256", "kid": self.kid, "use": "sig", "alg": "ES256",
                    "x": BASE64URL_NOPAD.encode(&point[1..33]), "y": BASE64URL_NOPAD.encode(&point[33..]),
                })
            }
        }
    }

    /// A token with these claims.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn token(&self, claims: &Value) -> Result<String> {
        let algorithm = match &self.pair {
            SigningPair::Ed25519(_) => "EdDSA",
            SigningPair::P256(_) => "ES256",
        };
        let header = json!({"alg": algorithm, "typ": "JWT", "kid": self.kid});
        let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature = match &self.pair {
            SigningPair::Ed25519(pair) => pair.sign(signed.as_bytes()).as_ref().to_vec(),
            SigningPair::P256(pair) => {
                let signature = pair.sign(&SystemRandom::new(), signed.as_bytes());
                signature.map_err(|_| anyhow!("no random bytes"))?.as_ref().to_vec()
            }
        };
        Ok(format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature)))
    }
}

/// The host of a key set. It is down until it is told to be up.
#[derive(Debug)]
pub struct KeyHost {
    port: u16,
    config: Arc<ServerConfig>,
    set: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
    serving: Option<JoinSet<()>>,
}

impl KeyHost {
    /// A host with a certificate of that authority.
    ///
    /// # Errors
    /// When the certificate cannot be made.
    pub fn new(authority: &Authority) -> Result<Self> {
        let pair = authority.server()?;
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes())?],
                PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?,
            )?;
        Ok(Self {
            port: free_port(),
            config: Arc::new(config),
            set: Arc::default(),
            asked: Arc::default(),
            serving: None,
        })
    }

    /// Where the key set is.
    pub fn url(&self) -> String {
        format!("https://localhost:{}/realms/mesh/protocol/openid-connect/certs", self.port)
    }

    /// How often the set was asked for.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// What it publishes from now on.
    ///
    /// # Panics
    /// When another thread panicked with the set in its hands.
    pub fn publish<'a>(&self, keys: impl IntoIterator<Item = &'a TokenKey>) {
        let keys: Vec<Value> = keys.into_iter().map(TokenKey::public).collect();
        *self.set.lock().expect("nobody panics with it") = json!({"keys": keys}).to_string();
    }

    /// Begins to answer.
    ///
    /// # Errors
    /// When its port is taken.
    pub async fn up(&mut self) -> Result<()> {
        let listener =
            TcpListener::bind(("127.0.0.1", self.port)).await.context("the port of the key host")?;
        let acceptor = TlsAcceptor::from(self.config.clone());
        let (set, asked) = (self.set.clone(), self.asked.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, set, asked) = (acceptor.clone(), set.clone(), asked.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(socket).await else { return };
                    let service = service_fn(move |_request| {
                        asked.fetch_add(1, Ordering::SeqCst);
                        let set = set.lock().expect("nobody panics with it").clone();
                        let answer = Response::builder()
                            .header("content-type", "application/json")
                            .body(Full::new(Bytes::from(set)));
                        async move { answer }
                    });
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
                });
                while connections.try_join_next().is_some() {}
            }
        });
        self.serving = Some(serving);
        Ok(())
    }

    /// Is gone, with its open connections.
    pub async fn down(&mut self) {
        if let Some(mut serving) = self.serving.take() {
            serving.abort_all();
            drop(
                tokio::time::timeout(Duration::from_secs(5), async {
                    while serving.join_next().await.is_some() {}
                })
                .await,
            );
        }
    }
}
