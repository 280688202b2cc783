//! The token file and the `Authorization` value.

use super::*;

const GOOD: &str = r#"
[[token]]
name = "writer"
value = "token-0123456789abcdef"
tenant = "T1"
principal = "alice"
roles = ["writer", "reader"]

[[token]]
name = "reader"
# printf %s token-of-bob-0123456789 | sha256sum
sha256 = "SHA256-OF-BOB"
tenant = "T2"
principal = "bob"
"#;

fn sha256_hex(text: &str) -> String {
    data_encoding::HEXLOWER.encode(ring::digest::digest(&ring::digest::SHA256, text.as_bytes()).as_ref())
}

fn good() -> String {
    GOOD.replace("SHA256-OF-BOB", &sha256_hex("token-of-bob-0123456789"))
}

fn load(text: &str) -> Result<TokenAuthFilter, LoadError> {
    let folder = Folder::new();
    let token_file = Some(folder.write("tokens.toml", text));
    TokenAuthFilter::load(&TokenSettings { token_file, ..TokenSettings::default() })
}

// covers: U112
// proves: SG-3
#[test]
fn only_the_whole_token_in_the_bearer_scheme_or_bare_names_its_holder() {
    let filter = load(&good()).expect("a good file");
    let alice = "alice of T1 with writer+reader";
    let unknown = "denied: the credential is not known";
    let no_bearer = "denied: the credential is not a bearer token";
    let cases: [(&[u8], &str); 20] = [
        (b"Bearer token-0123456789abcdef", alice),
        (b"bearer token-0123456789abcdef", alice),
        (b"BEARER   token-0123456789abcdef", alice),
        (b"token-0123456789abcdef", alice),
        (b"Bearer token-of-bob-0123456789", "bob of T2 with "),
        (b"Bearer token-0123456789abcde", unknown),
        (b"Bearer token-0123456789abcdeF", unknown),
        (b"Bearer token-0123456789abcdef0", unknown),
        (b"Bearer a.b.c", unknown),
        (b"Bearer", unknown),
        (b"Bearer ${TOKEN}", unknown),
        (b"", no_bearer),
        (b" ", no_bearer),
        (b"Bearer ", no_bearer),
        (b"Bearer    ", no_bearer),
        (b"Bearer token-0123456789abcdef ", no_bearer),
        (b"Bearer token-0123456789abcdef, Bearer x", no_bearer),
        (b"Basic token-0123456789abcdef", no_bearer),
        (b"Bearer\ttoken-0123456789abcdef", no_bearer),
        (b"Bearer token-0123456789abcd\xffef", no_bearer),
    ];
    for (value, expected) in cases {
        let shown = String::from_utf8_lossy(value);
        assert_eq!(told(filter.authenticate(Some(value), None, NOW)), expected, "{shown:?}");
    }
    assert_eq!(told(filter.authenticate(None, None, NOW)), "denied: a credential is needed");
    // What the file holds as a digest is not a credential itself.
    assert_eq!(bearer(&filter, &sha256_hex("token-of-bob-0123456789")), unknown);
}

#[test]
fn everybody_who_presents_a_token_shares_one_identity() {
    let filter = load(&good()).expect("a good file");
    let identity = || match filter.authenticate(Some(b"Bearer token-0123456789abcdef"), None, NOW) {
        Finding::Pass(identity) => identity,
        other => panic!("{other:?}"),
    };
    assert!(Arc::ptr_eq(&identity(), &identity()));
}

// covers: U10
#[test]
fn a_token_file_that_is_not_whole_is_refused_with_its_line_and_without_secrets() {
    let holder = "tenant = \"T1\"\nprincipal = \"a\"";
    let one = |members: &str| format!("[[token]]\n{members}\n{holder}");
    let secret = "s3cret-0123456789abcdef";
    let value = format!("name = \"n\"\nvalue = \"{secret}\"");
    let of_nothing = sha256_hex("");
    let cases = [
        (String::new(), "there is no [[token]] in it: nobody could be let in"),
        (one("name = \"n\""), ":1: `value` or `sha256` is missing"),
        (one(&format!("{value}\nsha256 = \"{of_nothing}\"")), ":1: `value` and `sha256` exclude each other"),
        (one("name = \"n\"\nvalue = \"\""), ":3: `value` is blank"),
        (one("name = \"n\"\nvalue = \"  \""), ":3: `value` is blank"),
        (
            one("name = \"n\"\nvalue = \"${S3CRET_0123456789}\""),
            ":3: `value` holds a placeholder (`${…}`) that nothing has filled in",
        ),
        (
            one("name = \"n\"\nvalue = \"s3cret-01234567\""),
            ":1: `value` must have 16 or more visible ASCII characters",
        ),
        (
            one("name = \"n\"\nvalue = \"Bearer s3cret-0123456789\""),
            ":1: `value` must have 16 or more visible ASCII characters",
        ),
        (one("name = \"n\"\nsha256 = \"s3cret\""), ":1: `sha256` must be 64 hexadecimal digits"),
        (one(&format!("name = \"n\"\nsha256 = \"{of_nothing}\"")), ":1: `sha256` is that of nothing at all"),
        (one(&format!("value = \"{secret}\"")), ":1: `name` is missing"),
        (one(&format!("{value}\nrole = \"x\"")), ":4: `role` is not known here"),
        (one(&format!("{value}\nroles = \"x\"")), ":4: `roles` must be a list of texts"),
        (format!("[[token]]\n{value}\nprincipal = \"a\""), ":1: `tenant` is missing"),
        (format!("[[token]]\n{value}\ntenant = \"T\""), ":1: `principal` is missing"),
        (
            format!("[[token]]\n{value}\nprincipal = \"a\"\ntenant = \"\\u0007\""),
            ":1: `tenant` is not the name of a tenant",
        ),
        (
            format!("{}\n{}", one(&value), one(&format!("name = \"n\"\nvalue = \"{secret}-2\""))),
            ":6: another token has the same `name`",
        ),
        (
            format!(
                "{}\n{}",
                one(&value),
                one(&format!("name = \"m\"\nsha256 = \"{}\"", sha256_hex(secret).to_uppercase()))
            ),
            ":6: another token is the same",
        ),
    ];
    for (text, expected) in cases {
        let error = load(&text).expect_err(expected).to_string();
        assert!(error.contains(expected), "{text}\nexpected {expected:?}\ngot      {error:?}");
        assert!(!error.to_lowercase().contains("s3cret"), "{error}");
    }
    let missing = TokenSettings { token_file: Some("/nowhere/at/all".into()), ..TokenSettings::default() };
    assert!(matches!(TokenAuthFilter::load(&missing), Err(LoadError::Unreadable { .. })));
}

#[test]
fn a_changed_file_holds_and_one_that_cannot_be_used_leaves_what_was_there() {
    let folder = Folder::new();
    let token_file = Some(folder.write("tokens.toml", &good()));
    let filter = TokenAuthFilter::load(&TokenSettings { token_file, ..TokenSettings::default() })
        .expect("a good file");
    assert_eq!(filter.reload().expect("looked"), Reload::Unchanged);

    folder.write("tokens.toml", "[[token]]\nname = \"half");
    assert!(filter.reload().is_err());
    assert_eq!(bearer(&filter, "token-0123456789abcdef"), "alice of T1 with writer+reader");

    folder.write("tokens.toml", &good().replace("token-0123456789abcdef", "token-of-next-year-1"));
    assert_eq!(filter.reload().expect("read"), Reload::Changed);
    assert_eq!(bearer(&filter, "token-0123456789abcdef"), "denied: the credential is not known");
    assert_eq!(bearer(&filter, "token-of-next-year-1"), "alice of T1 with writer+reader");
}

#[cfg(unix)]
#[test]
fn it_is_seen_who_may_read_a_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let path = folder.write("tokens.toml", &good());
    for (mode, expected) in [(0o600, false), (0o640, false), (0o644, true), (0o604, true)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        assert_eq!(is_read_by_everybody(&path).expect("there"), expected, "{mode:o}");
    }
    let fingerprints = Fingerprints::new();
    assert!(Tokens::parse(&path, &good(), &fingerprints).expect("good").has_plain);
    let hashed_only = good().replace(
        "value = \"token-0123456789abcdef\"",
        &format!("sha256 = \"{}\"", sha256_hex("token-0123456789abcdef")),
    );
    assert!(!Tokens::parse(&path, &hashed_only, &fingerprints).expect("good").has_plain);
}

#[test]
fn an_identity_holds_as_long_as_its_own_entry_gives_the_same() {
    let folder = Folder::new();
    let token_file = Some(folder.write("tokens.toml", &good()));
    let filter = TokenAuthFilter::load(&TokenSettings { token_file, ..TokenSettings::default() })
        .expect("a good file");
    let Finding::Pass(alice) = filter.authenticate(Some(b"token-0123456789abcdef"), None, NOW) else {
        panic!("alice is known");
    };
    let other =
        "\n[[token]]\nname = \"other\"\nvalue = \"another-0123456789\"\ntenant = \"T1\"\nprincipal = \"x\"\n";
    let cases = [
        ("somebody else came", format!("{}{other}", good()), true),
        ("she has another role", good().replace("\"writer\"", "\"auditor\""), false),
        ("it is as it was", good(), true),
        // Her own name still stands there, with the same rights.
        ("she has another token", good().replace("token-0123456789abcdef", "token-of-next-year-1"), false),
        ("nobody of it is left", other.to_owned(), false),
    ];
    for (what, text, holds) in cases {
        folder.write("tokens.toml", &text);
        assert_eq!(filter.reload().expect("read"), Reload::Changed, "{what}");
        assert_eq!(filter.still_holds(&alice), holds, "{what}");
    }
    let anonymous = Identity::anonymous(alice.tenant.clone());
    assert!(filter.still_holds(&anonymous), "what is in no file is not looked for there");
}
