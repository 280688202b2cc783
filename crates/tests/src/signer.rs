//! Signs requests as HTTP Message Signatures (RFC 9421) have it. Written from the standard, not from the server.

use anyhow::{Result, anyhow};
use data_encoding::BASE64;
use mesh_base::Clock;
use rand::RngExt;
use ring::{
    digest::{SHA256, digest},
    hmac::{self, HMAC_SHA256},
    rand::{SecureRandom, SystemRandom},
    signature::{Ed25519KeyPair, KeyPair},
};

/// Who signs.
#[derive(Debug)]
pub struct Signer {
    id: String,
    key: Key,
}

#[derive(Debug)]
enum Key {
    Hmac { secret: [u8; 32], key: hmac::Key },
    Ed25519(Ed25519KeyPair),
}

/// A request that is to be signed.
#[derive(Clone, Copy, Debug)]
pub struct ToSign<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// `Content-Type`, which must be covered where it is sent.
    pub kind: Option<&'a str>,
    /// The host, where it is covered.
    pub authority: Option<&'a str>,
    /// How long ago it is said to be signed, in seconds; less than 0: in the future.
    pub age: i64,
}

impl<'a> ToSign<'a> {
    /// A request without a body that is signed now.
    pub fn new(method: &'a str, target: &'a str) -> Self {
        Self { method, target, body: b"", kind: None, authority: None, age: 0 }
    }

    /// The same with a body.
    #[must_use]
    pub fn body(self, body: &'a [u8]) -> Self {
        Self { body, ..self }
    }

    /// The same with a `Content-Type`.
    #[must_use]
    pub fn kind(self, kind: &'a str) -> Self {
        Self { kind: Some(kind), ..self }
    }
}

impl Signer {
    /// One with a shared secret.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn hmac(id: &str) -> Result<Self> {
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).map_err(|_| anyhow!("no random bytes"))?;
        let key = hmac::Key::new(HMAC_SHA256, &secret);
        Ok(Self { id: id.to_owned(), key: Key::Hmac { secret, key } })
    }

    /// One with a key pair.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn ed25519(id: &str) -> Result<Self> {
        let no_key = |_| anyhow!("no key pair");
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(no_key)?;
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).map_err(|error| anyhow!("{error}"))?;
        Ok(Self { id: id.to_owned(), key: Key::Ed25519(pair) })
    }

    /// Its entry in a key file.
    pub fn entry(&self, tenant: &str, principal: &str) -> String {
        let key = match &self.key {
            Key::Hmac { secret, .. } => {
                format!("algorithm = \"hmac-sha256\"\nsecret = \"{}\"", BASE64.encode(secret))
            }
            Key::Ed25519(pair) => {
                let public = BASE64.encode(pair.public_key().as_ref());
                format!("algorithm = \"ed25519\"\npublicKey = \"{public}\"")
            }
        };
        format!(
            "[[key]]\nid = \"{}\"\ntenant = \"{tenant}\"\nprincipal = \"{principal}\"\n{key}\n\n",
            self.id
        )
    }

    /// The secret as its key file has it; none of a key pair.
    pub fn secret(&self) -> Option<String> {
        match &self.key {
            Key::Hmac { secret, .. } => Some(BASE64.encode(secret)),
            Key::Ed25519(_) => None,
        }
    }

    /// The headers that make a request a signed one. Each call makes another nonce.
    pub fn sign(&self, request: &ToSign<'_>) -> Vec<(String, String)> {
        let (path, query) = request.target.split_once('?').unwrap_or((request.target, ""));
        let mut parts = vec![
            ("@method", request.method.to_owned()),
            ("@path", path.to_owned()),
            ("@query", format!("?{query}")),
        ];
        let mut headers = Vec::new();
        if !request.body.is_empty() {
            let digest = BASE64.encode(digest(&SHA256, request.body).as_ref());
            let digest = format!("sha-256=:{digest}:");
            parts.push(("content-digest", digest.clone()));
            headers.push(("content-digest".to_owned(), digest));
        }
        if let Some(kind) = request.kind {
            parts.push(("content-type", kind.to_owned()));
        }
        if let Some(authority) = request.authority {
            parts.push(("@authority", authority.to_owned()));
        }
        let now = i64::try_from(Clock::system().now().0 / 1_000).unwrap_or_default();
        #[expect(clippy::disallowed_methods, reason = "a nonce that only has to differ")]
        let nonce: u128 = rand::rng().random();
        let names: Vec<String> = parts.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let params = format!(
            "({});created={};keyid=\"{}\";nonce=\"{nonce:032x}\"",
            names.join(" "),
            now - request.age,
            self.id
        );
        let lines: String = parts.iter().map(|(name, value)| format!("\"{name}\": {value}\n")).collect();
        let signature = self.signature(format!("{lines}\"@signature-params\": {params}").as_bytes());
        headers.push(("signature-input".to_owned(), format!("sig1={params}")));
        headers.push(("signature".to_owned(), format!("sig1=:{}:", BASE64.encode(&signature))));
        headers
    }

    /// The older signature of an event, over its id, source and type.
    ///
    /// # Panics
    /// When the key is not a shared secret.
    pub fn legacy(&self, id: &str, source: &str, kind: &str) -> String {
        assert!(matches!(self.key, Key::Hmac { .. }), "the older form is a MAC");
        let signature = self.signature(format!("{id}|{source}|{kind}").as_bytes());
        signature.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        match &self.key {
            Key::Hmac { key, .. } => hmac::sign(key, message).as_ref().to_vec(),
            Key::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }
}
