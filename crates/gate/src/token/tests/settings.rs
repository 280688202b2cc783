//! Settings and key files that are not whole stop the start.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    issuer::{Issuer, base64url, claims, settings},
    *,
};

fn refused(jwt: JwtSettings) -> String {
    let settings = TokenSettings { jwt, ..TokenSettings::default() };
    TokenAuthFilter::load(&settings).expect_err("not whole").to_string()
}

// covers: U10
#[test]
fn half_configured_tokens_are_refused_and_never_ignored() {
    let (folder, issuer) = (Folder::new(), Issuer::new("k"));
    let whole = settings(&folder, &issuer.key_set());
    let secret = folder.write("secret", "0123456789abcdef0123456789abcdef");
    let nothing = TokenAuthFilter::load(&TokenSettings::default()).expect_err("nothing is configured");
    assert!(nothing.to_string().contains("no token file, no certificate file"), "{nothing}");

    let no_set = JwtSettings { key_set_file: None, ..whole.clone() };
    let by_url = |url: &str| JwtSettings { key_set_url: Some(url.into()), ..no_set.clone() };
    let prefix = "eventmesh.security.gate.token.jwt";
    let cases = [
        (no_set.clone(), ": signed tokens are configured, but none of"),
        (
            JwtSettings { key_set_url: Some("https://issuer.example/jwks".into()), ..whole.clone() },
            ".jwks.url: it excludes",
        ),
        (JwtSettings { issuer: None, ..whole.clone() }, ".issuer: it must be set"),
        (JwtSettings { issuer: Some(" ".into()), ..whole.clone() }, ".issuer: it is blank"),
        (JwtSettings { issuer: Some("${ISSUER}".into()), ..whole.clone() }, ".issuer: it is a placeholder"),
        (JwtSettings { audience: vec![], ..whole.clone() }, ".audience: it must be set"),
        (JwtSettings { audience: vec![String::new()], ..whole.clone() }, ".audience: it is blank"),
        (JwtSettings { principal_claim: String::new(), ..whole.clone() }, ".claim.principal: it is blank"),
        (
            JwtSettings { leeway: Duration::from_secs(301), ..whole.clone() },
            ".leeway: it must not be over 300",
        ),
        (
            JwtSettings { algorithms: vec!["none".into()], ..whole.clone() },
            ".algorithms: \"none\" is not one of HS256, RS256, ES256, EdDSA",
        ),
        (
            JwtSettings {
                algorithms: vec!["RS256".into()],
                secret_file: Some(secret.clone()),
                ..no_set.clone()
            },
            ".algorithms: there is no source of keys for RS256",
        ),
        (
            JwtSettings {
                algorithms: vec!["RS256".into()],
                secret_file: Some(secret.clone()),
                ..whole.clone()
            },
            ".secret.file: ",
        ),
        (
            JwtSettings { algorithms: vec!["HS256".into()], secret_file: Some(secret), ..whole.clone() },
            ".algorithms: it names no algorithm that the key set is for",
        ),
        (
            JwtSettings { algorithms: vec!["HS256".into()], ..by_url("https://issuer.example/jwks") },
            ".algorithms: there is no source of keys for HS256",
        ),
        (by_url("https://issuer.example/jwks"), ".jwks.url: there is nothing here that can fetch it"),
        (by_url("http://issuer.example/jwks"), ".jwks.url: it must begin with https://"),
        (by_url("http://localhost.evil.example/"), ".jwks.url: it must begin with https://"),
        (by_url("http://localhost@evil.example/"), ".jwks.url: it must have no user part"),
        (by_url("https://user:pass@issuer.example/"), ".jwks.url: it must have no user part"),
        (by_url("https:///jwks"), ".jwks.url: it has no host"),
        (by_url("${JWKS}"), ".jwks.url: it has a character that no URL has"),
        (by_url("http://127.0.0.1:8080/jwks"), ".jwks.url: there is nothing here that can fetch it"),
        (
            JwtSettings { refresh_interval: Duration::ZERO, ..by_url("https://issuer.example/jwks") },
            ".jwks.refresh: it must be longer than nothing",
        ),
        (
            JwtSettings { max_stale: Duration::from_secs(1), ..by_url("https://issuer.example/jwks") },
            ".jwks.maxStale: it must not be shorter than",
        ),
    ];
    for (settings, expected) in cases {
        let told = refused(settings);
        assert!(told.starts_with(&format!("{prefix}{expected}")), "expected {expected:?}, got {told:?}");
    }
}

#[test]
fn a_secret_file_that_holds_no_secret_is_refused_without_telling_it() {
    let (folder, issuer) = (Folder::new(), Issuer::new("k"));
    let pem = issuer.rsa_public_pem();
    let cases = [
        ("", "the secret is blank"),
        ("\n", "the secret is blank"),
        ("${SECRET}-0123456789abcdef0123456789abcdef", "the secret is a placeholder"),
        ("s3cret", "a secret must have 32 bytes or more"),
        ("base64:s3cret", "what follows `base64:` is not base64"),
        ("base64:MTIz", "a secret must have 32 bytes or more"),
        (pem.as_str(), "must not be a PEM file"),
    ];
    for (text, expected) in cases {
        let told = refused(JwtSettings {
            key_set_file: None,
            secret_file: Some(folder.write("secret", text)),
            ..settings(&folder, &issuer.key_set())
        });
        assert!(told.contains(expected) && !told.contains("s3cret"), "{text:?}: {told}");
    }
}

#[test]
fn a_key_set_is_refused_where_it_cannot_be_trusted_and_reduced_to_what_can_be_used() {
    let (folder, issuer) = (Folder::new(), Issuer::new("k"));
    let load = |set: &Value| {
        TokenAuthFilter::load(&TokenSettings { jwt: settings(&folder, set), ..TokenSettings::default() })
    };
    let with = |algorithm: &str, member: &str, value: Value| {
        let mut key = issuer.jwk(algorithm);
        key[member] = value;
        key
    };
    let useless = "it holds no key that can verify tokens of the allowed algorithms";
    let alone = |key: Value| json!({"keys": [key]});
    let refused = [
        (json!([]), "this is not a JSON object"),
        (json!({"key": []}), "there is no array `keys`"),
        (json!({"keys": [1]}), "`keys` must hold objects"),
        (json!({"keys": []}), useless),
        (
            json!({"keys": [issuer.jwk("ES256"), issuer.jwk("ES256")]}),
            "two keys of one algorithm have the same `kid`",
        ),
        (alone(with("EdDSA", "d", json!("AAAA"))), "it holds a private key"),
        (alone(with("RS256", "use", json!("enc"))), useless),
        (alone(with("RS256", "alg", json!("RSA-OAEP"))), useless),
        (alone(with("RS256", "alg", json!("PS256"))), useless),
        (alone(with("RS256", "alg", json!("ES256"))), useless),
        (alone(with("RS256", "key_ops", json!(["encrypt"]))), useless),
        (alone(with("RS256", "n", json!(base64url([0xff; 128])))), useless),
        (alone(with("RS256", "n", json!("not base64url!"))), useless),
        (alone(with("RS256", "kid", json!(1))), useless),
        (alone(with("ES256", "crv", json!("P-384"))), useless),
        (alone(with("ES256", "x", json!("AAAA"))), useless),
        (alone(with("EdDSA", "crv", json!("X25519"))), useless),
        (alone(issuer.jwk("HS256")), useless),
    ];
    for (set, expected) in refused {
        let told = load(&set).expect_err(expected).to_string();
        assert!(told.contains(expected), "{set}\nexpected {expected:?}\ngot      {told:?}");
    }
    let mixed = json!({"keys": [
        with("RS256", "use", json!("enc")), with("ES256", "crv", json!("P-521")), issuer.jwk("EdDSA"),
    ]});
    let filter = load(&mixed).expect("one key can be used");
    let good = issuer.token("EdDSA", &claims());
    assert_eq!(bearer(&filter, &good), "alice of T1 with writer");
    let by_encryption_key = issuer.token("RS256", &claims());
    assert_eq!(bearer(&filter, &by_encryption_key), "denied: the token's key is not known");
}
