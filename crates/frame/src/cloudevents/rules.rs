//! The rules of CloudEvents for names and values, and which names belong to the server.

use crate::{media_type::is_media_type, timestamp::parse_timestamp};

/// Whether `name` can name an attribute: lower-case letters and digits, and not `data`.
pub(crate) fn is_attribute_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        && name != "data"
}

/// Who may set an attribute.
pub(super) enum Setter {
    /// The client, to any value that its type allows.
    Client,
    /// The server only; a client that sets it is told so.
    Server,
    /// The server; what a client sends is dropped, since it may be passing on an event it received.
    ServerSilently,
}

pub(super) fn setter_of(name: &str) -> Setter {
    match name {
        "emreplaygroup" => Setter::Server,
        "emtenantid" | "empopck" => Setter::ServerSilently,
        _ if name.starts_with("emdl") => Setter::Server,
        _ if name.starts_with("emmq") => Setter::ServerSilently,
        _ => Setter::Client,
    }
}

/// Whether CloudEvents itself defines the attribute; all of those are strings.
pub(super) fn is_core(name: &str) -> bool {
    matches!(
        name,
        "id" | "source" | "specversion" | "type" | "datacontenttype" | "dataschema" | "subject" | "time"
    )
}

/// What is wrong with the value of an attribute, if anything: every attribute with a type of its own is held to it,
/// whichever mode it came in.
pub(super) fn fault_of_value(name: &str, value: &str) -> Option<String> {
    if let Some(character) = forbidden_character(value) {
        return Some(format!("must not contain the character U+{:04X}", u32::from(character)));
    }
    match name {
        "id" | "source" | "type" | "datacontenttype" | "dataschema" | "subject" if value.is_empty() => {
            Some("must not be empty".to_owned())
        }
        "specversion" if value != "1.0" => Some("must be `1.0`, no other version is supported".to_owned()),
        "time" | "expirytime" if parse_timestamp(value).is_none() => {
            Some("must be an RFC 3339 timestamp".to_owned())
        }
        "source" | "dataref" if !has_uri_escapes(value) => Some(
            "must be a URI-reference (RFC 3986): a `%` stands before two hex digits, and one `#` at most"
                .to_owned(),
        ),
        "dataschema" if !is_uri(value) => Some("must be a URI (RFC 3986), with its scheme".to_owned()),
        "datacontenttype" if !is_media_type(value) => {
            Some("must be a media type (RFC 2046) such as `application/json`".to_owned())
        }
        "emttl" if !value.bytes().all(|byte| byte.is_ascii_digit()) || value.parse::<u64>().is_err() => {
            Some("must be a number of milliseconds in decimal digits".to_owned())
        }
        _ => None,
    }
}

/// Whether this is a URI with its scheme.
fn is_uri(value: &str) -> bool {
    value.split_once(':').is_some_and(|(scheme, _)| is_scheme(scheme)) && has_uri_characters(value)
}

fn is_scheme(scheme: &str) -> bool {
    scheme.bytes().next().is_some_and(|first| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

/// Whether there are only characters that RFC 3986 knows, or RFC 3987 beyond ASCII, with escapes that hold.
fn has_uri_characters(value: &str) -> bool {
    let is_known = |byte: u8| {
        !byte.is_ascii() || byte.is_ascii_alphanumeric() || b"-._~:/?[]@!$&'()*+,;=%#".contains(&byte)
    };
    value.bytes().all(is_known) && has_uri_escapes(value)
}

/// Whether every `%` stands before two hex digits, and there is one `#` at most. That is all that is asked of a reference:
/// SDKs leave blanks and letters beyond ASCII as they are, and an event that came with them is passed on with them.
fn has_uri_escapes(value: &str) -> bool {
    let bytes = value.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let mut hashes = 0;
    bytes.iter().enumerate().all(|(at, byte)| match byte {
        b'%' => is_hex(at + 1) && is_hex(at + 2),
        b'#' => {
            hashes += 1;
            hashes == 1
        }
        _ => true,
    })
}

/// The first character that a CloudEvents string must not have: a control character or a non-character.
fn forbidden_character(value: &str) -> Option<char> {
    if value.bytes().all(|byte| (0x20..0x7F).contains(&byte)) {
        return None;
    }
    value.chars().find(|character| {
        let code = u32::from(*character);
        character.is_control() || (0xFDD0..=0xFDEF).contains(&code) || code & 0xFFFE == 0xFFFE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_non_characters_are_forbidden_and_all_others_are_not() {
        let bad = [
            '\0',
            '\u{1f}',
            '\u{7f}',
            '\u{9f}',
            '\u{fdd0}',
            '\u{fdef}',
            '\u{fffe}',
            '\u{ffff}',
            '\u{10ffff}',
        ];
        for character in bad {
            assert_eq!(forbidden_character(&format!("a{character}")), Some(character));
        }
        assert_eq!(forbidden_character("a \u{a0}\u{fdcf}\u{fdf0}\u{fffd}\u{1fffd}😀\u{feff}"), None);
    }

    #[test]
    fn every_attribute_with_a_type_of_its_own_is_held_to_it() {
        let cases: [(&[&str], &[&str], &[&str]); 6] = [
            (
                &["source", "dataref"],
                &[
                    "/s",
                    "a",
                    "urn:x:1",
                    "https://a.example/b?c=d#e",
                    "../x",
                    "a/b:c",
                    "?q:1",
                    "#f",
                    "a%20b",
                    "//h:1/x",
                    "@x",
                    "/ümläut",
                    "a b",
                    "127.0.0.1:80",
                    "#",
                ],
                &["a%2", "%zz", "a#b#c"],
            ),
            (
                &["dataschema"],
                &["https://a.example/s#1", "urn:x", "a:"],
                &["", "/s", "s", "1:2", ":x", "https://a b"],
            ),
            (
                &["datacontenttype"],
                &["application/json", "TEXT/Plain; charset=utf-8", "a/b;c=\"d;e\"", "image/svg+xml", "a/b;"],
                &[
                    "",
                    "xyz",
                    "a/",
                    "/b",
                    "a/b/c",
                    "a b/c",
                    "a/b; c",
                    "a/b;=d",
                    "a/b;c=",
                    "a/b;c=\"d",
                    "a/b, c/d",
                    "ä/b",
                ],
            ),
            (
                &["time", "expirytime"],
                &["2026-12-01T00:00:00Z", "2026-12-01T00:00:00.5+01:00"],
                &["", "never", "2026-12-01", "1796048520"],
            ),
            (
                &["emttl"],
                &["0", "500", "18446744073709551615"],
                &["", "5s", "-1", "+1", "1.5", "18446744073709551616"],
            ),
            (&["subject", "partitionkey"], &["any text at all: ü"], &[]),
        ];
        for (names, good, bad) in cases {
            for name in names {
                for value in good {
                    assert_eq!(fault_of_value(name, value), None, "{name} {value:?}");
                }
                for value in bad {
                    assert!(fault_of_value(name, value).is_some(), "{name} {value:?}");
                }
            }
        }
    }

    #[test]
    fn only_lower_case_letters_and_digits_make_a_name() {
        // covers: U20
        for name in ["a", "0", "abcdefghijklmnopqrstuvwxyz", "e1"] {
            assert!(is_attribute_name(name), "{name}");
        }
        for name in ["", "my-ext", "MyExt", "my_ext", "dataContentType", "data", "data_base64", "ü"] {
            assert!(!is_attribute_name(name), "{name}");
        }
    }
}
