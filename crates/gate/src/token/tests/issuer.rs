//! An issuer of tokens with a key of each kind.

use data_encoding::{BASE64, BASE64URL_NOPAD};
use ring::{
    hmac,
    rand::SystemRandom,
    rsa,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256},
};
use serde_json::{Value, json};

use super::*;

pub(super) const ISSUER: &str = "https://issuer.example";
pub(super) const AUDIENCE: &str = "eventmesh";

/// The keys of an issuer.
pub(super) struct Issuer {
    rsa: rsa::KeyPair,
    ec: EcdsaKeyPair,
    ed: Ed25519KeyPair,
    pub(super) secret: Vec<u8>,
    /// What the `kid`s begin with.
    name: &'static str,
}

pub(super) fn base64url(bytes: impl AsRef<[u8]>) -> String {
    BASE64URL_NOPAD.encode(bytes.as_ref())
}

impl Issuer {
    /// One with new keys, but for the RSA key, which takes long to make and is always the same.
    pub(super) fn new(name: &'static str) -> Self {
        let random = SystemRandom::new();
        let pem: String =
            include_str!("issuer-rsa.pem").lines().filter(|line| !line.starts_with("-----")).collect();
        let ec = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("random");
        let ed = Ed25519KeyPair::generate_pkcs8(&random).expect("random");
        Self {
            rsa: rsa::KeyPair::from_pkcs8(&BASE64.decode(pem.as_bytes()).expect("base64")).expect("a key"),
            ec: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, ec.as_ref(), &random)
                .expect("a key"),
            ed: Ed25519KeyPair::from_pkcs8(ed.as_ref()).expect("a key"),
            secret: format!("a shared secret of {name}, quite long").into_bytes(),
            name,
        }
    }

    pub(super) fn kid(&self, algorithm: &str) -> String {
        format!("{}-{algorithm}", self.name)
    }

    /// The entry of a key set for the key of that algorithm.
    pub(super) fn jwk(&self, algorithm: &str) -> Value {
        let mut key = match algorithm {
            "RS256" => {
                let public: rsa::PublicKeyComponents<Vec<u8>> = self.rsa.public().into();
                json!({"kty": "RSA", "n": base64url(public.n), "e": base64url(public.e)})
            }
            "ES256" => {
                let point = self.ec.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "x": base64url(&point[1..33]), "y": base64url(&point[33..])})
            }
            "EdDSA" => json!({"kty": "OKP", "crv": "Ed25519", "x": base64url(self.ed.public_key())}),
            "HS256" => json!({"kty": "oct", "k": base64url(&self.secret)}),
            other => panic!("no key for {other}"),
        };
        key["kid"] = self.kid(algorithm).into();
        key["use"] = "sig".into();
        key["alg"] = algorithm.into();
        key
    }

    /// The key set with the public keys.
    pub(super) fn key_set(&self) -> Value {
        let keys = ["RS256", "ES256", "EdDSA"].map(|algorithm| self.jwk(algorithm));
        json!({ "keys": keys })
    }

    pub(super) fn signature(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match algorithm {
            "HS256" => self.hmac(&self.secret, message),
            "RS256" => {
                let mut signature = vec![0; self.rsa.public().modulus_len()];
                self.rsa.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).expect("signed");
                signature
            }
            "ES256" => self.ec.sign(&random, message).expect("signed").as_ref().to_vec(),
            "EdDSA" => self.ed.sign(message).as_ref().to_vec(),
            other => panic!("no key for {other}"),
        }
    }

    pub(super) fn hmac(&self, secret: &[u8], message: &[u8]) -> Vec<u8> {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message).as_ref().to_vec()
    }

    /// The RSA key as an attacker who reads the key set would write it in a PEM file.
    pub(super) fn rsa_public_pem(&self) -> String {
        format!(
            "-----BEGIN RSA PUBLIC KEY-----\n{}\n-----END RSA PUBLIC KEY-----\n",
            BASE64.encode(self.rsa.public().as_ref())
        )
    }

    pub(super) fn rsa_public_der(&self) -> Vec<u8> {
        self.rsa.public().as_ref().to_vec()
    }

    /// A token with this header and these claims as texts, signed with the key of the algorithm.
    pub(super) fn raw(&self, header: &str, claims: &str, algorithm: &str) -> String {
        let signed = format!("{}.{}", base64url(header), base64url(claims));
        let signature = self.signature(algorithm, signed.as_bytes());
        format!("{signed}.{}", base64url(signature))
    }

    pub(super) fn header(&self, algorithm: &str) -> Value {
        json!({"alg": algorithm, "typ": "JWT", "kid": self.kid(algorithm)})
    }

    /// A token with these claims.
    pub(super) fn token(&self, algorithm: &str, claims: &Value) -> String {
        self.raw(&self.header(algorithm).to_string(), &claims.to_string(), algorithm)
    }
}

/// `NOW` in seconds, and so many more.
pub(super) fn seconds(more: i64) -> i64 {
    i64::try_from(NOW.0 / 1000).expect("fits") + more
}

/// Claims that are accepted.
pub(super) fn claims() -> Value {
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "tenant": "T1", "roles": ["writer"],
        "scope": "mesh:read mesh:write", "exp": seconds(600),
    })
}

/// Claims that are accepted, with one of them changed; `null` takes it away.
pub(super) fn claims_with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    match value {
        Value::Null => drop(claims.as_object_mut().expect("an object").remove(name)),
        value => claims[name] = value,
    }
    claims
}

/// Settings with the issuer and a key set in a file.
pub(super) fn settings(folder: &Folder, key_set: &Value) -> JwtSettings {
    JwtSettings {
        key_set_file: Some(folder.write("jwks.json", &key_set.to_string())),
        issuer: Some(ISSUER.into()),
        audience: vec![AUDIENCE.into()],
        ..JwtSettings::default()
    }
}

pub(super) fn filter(jwt: JwtSettings) -> TokenAuthFilter {
    TokenAuthFilter::load(&TokenSettings { jwt, ..TokenSettings::default() }).expect("whole settings")
}
