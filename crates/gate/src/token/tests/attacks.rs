//! Signed tokens: those that pass, and every way to make one that must not.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    issuer::{ISSUER, Issuer, base64url, claims, claims_with, filter, seconds, settings},
    *,
};
use crate::CredentialKind;

const ALICE: &str = "alice of T1 with writer";
const NO_SIGNED_TOKEN: &str = "denied: the token is not a signed token";
const NOT_ACCEPTED: &str = "denied: the token's algorithm is not accepted";
const UNKNOWN_KEY: &str = "denied: the token's key is not known";
const BAD_SIGNATURE: &str = "denied: the token's signature does not hold";
const UNSUPPORTED: &str = "denied: the token's header asks for what is not supported";
const EXPIRED: &str = "denied: the token has expired";

/// A filter with a key set and a secret, and the issuer that has the keys.
fn with_all_keys() -> (TokenAuthFilter, Issuer, Folder) {
    let (folder, issuer) = (Folder::new(), Issuer::new("k"));
    let mut settings = settings(&folder, &issuer.key_set());
    let secret = String::from_utf8(issuer.secret.clone()).expect("text");
    settings.secret_file = Some(folder.write("secret", &format!("{secret}\n")));
    (filter(settings), issuer, folder)
}

// proves: SG-3
#[test]
fn a_token_of_every_algorithm_names_its_holder() {
    let (filter, issuer, _folder) = with_all_keys();
    for algorithm in ["HS256", "RS256", "ES256", "EdDSA"] {
        let token = issuer.token(algorithm, &claims());
        assert_eq!(bearer(&filter, &token), ALICE, "{algorithm}");
        let finding = filter.authenticate(Some(token.as_bytes()), None, NOW);
        let Finding::Pass(identity) = finding else { panic!("{algorithm}: {finding:?}") };
        assert_eq!(identity.credential, CredentialKind::Jwt);
        let ends = u64::try_from(seconds(630)).expect("positive") * 1000;
        assert_eq!(identity.expires_at, Some(UnixMillis(ends)), "the end and the leeway");
        // The second time it comes from the cache.
        let Finding::Pass(again) = filter.authenticate(Some(token.as_bytes()), None, NOW) else {
            panic!("{algorithm}: refused the second time")
        };
        assert!(Arc::ptr_eq(&identity, &again), "{algorithm}");
        // And the cache does not outlive the token.
        let late = filter.authenticate(Some(token.as_bytes()), None, UnixMillis(ends));
        assert_eq!(told(late), EXPIRED, "{algorithm}");
    }
}

// proves: SG-3
#[test]
fn forged_and_foreign_tokens_are_denied() {
    let (filter, issuer, _folder) = with_all_keys();
    let stranger = Issuer::new("k");
    let good = issuer.token("RS256", &claims());
    let text = claims().to_string();
    let header = |value: Value| value.to_string();
    let with = |algorithm: &str, member: &str, value: Value| {
        let mut header = issuer.header(algorithm);
        header[member] = value;
        issuer.raw(&header.to_string(), &text, algorithm)
    };
    let signed_by = |header: Value, signature: &dyn Fn(&[u8]) -> Vec<u8>| {
        let signed = format!("{}.{}", base64url(header.to_string()), base64url(&text));
        let signature = base64url(signature(signed.as_bytes()));
        format!("{signed}.{signature}")
    };
    let part = |token: &str, index: usize| token.split('.').nth(index).expect("three parts").to_owned();
    let (head, body, signature) = (part(&good, 0), part(&good, 1), part(&good, 2));
    let admin = base64url(claims_with("roles", json!(["admin"])).to_string());
    let rs_kid = issuer.kid("RS256");
    let confused = |secret: Vec<u8>| {
        signed_by(json!({"alg": "HS256", "kid": rs_kid}), &|message| issuer.hmac(&secret, message))
    };
    let es = issuer.token("ES256", &claims());
    let es_signed = es.rsplit_once('.').expect("three parts").0.to_owned();
    let own_key = stranger.jwk("EdDSA");

    let cases: Vec<(&str, String, &str)> = vec![
        // No signature at all.
        ("alg none", format!("{}.{body}.", base64url(r#"{"alg":"none"}"#)), NO_SIGNED_TOKEN),
        (
            "alg none with a signature",
            format!("{}.{body}.{signature}", base64url(r#"{"alg":"none"}"#)),
            NOT_ACCEPTED,
        ),
        ("alg None", format!("{}.{body}.{signature}", base64url(r#"{"alg":"None"}"#)), NOT_ACCEPTED),
        ("signature stripped", format!("{head}.{body}."), NO_SIGNED_TOKEN),
        ("no header", format!(".{body}.{signature}"), NO_SIGNED_TOKEN),
        ("no claims", format!("{head}..{signature}"), BAD_SIGNATURE),
        ("dots alone", "..".into(), NO_SIGNED_TOKEN),
        // Algorithm confusion.
        ("RSA key as PEM taken for a secret", confused(issuer.rsa_public_pem().into_bytes()), BAD_SIGNATURE),
        ("RSA key as DER taken for a secret", confused(issuer.rsa_public_der()), BAD_SIGNATURE),
        ("empty secret", confused(Vec::new()), BAD_SIGNATURE),
        (
            "RS256 under the kid of the ES256 key",
            issuer.raw(&header(json!({"alg": "RS256", "kid": issuer.kid("ES256")})), &text, "RS256"),
            UNKNOWN_KEY,
        ),
        (
            "ES256 claimed, signed with RS256",
            issuer.raw(&header(json!({"alg": "ES256", "kid": issuer.kid("ES256")})), &text, "RS256"),
            BAD_SIGNATURE,
        ),
        ("alg in small letters", with("RS256", "alg", json!("rs256")), NOT_ACCEPTED),
        ("alg not supported", with("RS256", "alg", json!("RS512")), NOT_ACCEPTED),
        ("alg of another curve", with("ES256", "alg", json!("ES384")), NOT_ACCEPTED),
        ("alg a number", with("RS256", "alg", json!(256)), NOT_ACCEPTED),
        ("alg missing", issuer.raw(&header(json!({"kid": rs_kid})), &text, "RS256"), NOT_ACCEPTED),
        ("alg named twice", issuer.raw(r#"{"alg":"RS256","alg":"none"}"#, &text, "RS256"), NO_SIGNED_TOKEN),
        (
            "alg named twice, escaped",
            issuer.raw(r#"{"alg":"RS256","\u0061lg":"none"}"#, &text, "RS256"),
            NO_SIGNED_TOKEN,
        ),
        // Keys.
        ("another's key under our kid", stranger.token("ES256", &claims()), BAD_SIGNATURE),
        (
            "another's secret",
            stranger.raw(&stranger.header("HS256").to_string(), &text, "EdDSA"),
            BAD_SIGNATURE,
        ),
        ("kid unknown", with("RS256", "kid", json!("other")), UNKNOWN_KEY),
        ("kid empty", with("RS256", "kid", json!("")), UNKNOWN_KEY),
        ("kid a path", with("RS256", "kid", json!("../../../dev/null")), UNKNOWN_KEY),
        ("kid a number", with("RS256", "kid", json!(1)), NO_SIGNED_TOKEN),
        ("kid null", with("RS256", "kid", Value::Null), NO_SIGNED_TOKEN),
        (
            "key embedded",
            signed_by(json!({"alg": "EdDSA", "jwk": own_key}), &|message| {
                stranger.signature("EdDSA", message)
            }),
            UNSUPPORTED,
        ),
        ("key embedded beside a good kid", with("EdDSA", "jwk", own_key.clone()), UNSUPPORTED),
        ("key set elsewhere", with("EdDSA", "jku", json!("https://evil.example/jwks")), UNSUPPORTED),
        ("certificate elsewhere", with("EdDSA", "x5u", json!("https://evil.example/pem")), UNSUPPORTED),
        ("certificate embedded", with("EdDSA", "x5c", json!(["MII"])), UNSUPPORTED),
        ("critical extension", with("EdDSA", "crit", json!(["exp"])), UNSUPPORTED),
        ("critical extension, empty", with("EdDSA", "crit", json!([])), UNSUPPORTED),
        ("claims not encoded", with("EdDSA", "b64", json!(false)), UNSUPPORTED),
        ("compressed", with("EdDSA", "zip", json!("DEF")), UNSUPPORTED),
        (
            "another type",
            with("EdDSA", "typ", json!("logout+jwt")),
            "denied: the token is of another type (typ)",
        ),
        // Tampering.
        ("claims changed", format!("{head}.{admin}.{signature}"), BAD_SIGNATURE),
        ("header changed", format!("{}.{body}.{signature}", base64url(r#"{"alg":"RS256"}"#)), BAD_SIGNATURE),
        (
            "signature of another token",
            {
                let other = issuer.token("RS256", &claims_with("sub", json!("bob")));
                format!("{head}.{body}.{}", part(&other, 2))
            },
            BAD_SIGNATURE,
        ),
        ("signature cut", format!("{head}.{body}.{}", base64url([1; 255])), BAD_SIGNATURE),
        ("signature longer", format!("{head}.{body}.{signature}AAAA"), BAD_SIGNATURE),
        ("ES256 with a signature of zeros", format!("{es_signed}.{}", base64url([0; 64])), BAD_SIGNATURE),
        (
            "ES256 with a signature in DER",
            format!("{es_signed}.{}", base64url([0x30, 6, 2, 1, 1, 2, 1, 1])),
            BAD_SIGNATURE,
        ),
        ("ES256 with a signature of ones", format!("{es_signed}.{}", base64url([0xff; 64])), BAD_SIGNATURE),
        // Base64 in other spellings.
        ("padding", format!("{good}=="), NO_SIGNED_TOKEN),
        ("padded header", format!("{head}=.{body}.{signature}"), NO_SIGNED_TOKEN),
        (
            "standard alphabet",
            format!("{head}.{body}.{}+/", &signature[..signature.len() - 2]),
            NO_SIGNED_TOKEN,
        ),
        (
            "bits that mean nothing",
            format!("{head}.{body}.{}B", &signature[..signature.len() - 1]),
            NO_SIGNED_TOKEN,
        ),
        ("more dots", format!("{good}.{signature}"), "denied: the credential is not known"),
        ("no JSON", issuer.raw("alg", &text, "RS256"), NO_SIGNED_TOKEN),
        ("header an array", issuer.raw("[]", &text, "RS256"), NO_SIGNED_TOKEN),
        (
            "claims no JSON",
            issuer.raw(&issuer.header("RS256").to_string(), "alice", "RS256"),
            "denied: the token's claims cannot be read",
        ),
        (
            "claims named twice",
            issuer.raw(&issuer.header("RS256").to_string(), &text.replace('}', r#","sub":"root"}"#), "RS256"),
            "denied: the token's claims cannot be read",
        ),
        (
            "huge",
            issuer.token("HS256", &claims_with("x", json!("x".repeat(8 << 10)))),
            "denied: the token is too large",
        ),
    ];
    assert_eq!(bearer(&filter, &good), ALICE);
    for (name, token, expected) in cases {
        assert_eq!(bearer(&filter, &token), expected, "{name}: {token}");
        assert_eq!(bearer(&filter, &token), expected, "{name}, the second time");
    }
}

#[test]
fn claims_decide_whether_a_token_holds_and_whose_it_is() {
    let (filter, issuer, _folder) = with_all_keys();
    let foreign = "denied: the token is of an issuer that is not accepted (iss)";
    let for_others = "denied: the token is for somebody else (aud)";
    let endless = "denied: the token does not say when it ends (exp)";
    let too_early = "denied: the token does not hold yet";
    let no_tenant = "denied: the token does not name a tenant properly";
    let no_principal = "denied: the token does not say whose it is";
    let cases = [
        ("iss", Value::Null, foreign),
        ("iss", json!("https://issuer.example/"), foreign),
        ("iss", json!([ISSUER]), foreign),
        ("aud", Value::Null, for_others),
        ("aud", json!("other"), for_others),
        ("aud", json!(["other"]), for_others),
        ("aud", json!([]), for_others),
        ("aud", json!(["eventmesh", 1]), for_others),
        ("aud", json!({"eventmesh": true}), for_others),
        ("aud", json!(["other", "eventmesh"]), ALICE),
        ("exp", Value::Null, endless),
        ("exp", json!("1900000000"), endless),
        ("exp", json!(-1), endless),
        ("exp", json!(0), EXPIRED),
        ("exp", json!(seconds(-31)), EXPIRED),
        ("exp", json!(seconds(-30)), EXPIRED),
        ("exp", json!(seconds(-29)), ALICE),
        ("exp", json!(1e300), ALICE),
        ("exp", json!(u64::MAX), ALICE),
        ("nbf", json!(seconds(30)), ALICE),
        ("nbf", json!(seconds(31)), too_early),
        ("nbf", json!("soon"), "denied: the token does not say from when on it holds (nbf)"),
        ("iat", json!(seconds(99_999)), ALICE),
        ("tenant", Value::Null, "denied: the token does not name a tenant"),
        ("tenant", json!(""), no_tenant),
        ("tenant", json!(1), no_tenant),
        ("tenant", json!(["T1"]), no_tenant),
        ("tenant", json!("T\u{7}"), no_tenant),
        ("sub", Value::Null, no_principal),
        ("sub", json!(""), no_principal),
        ("sub", json!(7), no_principal),
        ("roles", Value::Null, "alice of T1 with "),
        ("roles", json!("writer reader"), "alice of T1 with writer+reader"),
        ("roles", json!(["writer", 1]), "denied: the token does not list its roles properly"),
        ("roles", json!({"writer": true}), "denied: the token does not list its roles properly"),
    ];
    for (name, value, expected) in cases {
        let token = issuer.token("ES256", &claims_with(name, value.clone()));
        assert_eq!(bearer(&filter, &token), expected, "{name} = {value}");
    }
}

#[test]
fn claims_are_found_by_dotted_paths_and_a_default_tenant_fills_in() {
    let (folder, issuer) = (Folder::new(), Issuer::new("k"));
    let filter = filter(JwtSettings {
        tenant_claim: "https://mesh.example/tenant".into(),
        default_tenant: Some(mesh_frame::TenantId::new("T9").expect("legal")),
        principal_claim: "preferred_username".into(),
        roles_claim: "realm_access.roles".into(),
        ..settings(&folder, &issuer.key_set())
    });
    let mut claims = claims();
    claims["preferred_username"] = json!("bob");
    claims["realm_access"] = json!({"roles": ["reader"]});
    assert_eq!(bearer(&filter, &issuer.token("EdDSA", &claims)), "bob of T9 with reader");
    claims["https://mesh.example/tenant"] = json!("T2");
    assert_eq!(bearer(&filter, &issuer.token("EdDSA", &claims)), "bob of T2 with reader");
}

#[test]
fn only_allowed_algorithms_are_accepted_although_there_is_a_key() {
    let (folder, issuer) = (Folder::new(), Issuer::new("k"));
    let mut set = issuer.key_set();
    set["keys"].as_array_mut().expect("an array").push(issuer.jwk("HS256"));
    let narrow = filter(JwtSettings { algorithms: vec!["EdDSA".into()], ..settings(&folder, &set) });
    assert_eq!(bearer(&narrow, &issuer.token("EdDSA", &claims())), ALICE);
    for algorithm in ["HS256", "RS256", "ES256"] {
        assert_eq!(bearer(&narrow, &issuer.token(algorithm, &claims())), NOT_ACCEPTED, "{algorithm}");
    }
    // A secret in a key set counts only where it was asked for.
    let wide = filter(settings(&folder, &set));
    assert_eq!(bearer(&wide, &issuer.token("HS256", &claims())), NOT_ACCEPTED);
    let with_secrets =
        filter(JwtSettings { algorithms: vec!["HS256".into(), "RS256".into()], ..settings(&folder, &set) });
    assert_eq!(bearer(&with_secrets, &issuer.token("HS256", &claims())), ALICE);
}

#[test]
fn a_token_without_kid_needs_a_set_with_one_key_of_its_algorithm() {
    let (folder, one, other) = (Folder::new(), Issuer::new("one"), Issuer::new("other"));
    let header = json!({"alg": "ES256"}).to_string();
    let token = one.raw(&header, &claims().to_string(), "ES256");
    let alone = filter(settings(&folder, &one.key_set()));
    assert_eq!(bearer(&alone, &token), ALICE);
    let both = filter(settings(&folder, &json!({"keys": [one.jwk("ES256"), other.jwk("ES256")]})));
    assert_eq!(bearer(&both, &token), "denied: the token does not say which key signed it (kid)");
    assert_eq!(bearer(&both, &one.token("ES256", &claims())), ALICE);
    assert_eq!(bearer(&both, &other.token("ES256", &claims())), ALICE);
}

#[test]
fn the_other_es256_signature_of_the_same_token_gives_nothing_more() {
    // For every ECDSA signature (r, s) there is (r, n - s), which RFC 7518 does not forbid. Who has one can make
    // the other, and has the token already.
    const ORDER: [u8; 32] = [
        0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa,
        0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
    ];
    let (filter, issuer, _folder) = with_all_keys();
    let token = issuer.token("ES256", &claims());
    let (signed, signature) = token.rsplit_once('.').expect("three parts");
    let mut signature = data_encoding::BASE64URL_NOPAD.decode(signature.as_bytes()).expect("base64url");
    let mut borrow = 0;
    for index in (0..32).rev() {
        let difference = i16::from(ORDER[index]) - i16::from(signature[32 + index]) - borrow;
        borrow = i16::from(difference < 0);
        signature[32 + index] = u8::try_from(difference.rem_euclid(256)).expect("a byte");
    }
    let other = format!("{signed}.{}", base64url(&signature));
    assert_ne!(other, token);
    assert_eq!(bearer(&filter, &other), bearer(&filter, &token));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    // proves: SG-3
    #[test]
    fn no_change_of_a_valid_token_passes(
        algorithm in prop::sample::select(vec!["HS256", "ES256", "EdDSA"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..3, "[A-Za-z0-9_.=+/-]"), 1..4),
    ) {
        thread_local! {
            static PARTS: (TokenAuthFilter, Issuer, Folder) = with_all_keys();
        }
        PARTS.with(|(filter, issuer, _)| {
            let token = issuer.token(algorithm, &claims());
            let mut changed = token.clone();
            for (index, kind, with) in &changes {
                if changed.is_empty() {
                    break;
                }
                let at = index.index(changed.len());
                match kind {
                    0 => changed.replace_range(at..=at, with),
                    1 => changed.insert_str(at, with),
                    _ => drop(changed.remove(at)),
                }
            }
            prop_assume!(changed != token);
            let finding = filter.authenticate(Some(changed.as_bytes()), None, NOW);
            prop_assert!(matches!(finding, Finding::Deny(_)), "{finding:?} for {changed}");
            prop_assert_eq!(bearer(filter, &token), ALICE);
            Ok(())
        })?;
    }
}
