//! A security gate with everything in it, for a server that is measured: an issuer's key set, a signed token, a
//! thousand rules, quotas that nobody reaches, an audit file.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::anyhow;
use data_encoding::BASE64URL_NOPAD;
use mesh_base::Clock;
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde_json::{Value, json};

const ISSUER: &str = "https://issuer.example";
const AUDIENCE: &str = "bench";
const KEY: &str = "bench-1";
/// Not the one of callers without a credential: its events are stored with its name.
const TENANT: &str = "orders";
const RULES: usize = 1_000;
/// The number of the rule that the token's holder publishes by.
const RULE: usize = 601;

/// What is in the audit file.
#[derive(Clone, Copy)]
pub(crate) enum Audited {
    Denials,
    Everything,
}

/// The files of a gate, and who may pass it.
pub(crate) struct GateFiles {
    /// What a server needs to be told, each `key=value`.
    pub(crate) settings: Vec<String>,
    /// A token that is good for a day.
    pub(crate) token: String,
    /// A topic that its holder may publish to.
    pub(crate) topic: String,
    /// Where the audit log is written.
    pub(crate) audit_file: PathBuf,
}

impl GateFiles {
    /// Writes them.
    pub(crate) fn write(folder: &Path, audited: Audited) -> anyhow::Result<Self> {
        let issuer = Issuer::new()?;
        let key_set = folder.join("keys.json");
        std::fs::write(&key_set, issuer.key_set().to_string())?;
        let rules = folder.join("acl.toml");
        std::fs::write(&rules, rule_file())?;
        let audit_file = folder.join("audit.log");
        let records = match audited {
            Audited::Denials => "denials",
            Audited::Everything => "everything",
        };
        let settings = [
            ("failClosed", "true".to_owned()),
            ("token.jwt.jwks.file", key_set.display().to_string()),
            ("token.jwt.issuer", ISSUER.to_owned()),
            ("token.jwt.audience", AUDIENCE.to_owned()),
            ("acl.file", rules.display().to_string()),
            ("quota.connections", "100000".to_owned()),
            ("quota.subscriptions", "100000".to_owned()),
            ("quota.eventsPerSecond", "1000000000".to_owned()),
            ("quota.bytesPerSecond", "1TiB".to_owned()),
            ("quota.backlog", "1000000000".to_owned()),
            ("audit.file", audit_file.display().to_string()),
            ("audit.file.records", records.to_owned()),
            // Every line is looked at in the end.
            ("audit.file.keep", "10000".to_owned()),
        ];
        Ok(Self {
            settings: settings.map(|(name, value)| format!("eventmesh.security.gate.{name}={value}")).into(),
            token: issuer.token()?,
            topic: topic_of(RULE),
            audit_file,
        })
    }
}

fn topic_of(rule: usize) -> String {
    format!("site.{rule}.orders")
}

/// A third each by principal and topic, by role and everything below a name, by tenant and role.
fn rule_file() -> String {
    let mut text = String::new();
    for number in 0..RULES {
        let (who, what) = match number % 3 {
            0 => (format!("principal = \"p{number}\""), topic_of(number)),
            1 => (format!("role = \"r{number}\""), format!("site.{number}.*")),
            _ => (format!("tenant = \"t{number}\"\nrole = \"writer\""), "site.*".to_owned()),
        };
        let priority = number % 7;
        writeln!(
            text,
            "[[rule]]\n{who}\nresource = \"{what}\"\naction = \"PUBLISH\"\neffect = \"ALLOW\"\npriority = {priority}"
        )
        .expect("a string takes it");
    }
    text
}

/// An issuer that signs tokens with ES256.
struct Issuer {
    random: SystemRandom,
    key: EcdsaKeyPair,
}

impl Issuer {
    fn new() -> anyhow::Result<Self> {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random)
            .map_err(|_| anyhow!("the system gives no random bytes"))?;
        let key = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random)
            .map_err(|error| anyhow!("a key just made is not taken: {error}"))?;
        Ok(Self { random, key })
    }

    fn key_set(&self) -> Value {
        // One byte says that the point is not compressed, then come its coordinates.
        let (x, y) = self.key.public_key().as_ref()[1..].split_at(32);
        let [x, y] = [x, y].map(|coordinate| BASE64URL_NOPAD.encode(coordinate));
        json!({ "keys": [
            { "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": KEY, "x": x, "y": y },
        ] })
    }

    fn token(&self) -> anyhow::Result<String> {
        let ends = Clock::system().now().plus(Duration::from_secs(24 * 60 * 60));
        let header = json!({ "alg": "ES256", "typ": "JWT", "kid": KEY });
        let claims = json!({
            "iss": ISSUER,
            "aud": AUDIENCE,
            "exp": ends.0 / 1_000,
            "sub": "service-orders",
            "tenant": TENANT,
            "roles": ["reader", "writer", format!("r{RULE}")],
        });
        let [header, claims] =
            [header, claims].map(|part| BASE64URL_NOPAD.encode(part.to_string().as_bytes()));
        let signed = format!("{header}.{claims}");
        let signature = self.key.sign(&self.random, signed.as_bytes());
        let signature = signature.map_err(|_| anyhow!("the system gives no random bytes"))?;
        Ok(format!("{signed}.{}", BASE64URL_NOPAD.encode(signature.as_ref())))
    }
}
