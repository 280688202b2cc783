//! Signatures of requests and of events.

use std::{collections::HashMap, fs};

use data_encoding::{BASE64, HEXLOWER};
use mesh_frame::{EventBuilder, TenantId};
use proptest::prelude::*;
use ring::{
    digest::{SHA256, SHA512, digest},
    hmac,
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair},
};
use tempfile::TempDir;

use super::*;
use crate::{CredentialKind, Presented, Principal, Protocol};

/// The time in these tests, in seconds.
const NOW: u64 = 1_800_000_000;
const SECRET: &[u8; 32] = b"0123456789abcdef0123456789abcdef";
const PASSED: &str = "alice of T1 with writer";
const NOT_HELD: &str = "denied: the signature does not hold";
const REPEATED: &str = "denied: the request was received before (nonce)";

fn millis(seconds: u64) -> UnixMillis {
    UnixMillis(seconds * 1000)
}

/// Who signs.
struct Signer {
    ed: Ed25519KeyPair,
}

impl Signer {
    fn new() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("random");
        Self { ed: Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).expect("a key") }
    }

    fn sign(&self, key: &str, message: &[u8]) -> Vec<u8> {
        match key {
            "ed" => self.ed.sign(message).as_ref().to_vec(),
            _ => hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), message).as_ref().to_vec(),
        }
    }

    fn key_file(&self) -> String {
        format!(
            r#"
[[key]]
id = "mac"
tenant = "T1"
principal = "alice"
roles = ["writer"]
algorithm = "hmac-sha256"
secret = "{}"

[[key]]
id = "ed"
tenant = "T1"
principal = "alice"
roles = ["writer"]
algorithm = "ed25519"
publicKey = "{}"
notBefore = "2020-01-01T00:00:00Z"
notAfter = 2030-01-01T00:00:00Z
"#,
            BASE64.encode(SECRET),
            BASE64.encode(self.ed.public_key().as_ref())
        )
    }
}

/// A request and how it is signed.
#[derive(Clone)]
struct Request {
    method: String,
    path: String,
    query: Option<String>,
    headers: HashMap<String, Vec<Vec<u8>>>,
    body: Vec<u8>,
}

impl Request {
    fn new(body: &[u8]) -> Self {
        let mut request = Self {
            method: "POST".into(),
            path: "/events/publish".into(),
            query: Some("topic=orders".into()),
            headers: HashMap::new(),
            body: body.to_vec(),
        };
        request.set("content-type", "application/json");
        request.set("host", "Mesh.Example:443");
        request.set("x-trace", "  a ");
        request.set("content-digest", &sha256_of(body));
        request
    }

    fn set(&mut self, name: &str, value: &str) {
        self.headers.insert(name.into(), vec![value.as_bytes().to_vec()]);
    }

    fn with<T>(&self, of: impl FnOnce(&SignedHead<'_>) -> T) -> T {
        let header = |name: &str| -> Vec<&[u8]> {
            self.headers.get(name).into_iter().flatten().map(Vec::as_slice).collect()
        };
        let speaking: Vec<&str> = self
            .headers
            .keys()
            .map(|name| &**name)
            .filter(|name| name.starts_with("ce-") || *name == "content-type")
            .collect();
        of(&SignedHead {
            speaking: &speaking,
            method: &self.method,
            path: &self.path,
            query: self.query.as_deref(),
            header: &header,
        })
    }

    /// Signs what the input covers, by writing the lines here and not with what is tested.
    fn sign(mut self, signer: &Signer, key: &str, input: &str) -> Self {
        let covered = &input[1..input.find(')').expect("a list")];
        let mut base = String::new();
        for component in covered.split(' ').filter(|component| !component.is_empty()) {
            let value = match component.trim_matches('"') {
                "@method" => self.method.clone(),
                "@path" => self.path.clone(),
                "@query" => format!("?{}", self.query.clone().unwrap_or_default()),
                "@request-target" => format!("{}?{}", self.path, self.query.clone().unwrap_or_default()),
                "@authority" => "mesh.example".into(),
                name => {
                    let values: Vec<_> = self.headers[name]
                        .iter()
                        .map(|value| String::from_utf8_lossy(value).trim().to_owned())
                        .collect();
                    values.join(", ")
                }
            };
            base.push_str(&format!("{component}: {value}\n"));
        }
        base.push_str(&format!("\"@signature-params\": {input}"));
        let signature = BASE64.encode(&signer.sign(key, base.as_bytes()));
        self.set("signature-input", &format!("sig1={input}"));
        self.set("signature", &format!("sig1=:{signature}:"));
        self
    }
}

fn sha256_of(body: &[u8]) -> String {
    format!("sha-256=:{}:", BASE64.encode(digest(&SHA256, body).as_ref()))
}

/// What is signed, by which key, when, with which nonce.
fn input(key: &str, created: u64, nonce: &str) -> String {
    format!(
        r#"("@method" "@path" "@query" "content-digest" "content-type" "x-trace" "@authority");created={created};keyid="{key}";nonce="{nonce}""#
    )
}

struct Rig {
    folder: TempDir,
    signer: Signer,
    filter: SignatureVerifierFilter,
}

impl Rig {
    fn new(change: impl FnOnce(&mut SignatureSettings)) -> Self {
        let (folder, signer) = (tempfile::tempdir().expect("a folder"), Signer::new());
        let path = folder.path().join("keys.toml");
        fs::write(&path, signer.key_file()).expect("written");
        let mut settings = SignatureSettings::new(path);
        change(&mut settings);
        let filter = SignatureVerifierFilter::load(&settings).expect("good keys");
        Self { folder, signer, filter }
    }

    /// Writes the key file anew, so that it is another one than before.
    fn write(&self, text: &str) {
        let fresh = self.folder.path().join("fresh");
        fs::write(&fresh, text).expect("written");
        fs::rename(&fresh, self.folder.path().join("keys.toml")).expect("renamed");
    }

    fn verify_by(&self, caller: &Caller, request: &Request, now: UnixMillis) -> Finding<Arc<Identity>> {
        request.with(|head| self.filter.verify(caller, head, &request.body, now))
    }

    fn verify_at(&self, request: &Request, now: UnixMillis) -> String {
        told(self.verify_by(&nobody(), request, now))
    }

    fn verify(&self, request: &Request) -> String {
        self.verify_at(request, millis(NOW))
    }

    fn glance(&self, request: &Request) -> Finding {
        request.with(|head| self.filter.glance(head, millis(NOW)))
    }
}

fn told(finding: Finding<Arc<Identity>>) -> String {
    match finding {
        Finding::Pass(identity) => {
            let principal = identity.principal.as_ref().map_or("nobody", Principal::as_str);
            format!("{principal} of {} with {}", identity.tenant, identity.roles.join("+"))
        }
        Finding::Deny(reason) => format!("denied: {reason}"),
        Finding::Malformed(reason) => format!("malformed: {reason}"),
        Finding::Broken { reason, retry_after } => format!("broken for {retry_after:?}: {reason}"),
    }
}

fn caller(tenant: &str, principal: Option<&str>) -> Caller {
    let presented = Presented {
        authorization: None,
        certificate: None,
        trace: None,
        remote: None,
        protocol: Protocol::Http,
    };
    let identity = Identity {
        principal: principal.map(Principal::new),
        credential: CredentialKind::Token,
        ..Identity::anonymous(TenantId::new(tenant).expect("legal"))
    };
    Caller::new(Arc::new(identity), &presented, None)
}

fn nobody() -> Caller {
    caller("default", None)
}

/// The vectors of RFC 9421, appendix B.2.5 and B.2.6: its request, its keys, its signatures.
#[test]
fn the_signatures_of_the_rfc_hold() {
    let secret = "uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ==";
    let public_key = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAJrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=\n-----END PUBLIC KEY-----\n";
    let holder = "tenant = \"t\"\nprincipal = \"p\"";
    let text = format!(
        "[[key]]\nid = \"test-shared-secret\"\nalgorithm = \"hmac-sha256\"\nsecret = \"{secret}\"\n{holder}\n\
         [[key]]\nid = \"test-key-ed25519\"\nalgorithm = \"ed25519\"\npublicKey = \"\"\"\n{public_key}\"\"\"\n{holder}\n"
    );
    let keys = SigningKeys::parse("rfc".as_ref(), &text).expect("good keys");
    let mut request = Request::new(br#"{"hello": "world"}"#);
    request.path = "/foo".into();
    request.query = Some("param=Value&Pet=dog".into());
    request.set("host", "example.com");
    request.set("date", "Tue, 20 Apr 2021 02:07:55 GMT");
    request.set("content-length", "18");
    request.set(
        "content-digest",
        "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:",
    );
    request.with(|head| content_digest::check(head, &request.body)).expect("the digest of the RFC's body");
    let vectors = [
        (
            r#"("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret""#,
            "test-shared-secret",
            "pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=",
        ),
        (
            r#"("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519""#,
            "test-key-ed25519",
            "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==",
        ),
    ];
    for (params, key, signature) in vectors {
        let names = &params[1..params.find(')').expect("a list")];
        let components = names.split(' ').map(|name| name.trim_matches('"').to_owned()).collect();
        let signature = BASE64.decode(signature.as_bytes()).expect("base64");
        let mut input = Input {
            components,
            params: params.into(),
            created: 1_618_884_473,
            expires: None,
            nonce: String::new(),
            algorithm: None,
            signature,
        };
        let key = keys.get(key).expect("in the file");
        let verifies = |input: &Input, request: &Request| {
            let base = request.with(|head| base::of(head, input)).expect("everything is there");
            key.verifies(base.as_bytes(), &input.signature)
        };
        assert!(verifies(&input, &request), "{params}");
        let mut later = request.clone();
        later.set("date", "Tue, 20 Apr 2021 02:07:56 GMT");
        assert!(!verifies(&input, &later), "another date: {params}");
        input.signature[7] ^= 1;
        assert!(!verifies(&input, &request), "another signature: {params}");
    }
}

// proves: SG-3
#[test]
fn a_signed_request_says_who_sent_it_and_once() {
    let rig = Rig::new(|_| {});
    for key in ["mac", "ed"] {
        let request = Request::new(b"{}").sign(&rig.signer, key, &input(key, NOW, "n1"));
        assert_eq!(rig.glance(&request), Finding::Pass(()), "{key}");
        let Finding::Pass(identity) = rig.verify_by(&nobody(), &request, millis(NOW)) else {
            panic!("{key}")
        };
        assert_eq!(identity.credential, CredentialKind::Signature);
        assert_eq!(identity.expires_at.is_some(), key == "ed");
        assert_eq!(rig.verify(&request), REPEATED, "{key}");
        assert_eq!(rig.glance(&request), Finding::Pass(()), "the head alone takes no nonce");
        let other = Request::new(b"{}").sign(&rig.signer, key, &input(key, NOW, "n2"));
        assert_eq!(rig.verify(&other), PASSED, "{key}");
    }
}

// covers: U103
// proves: SG-3
#[test]
fn whatever_is_changed_after_signing_is_denied() {
    let rig = Rig::new(|_| {});
    let other_body = "denied: the body is not the one of Content-Digest";
    type Change = fn(&mut Request);
    let changes: Vec<(&str, Change, &str)> = vec![
        ("method", |r| r.method = "PUT".into(), NOT_HELD),
        ("path", |r| r.path = "/events/publish-batch".into(), NOT_HELD),
        ("path, encoded", |r| r.path = "/events/%70ublish".into(), NOT_HELD),
        ("topic in the query", |r| r.query = Some("topic=secrets".into()), NOT_HELD),
        ("query away", |r| r.query = None, NOT_HELD),
        ("query longer", |r| r.query = Some("topic=orders&topic=secrets".into()), NOT_HELD),
        ("one blank in the body", |r| r.body = b"{ }".to_vec(), other_body),
        ("body away", |r| r.body.clear(), other_body),
        (
            "body and digest",
            |r| {
                r.body = b"{ }".to_vec();
                r.set("content-digest", &sha256_of(b"{ }"));
            },
            NOT_HELD,
        ),
        (
            "another digest beside",
            |r| {
                let both = format!("{}, sha-512=:AAAA:", sha256_of(b"{}"));
                r.set("content-digest", &both);
            },
            other_body,
        ),
        (
            "digest of no known kind",
            |r| r.set("content-digest", "md5=:AAAA:"),
            "denied: Content-Digest has neither sha-256 nor sha-512",
        ),
        (
            "digest away",
            |r| drop(r.headers.remove("content-digest")),
            "denied: the header Content-Digest is missing",
        ),
        ("digest no bytes", |r| r.set("content-digest", "sha-256=1"), other_body),
        ("header", |r| r.set("content-type", "text/plain"), NOT_HELD),
        (
            "header away",
            |r| drop(r.headers.remove("content-type")),
            "denied: a header that is signed was not sent",
        ),
        (
            "header twice",
            |r| {
                let values = r.headers.get_mut("content-type").expect("there");
                values.push(b"text/plain".to_vec());
            },
            NOT_HELD,
        ),
        (
            "header with an end of line",
            |r| r.set("x-trace", "a\n\"@method\": GET"),
            "denied: a part that is signed has characters that cannot be signed",
        ),
        (
            "header not ASCII",
            |r| r.set("x-trace", "ä"),
            "denied: a part that is signed has characters that cannot be signed",
        ),
        (
            "headers swapped",
            |r| {
                r.set("content-type", "a");
                r.set("x-trace", "application/json");
            },
            NOT_HELD,
        ),
        ("host", |r| r.set("host", "other.example"), NOT_HELD),
        (
            "two hosts",
            |r| r.headers.get_mut("host").expect("there").push(b"x".to_vec()),
            "denied: the request does not name one host",
        ),
        ("created", |r| r.set("signature-input", &format!("sig1={}", input("mac", NOW + 1, "n"))), NOT_HELD),
        ("nonce", |r| r.set("signature-input", &format!("sig1={}", input("mac", NOW, "m"))), NOT_HELD),
        ("key", |r| r.set("signature-input", &format!("sig1={}", input("ed", NOW, "n"))), NOT_HELD),
        (
            "unknown key",
            |r| r.set("signature-input", &format!("sig1={}", input("x", NOW, "n"))),
            "denied: the signature's key is not known",
        ),
        (
            "less covered",
            |r| {
                let less = input("mac", NOW, "n").replace(" \"x-trace\"", "");
                r.set("signature-input", &format!("sig1={less}"));
            },
            NOT_HELD,
        ),
        ("signature zero", |r| r.set("signature", &format!("sig1=:{}:", BASE64.encode(&[0; 32]))), NOT_HELD),
        ("signature empty", |r| r.set("signature", "sig1=::"), NOT_HELD),
        (
            "signature away",
            |r| drop(r.headers.remove("signature")),
            "denied: the header Signature is missing",
        ),
        (
            "signature under another label",
            |r| {
                let moved = String::from_utf8_lossy(&r.headers["signature"][0]).replace("sig1", "sig2");
                r.set("signature", &moved);
            },
            "denied: Signature has no bytes for a member of Signature-Input",
        ),
        ("input away", |r| drop(r.headers.remove("signature-input")), "denied: a signature is needed"),
        (
            "input broken",
            |r| r.set("signature-input", "sig1=(\"@method\""),
            "denied: a header of the signature cannot be parsed",
        ),
        (
            "input no list",
            |r| r.set("signature-input", "sig1=1"),
            "denied: a member of Signature-Input is not a list",
        ),
        (
            "input huge",
            |r| r.set("signature-input", &"a".repeat(9000)),
            "denied: a header of the signature is too large",
        ),
        (
            "many inputs",
            |r| r.set("signature-input", "a=(),b=(),c=(),d=(),e=()"),
            "denied: there are too many signatures",
        ),
    ];
    let good = Request::new(b"{}").sign(&rig.signer, "mac", &input("mac", NOW, "n"));
    for (name, change, expected) in changes {
        let mut changed = good.clone();
        change(&mut changed);
        assert_eq!(rig.verify(&changed), expected, "{name}");
    }
    // None of them used up the nonce.
    assert_eq!(rig.verify(&good), PASSED);
}

#[test]
fn a_signature_must_cover_the_attributes_of_an_event_in_binary_mode() {
    let rig = Rig::new(|_| {});
    let uncovered = "denied: the signature must cover content-type and every ce- header that is sent";
    let with = |list: &str, nonce: &str| format!(r#"{list};created={NOW};keyid="mac";nonce="{nonce}""#);
    let binary = |list: &str, nonce: &str| {
        let mut request = Request::new(b"{}");
        request.set("ce-id", "1");
        request.set("ce-source", "/s");
        request.sign(&rig.signer, "mac", &with(list, nonce))
    };
    let (least, one) = (
        r#"("@method" "@path" "@query" "content-digest" "content-type")"#,
        r#"("@method" "@path" "@query" "content-digest" "content-type" "ce-id")"#,
    );
    let all = r#"("@method" "@path" "@query" "content-digest" "content-type" "ce-id" "ce-source")"#;
    assert_eq!(rig.verify(&binary(least, "1")), uncovered);
    assert_eq!(rig.verify(&binary(one, "1")), uncovered);
    assert_eq!(rig.verify(&binary(all, "1")), PASSED);
    // An event in structured mode does not become another one by headers that are put beside it.
    let mut structured = Request::new(b"{}").sign(&rig.signer, "mac", &with(least, "2"));
    structured.set("ce-id", "evil");
    assert_eq!(rig.verify(&structured), uncovered);
    // Nor is its body read as something else by a type that is put beside it, or in the place of the one that was signed.
    let mut untyped = Request::new(b"{}");
    untyped.headers.remove("content-type");
    let bare = r#"("@method" "@path" "@query" "content-digest")"#;
    let mut untyped = untyped.sign(&rig.signer, "mac", &with(bare, "3"));
    untyped.set("content-type", "application/cloudevents+json");
    assert_eq!(rig.verify(&untyped), uncovered);
    let typed = Request::new(b"{}").sign(&rig.signer, "mac", &with(least, "4"));
    let mut changed = typed.clone();
    changed.set("content-type", "application/cloudevents+json");
    assert_eq!(rig.verify(&changed), "denied: the signature does not hold");
    assert_eq!(rig.verify(&typed), PASSED);
}

#[test]
fn a_signature_must_cover_what_counts_and_say_when_by_whom_and_which() {
    let rig = Rig::new(|_| {});
    let too_little = "denied: the signature must cover @method, @path and @query";
    let all = r#"("@method" "@path" "@query" "content-digest")"#;
    let rest = format!(r#";created={NOW};keyid="mac""#);
    let with = |list: &str, nonce: &str| format!("{list}{rest};nonce=\"{nonce}\"");
    let cases = [
        (with(r#"("@path" "@query" "content-digest")"#, "1"), too_little),
        (with(r#"("@method" "@query" "content-digest")"#, "1"), too_little),
        (with(r#"("@method" "@path" "content-digest")"#, "1"), too_little),
        (with("()", "1"), too_little),
        (
            with(r#"("@method" "@path" "@query")"#, "1"),
            "denied: the signature must cover content-digest where there is a body",
        ),
        (format!("{all}{rest}"), "denied: the signature has no nonce"),
        (format!("{all}{rest};nonce=\"\""), "denied: the nonce must have 1 to 256 characters"),
        (
            format!("{all}{rest};nonce=\"{}\"", "n".repeat(257)),
            "denied: the nonce must have 1 to 256 characters",
        ),
        (format!("{all}{rest};nonce=1"), "denied: the signature has no nonce"),
        (
            format!("{all};keyid=\"mac\";nonce=\"1\""),
            "denied: the signature does not say when it was created",
        ),
        (
            format!("{all};created=-1;keyid=\"mac\";nonce=\"1\""),
            "denied: created and expires must be whole seconds since 1970",
        ),
        (
            format!("{all};created={NOW}.5;keyid=\"mac\";nonce=\"1\""),
            "denied: created and expires must be whole seconds since 1970",
        ),
        (format!("{all};created={NOW};nonce=\"1\""), "denied: the signature's key is not known"),
        (with(all, "1") + ";alg=\"ed25519\"", "denied: the signature's algorithm is not the key's"),
        (with(all, "1") + ";alg=\"\"", "denied: the signature's algorithm is not the key's"),
        (with(all, "1") + ";alg=hmac-sha256", "denied: alg must be a string"),
        (with(all, "1") + ";alg=\"hmac-sha256\"", PASSED),
        (with(all, "2") + &format!(";expires={NOW}"), "denied: the signature has expired"),
        (with(all, "2") + &format!(";expires={}", NOW + 1), PASSED),
        (with(all, "3") + ";tag=\"mesh\"", PASSED),
        (with(r#"("@method" "@path" "@query" "content-digest" "@request-target")"#, "4"), PASSED),
    ];
    for (input, expected) in cases {
        let mut request = Request::new(b"{}");
        request.headers.remove("content-type");
        let request = request.sign(&rig.signer, "mac", &input);
        assert_eq!(rig.verify(&request), expected, "{input}");
    }
    let unsupported = [
        (r#"("@method" "@method" "@path" "@query" "content-digest")"#, "denied: a part is signed twice"),
        (
            r#"("@method" "@path" "@query" "content-digest" "@scheme")"#,
            "denied: a part that is signed is not supported",
        ),
        (
            r#"("@method" "@path" "@query" "content-digest" "@target-uri")"#,
            "denied: a part that is signed is not supported",
        ),
        (
            r#"("@method";req "@path" "@query" "content-digest")"#,
            "denied: parameters of parts that are signed are not supported",
        ),
        (
            r#"("@method" "@path" "@query" "content-digest" "Host")"#,
            "denied: a part that is signed is not the name of a header in small letters",
        ),
        (
            r#"("@method" "@path" "@query" "content-digest" token)"#,
            "denied: a part that is signed is not named by a string",
        ),
    ];
    for (list, expected) in unsupported {
        let mut request = Request::new(b"{}");
        request.headers.remove("content-type");
        let mut request = request.sign(&rig.signer, "mac", &with(all, "9"));
        request.set("signature-input", &format!("sig1={}", with(list, "9")));
        assert_eq!(rig.verify(&request), expected, "{list}");
    }
}

#[test]
fn an_empty_body_needs_no_digest_and_no_query_is_an_empty_one() {
    let rig = Rig::new(|_| {});
    let of = |list: &str, nonce: &str| format!("{list};created={NOW};keyid=\"ed\";nonce=\"{nonce}\"");
    let mut poll = Request::new(b"");
    poll.headers.remove("content-type");
    (poll.method, poll.path, poll.query) = ("GET".into(), "/events/poll".into(), None);
    let without = of(r#"("@method" "@path" "@query")"#, "1");
    assert_eq!(rig.verify(&poll.clone().sign(&rig.signer, "ed", &without)), PASSED);
    let with = of(r#"("@method" "@path" "@query" "content-digest")"#, "2");
    assert_eq!(rig.verify(&poll.clone().sign(&rig.signer, "ed", &with)), PASSED);
    let mut grown = poll.sign(&rig.signer, "ed", &of(r#"("@method" "@path" "@query")"#, "3"));
    grown.body = b"{}".to_vec();
    assert_eq!(rig.verify(&grown), "denied: the signature must cover content-digest where there is a body");
}

#[test]
fn both_digests_are_known_and_a_proxy_may_sign_too() {
    let rig = Rig::new(|_| {});
    let mut request = Request::new(b"{}");
    request.set("content-digest", &format!("sha-512=:{}:", BASE64.encode(digest(&SHA512, b"{}").as_ref())));
    let mut request = request.sign(&rig.signer, "mac", &input("mac", NOW, "n"));
    for (name, value) in [
        ("signature-input", &b"proxy=(\"@path\");keyid=\"elsewhere\""[..]),
        ("signature", &b"proxy=:AAAA:"[..]),
    ] {
        request.headers.get_mut(name).expect("there").insert(0, value.to_vec());
    }
    assert_eq!(rig.verify(&request), PASSED);
}

// covers: U103
// proves: SG-3
#[test]
fn a_signature_counts_within_its_window_and_its_nonce_as_long() {
    let rig = Rig::new(|_| {});
    let too_old = "denied: the signature is too old";
    let cases = [
        (NOW - 360, too_old),
        (NOW - 301, too_old),
        (NOW - 300, PASSED),
        (NOW + 30, PASSED),
        (NOW + 31, "denied: the signature was created in the future"),
        (NOW + 600, "denied: the signature was created in the future"),
    ];
    for (created, expected) in cases {
        let request =
            Request::new(b"{}").sign(&rig.signer, "mac", &input("mac", created, &created.to_string()));
        assert_eq!(rig.verify(&request), expected, "created {created}");
    }
    // Of one from the future the nonce is remembered until it is too old, not only for the window from now.
    let ahead = Request::new(b"{}").sign(&rig.signer, "mac", &input("mac", NOW + 30, "ahead"));
    assert_eq!(rig.verify(&ahead), PASSED);
    for later in [0, 1, 300, 301, 330] {
        assert_eq!(rig.verify_at(&ahead, millis(NOW + later)), REPEATED, "after {later} s");
    }
    assert_eq!(rig.verify_at(&ahead, UnixMillis((NOW + 330) * 1000 + 1)), too_old);
}

#[test]
fn what_was_signed_before_the_start_is_refused() {
    let rig = Rig::new(|settings| settings.accept_from = UnixMillis(NOW * 1000 + 700));
    let before = Request::new(b"{}").sign(&rig.signer, "mac", &input("mac", NOW - 1, "n"));
    let told = "denied: the signature is older than this server's start; sign again";
    assert_eq!(rig.verify_at(&before, millis(NOW + 1)), told);
    // In the second of the start: it could have been used by the process before.
    let same = Request::new(b"{}").sign(&rig.signer, "mac", &input("mac", NOW, "n"));
    assert_eq!(rig.verify_at(&same, millis(NOW + 1)), told);
    let after = Request::new(b"{}").sign(&rig.signer, "mac", &input("mac", NOW + 1, "n"));
    assert_eq!(rig.verify_at(&after, millis(NOW + 1)), PASSED);
}

// covers: U107
#[test]
fn a_key_whose_room_for_nonces_is_full_waits_and_forged_requests_take_none() {
    let rig = Rig::new(|settings| settings.max_nonces = 4);
    let signed = |key: &str, nonce: u32| {
        Request::new(b"{}").sign(&rig.signer, key, &input(key, NOW, &nonce.to_string()))
    };
    for nonce in 0..1000 {
        let mut forged = signed("mac", nonce);
        forged.query = None;
        assert_eq!(rig.verify(&forged), NOT_HELD);
    }
    assert_eq!(rig.verify(&signed("mac", 1)), PASSED);
    assert_eq!(rig.verify(&signed("mac", 2)), PASSED);
    let full = "broken for 300.001s: a key has used up its room for nonces (eventmesh.security.gate.signature.maxNonces)";
    assert_eq!(rig.verify(&signed("mac", 3)), full);
    assert_eq!(rig.verify(&signed("mac", 1)), REPEATED);
    assert_eq!(rig.verify(&signed("ed", 1)), PASSED, "the other key has its own share");
}

#[test]
fn a_credential_and_a_signature_must_be_of_the_same_principal_and_tenant() {
    let rig = Rig::new(|_| {});
    let request = |nonce: &str| Request::new(b"{}").sign(&rig.signer, "mac", &input("mac", NOW, nonce));
    let others = "denied: the signature is somebody else's than the credential";
    let by = |caller: &Caller, nonce: &str| rig.verify_by(caller, &request(nonce), millis(NOW));
    assert_eq!(told(by(&caller("T1", Some("bob")), "1")), others);
    assert_eq!(told(by(&caller("T2", Some("alice")), "1")), others);
    let alice = caller("T1", Some("alice"));
    let Finding::Pass(identity) = by(&alice, "1") else { panic!("it is her own") };
    assert!(Arc::ptr_eq(&identity, alice.identity()), "what the credential says stays");
    // Only what passed has used up its nonce.
    assert_eq!(told(by(&alice, "1")), REPEATED);
}

#[test]
fn keys_are_replaced_one_after_the_other_and_used_nonces_stay_used() {
    let rig = Rig::new(|_| {});
    let request =
        |key: &str, nonce: &str| Request::new(b"{}").sign(&rig.signer, key, &input(key, NOW, nonce));
    let used = request("mac", "1");
    assert_eq!(rig.verify(&used), PASSED);
    assert_eq!(rig.filter.reload().expect("looked"), Reload::Unchanged);
    let unknown = "denied: the signature's key is not known";

    // The key goes, and comes again: what was used with it is not fresh.
    let both = rig.signer.key_file();
    let without = both.replacen("\"mac\"", "\"gone\"", 1);
    rig.write(&without);
    assert_eq!(rig.filter.reload().expect("read"), Reload::Changed);
    assert_eq!(rig.verify(&request("mac", "2")), unknown);
    assert_eq!(rig.verify(&request("ed", "2")), PASSED, "the other key of the principal");
    rig.write("[[key]]\nid = \"half");
    assert!(rig.filter.reload().is_err());
    assert_eq!(rig.verify(&request("ed", "3")), PASSED);
    rig.write(&both);
    assert_eq!(rig.filter.reload().expect("read"), Reload::Changed);
    assert_eq!(rig.verify(&used), REPEATED);
    assert_eq!(rig.verify(&request("mac", "2")), PASSED);

    // A key has its time.
    for (time, expected) in [
        ("2020-01-01T00:00:00Z", unknown),
        ("2027-01-15T08:00:00Z", unknown),
        ("2027-01-15T08:00:01Z", PASSED),
    ] {
        let key = both.replace("2020-01-01T00:00:00Z", "2019-01-01T00:00:00Z");
        rig.write(&key.replace("2030-01-01T00:00:00Z", time));
        rig.filter.reload().expect("read");
        assert_eq!(rig.verify(&request("ed", time)), expected, "until {time}");
    }
    rig.write(&both.replace("2020-01-01T00:00:00Z", "2027-01-15T08:00:01Z"));
    rig.filter.reload().expect("read");
    assert_eq!(rig.verify(&request("ed", "4")), unknown, "not yet");
}

fn event(id: &str, source: &str, signature: Option<&str>) -> Event {
    let mut builder = EventBuilder::new(id, source, "order.placed");
    if let Some(signature) = signature {
        builder = builder.attribute("emsignature", signature);
    }
    builder.build().expect("a good event")
}

#[test]
fn an_event_signed_by_its_attribute_counts_only_where_that_is_switched_on() {
    let rig = Rig::new(|settings| settings.legacy = true);
    let signature = HEXLOWER.encode(&rig.signer.sign("mac", b"1|/shop|order.placed"));
    let by = |caller: &Caller, event: &Event| told(rig.filter.verify_legacy(caller, event, millis(NOW)));
    let not_held = "denied: emsignature does not hold";
    let ambiguous = "denied: with emsignature neither id nor source may contain `|`";
    let ours = HEXLOWER.encode(&rig.signer.sign("mac", b"1|/s|hop|order.placed"));
    let cases = [
        (nobody(), event("1", "/shop", Some(&signature)), PASSED),
        (nobody(), event("1", "/shop", Some(&signature.to_uppercase())), PASSED),
        (caller("T1", Some("alice")), event("1", "/shop", Some(&signature)), "alice of T1 with "),
        (caller("T1", Some("bob")), event("1", "/shop", Some(&signature)), not_held),
        (caller("T2", Some("alice")), event("1", "/shop", Some(&signature)), not_held),
        (nobody(), event("2", "/shop", Some(&signature)), not_held),
        (nobody(), event("1", "/other", Some(&signature)), not_held),
        (nobody(), event("1", "/shop", Some(&signature[..62])), not_held),
        (nobody(), event("1", "/shop", Some("zz")), not_held),
        (nobody(), event("1", "/s|hop", Some(&ours)), ambiguous),
        (nobody(), event("1|/s", "hop", Some(&ours)), ambiguous),
        (
            nobody(),
            event("1", "/shop", None),
            "denied: a signature is needed, of the request or as emsignature",
        ),
    ];
    for (index, (caller, event, expected)) in cases.iter().enumerate() {
        assert_eq!(by(caller, event), *expected, "case {index}: {event:?}");
    }
    assert!(rig.filter.takes_legacy());
    let strict = Rig::new(|_| {});
    assert!(!strict.filter.takes_legacy());
    let event = event("1", "/shop", Some(&signature));
    let finding = strict.filter.verify_legacy(&nobody(), &event, millis(NOW));
    assert_eq!(told(finding), "denied: a signature is needed");
}

// covers: U10
#[test]
fn a_key_file_or_setting_that_is_not_whole_is_refused_without_secrets() {
    let (folder, signer) = (tempfile::tempdir().expect("a folder"), Signer::new());
    let path = folder.path().join("keys.toml");
    let holder = "tenant = \"T\"\nprincipal = \"p\"";
    let secret = BASE64.encode(b"s3cret-s3cret-s3cret-s3cret-s3cret");
    let key = |members: &str| format!("[[key]]\n{members}\n{holder}");
    let mac = |id: &str| key(&format!("id = \"{id}\"\nalgorithm = \"hmac-sha256\"\nsecret = \"{secret}\""));
    let cases = [
        (String::new(), "there is no [[key]] in it: nobody could be let in"),
        (key("algorithm = \"hmac-sha256\""), ":1: `id` is missing"),
        (
            key("id = \"ä\"\nalgorithm = \"ed25519\""),
            ":1: `id` must have up to 255 printable ASCII characters",
        ),
        (key("id = \"a\""), ":1: `algorithm` is missing"),
        (key("id = \"a\"\nalgorithm = \"rsa\""), ":1: `algorithm` must be `hmac-sha256` or `ed25519`"),
        (key("id = \"a\"\nalgorithm = \"hmac-sha256\""), ":1: `hmac-sha256` goes with `secret` alone"),
        (
            key(&format!("id = \"a\"\nalgorithm = \"ed25519\"\nsecret = \"{secret}\"")),
            ":1: `ed25519` goes with `publicKey` alone",
        ),
        (
            key("id = \"a\"\nalgorithm = \"hmac-sha256\"\nsecret = \"c2hvcnQ=\""),
            ":1: `secret` must be 32 bytes or more in base64",
        ),
        (key("id = \"a\"\nalgorithm = \"hmac-sha256\"\nsecret = \"\""), ":4: `secret` is blank"),
        (
            key("id = \"a\"\nalgorithm = \"hmac-sha256\"\nsecret = \"${SECRET}\""),
            ":4: `secret` holds a placeholder",
        ),
        (
            key("id = \"a\"\nalgorithm = \"ed25519\"\npublicKey = \"AAAA\""),
            ":1: `publicKey` must be an Ed25519 key",
        ),
        (
            key("id = \"a\"\nalgorithm = \"ed25519\"\npublicKey = \"-----BEGIN PRIVATE KEY-----\""),
            ":1: `publicKey` must be an Ed25519 key",
        ),
        (mac("a") + "\nnotAfter = \"tomorrow\"", ":1: `notAfter` must be an RFC 3339 time with its zone"),
        (mac("a") + "\nnotAfter = 2027-01-01", ":1: `notAfter` must be an RFC 3339 time with its zone"),
        (
            mac("a") + "\nnotBefore = \"2027-01-01T00:00:00Z\"\nnotAfter = \"2027-01-01T00:00:00Z\"",
            ":1: `notAfter` must be later than `notBefore`",
        ),
        (mac("a") + "\nsecrets = \"x\"", ":7: `secrets` is not known here"),
        (mac("a") + "\n" + &mac("b"), ":7: another key is the same"),
    ];
    for (text, expected) in cases {
        fs::write(&path, &text).expect("written");
        let error = SignatureVerifierFilter::load(&SignatureSettings::new(path.clone())).expect_err(expected);
        let error = error.to_string();
        assert!(error.contains(expected), "{text}\nexpected {expected:?}\ngot      {error:?}");
        assert!(!error.contains(&secret) && !error.contains("c2hvcnQ"), "{error}");
    }
    fs::write(&path, signer.key_file()).expect("written");
    let refused = |change: fn(&mut SignatureSettings)| {
        let mut settings = SignatureSettings::new(path.clone());
        change(&mut settings);
        SignatureVerifierFilter::load(&settings).expect_err("not whole").to_string()
    };
    let prefix = "eventmesh.security.gate.signature";
    let window = format!("{prefix}.window: it must be longer than nothing and not longer than an hour");
    assert_eq!(refused(|settings| settings.window = Duration::ZERO), window);
    assert_eq!(refused(|settings| settings.window = Duration::from_secs(3601)), window);
    let nonces = refused(|settings| settings.max_nonces = 1);
    assert_eq!(nonces, format!("{prefix}.maxNonces: there are more keys than that"));
    let only_ed = signer.key_file();
    let only_ed =
        format!("[[key]]\nid = \"ed\"{}", only_ed.split("id = \"ed\"").nth(1).expect("the second key"));
    fs::write(&path, only_ed).expect("written");
    let legacy = refused(|settings| settings.legacy = true);
    assert_eq!(legacy, format!("{prefix}.legacy: no key is of the algorithm hmac-sha256, which it needs"));
    let missing = SignatureSettings::new(folder.path().join("missing"));
    assert!(matches!(SignatureVerifierFilter::load(&missing), Err(LoadError::Unreadable { .. })));
}

proptest! {
    #[test]
    fn no_header_that_nobody_signed_passes_or_panics(
        created in NOW - 400..NOW + 100,
        list in prop::collection::vec(
            prop::sample::select(vec![
                "\"@method\"", "\"@path\"", "\"@query\"", "\"content-digest\"", "\"host\"", "\"@authority\"",
                "\"\"", "\"@x\"", "\"@path\";sf", "\"a b\"", "1", "x",
            ]),
            0..8,
        ),
        rest in "[;=a-z0-9\"():,?@%. -]{0,40}",
        signature in prop::collection::vec(any::<u8>(), 0..70),
        digest in "[ -~]{0,60}",
    ) {
        thread_local! {
            static RIG: Rig = Rig::new(|_| {});
        }
        RIG.with(|rig| {
            let mut request = Request::new(b"{}");
            let input = format!("s=({});keyid=\"mac\";created={created};nonce=\"n\"{rest}", list.join(" "));
            request.set("signature-input", &input);
            request.set("signature", &format!("s=:{}:", BASE64.encode(&signature)));
            if created % 2 == 0 {
                request.set("content-digest", &digest);
            }
            let told = rig.verify(&request);
            prop_assert!(told.starts_with("denied: "), "{told} for {input}");
            Ok(())
        })?;
    }
}
