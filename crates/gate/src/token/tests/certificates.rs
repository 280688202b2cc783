//! Client certificates.

use super::*;
use crate::CredentialKind;

const GOOD: &str = r#"
[[certificate]]
commonName = "billing"
tenant = "T1"
principal = "billing"
roles = ["writer"]

[[certificate]]
san = "DNS:Audit.Example.com"
tenant = "T1"
principal = "audit"

[[certificate]]
san = "URI:spiffe://mesh/billing"
tenant = "T1"
principal = "billing"
roles = ["writer"]
"#;

fn load(text: &str) -> Result<TokenAuthFilter, LoadError> {
    let folder = Folder::new();
    let certificate_file = Some(folder.write("certificates.toml", text));
    TokenAuthFilter::load(&TokenSettings { certificate_file, ..TokenSettings::default() })
}

/// What the filter finds of a certificate with these names, and of this `Authorization`.
fn found(
    filter: &TokenAuthFilter,
    authorization: Option<&[u8]>,
    common_name: &str,
    alternative: &[&str],
) -> Finding<Arc<Identity>> {
    let alternative: Vec<String> = alternative.iter().map(ToString::to_string).collect();
    let common_name = (!common_name.is_empty()).then_some(common_name);
    let names = CertificateNames { common_name, alternative: &alternative };
    filter.authenticate(authorization, Some(names), NOW)
}

#[test]
fn a_certificate_is_known_by_one_of_its_names() {
    let filter = load(GOOD).expect("a good file");
    let billing = "billing of T1 with writer";
    let unknown = "denied: the client certificate is not known";
    let cases: [(&str, &[&str], &str); 9] = [
        ("billing", &[], billing),
        ("", &["URI:spiffe://mesh/billing"], billing),
        ("billing", &["URI:spiffe://mesh/billing", "DNS:other"], billing),
        ("", &["DNS:other", "DNS:audit.example.COM"], "audit of T1 with "),
        ("billing", &["DNS:audit.example.com"], "denied: the client certificate means more than one"),
        ("Billing", &[], unknown),
        ("", &[], unknown),
        ("DNS:audit.example.com", &[], unknown),
        ("", &["DNS:billing", "URI:spiffe://mesh/Billing"], unknown),
    ];
    for (common_name, alternative, expected) in cases {
        let found = found(&filter, None, common_name, alternative);
        assert_eq!(told(found), expected, "{common_name} {alternative:?}");
    }
    match found(&filter, None, "billing", &[]) {
        Finding::Pass(identity) => assert_eq!(identity.credential, CredentialKind::Certificate),
        other => panic!("{other:?}"),
    }
    // A wrong token is not made good by a certificate.
    let wrong = found(&filter, Some(b"Bearer nobody-knows-this"), "billing", &[]);
    assert_eq!(told(wrong), "denied: the credential is not known");
}

// covers: U10
#[test]
fn a_certificate_file_that_is_not_whole_is_refused() {
    let holder = "tenant = \"T\"\nprincipal = \"p\"";
    let cases = [
        (String::new(), "there is no [[certificate]] in it"),
        (format!("[[certificate]]\n{holder}"), ":1: `commonName` or `san` is missing"),
        (
            format!("[[certificate]]\ncommonName = \"a\"\nsan = \"DNS:a\"\n{holder}"),
            ":1: `commonName` and `san` exclude each other",
        ),
        (
            format!("[[certificate]]\nsan = \"a.example\"\n{holder}"),
            ":1: `san` must be one of `DNS:…`, `URI:…`",
        ),
        (format!("[[certificate]]\nsan = \"DNS:\"\n{holder}"), ":1: `san` must be one of"),
        (format!("[[certificate]]\ncn = \"a\"\ncommonName = \"a\"\n{holder}"), ":2: `cn` is not known here"),
        (
            format!("[[certificate]]\nsan = \"DNS:a\"\n{holder}\n[[certificate]]\nsan = \"DNS:A\"\n{holder}"),
            ":5: another entry goes by the same name",
        ),
    ];
    for (text, expected) in cases {
        let error = load(&text).expect_err(expected).to_string();
        assert!(error.contains(expected), "expected {expected:?}, got {error:?}");
    }
}

#[test]
fn without_a_certificate_file_a_certificate_names_nobody() {
    let folder = Folder::new();
    let text = "[[token]]\nname=\"a\"\nvalue=\"token-0123456789abcdef\"\ntenant=\"T\"\nprincipal=\"p\"";
    let token_file = Some(folder.write("tokens.toml", text));
    let filter = TokenAuthFilter::load(&TokenSettings { token_file, ..TokenSettings::default() })
        .expect("a good file");
    let finding = found(&filter, None, "p", &[]);
    assert_eq!(told(finding), "denied: a credential is needed");
}

#[test]
fn an_identity_ends_with_the_entry_of_its_certificate() {
    let folder = Folder::new();
    let certificate_file = Some(folder.write("certificates.toml", GOOD));
    let settings = TokenSettings { certificate_file, ..TokenSettings::default() };
    let filter = TokenAuthFilter::load(&settings).expect("a good file");
    let Finding::Pass(billing) = found(&filter, None, "billing", &[]) else {
        panic!("it is known");
    };
    assert!(filter.still_holds(&billing));
    folder.write("certificates.toml", &GOOD.replace("commonName = \"billing\"", "commonName = \"other\""));
    assert_eq!(filter.reload().expect("read"), Reload::Changed);
    assert!(!filter.still_holds(&billing), "the same holder has another entry, but this one is gone");
}
