//! The rules of CloudEvents for names and values, and which names belong to the server.

use crate::timestamp::parse_timestamp;

/// Whether `name` can name an attribute: lower-case letters and digits, and not `data`.
pub(crate) fn is_attribute_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        && name != "data"
}

/// Who may set an attribute.
pub(super) enum Setter {
    /// The client, to what it likes.
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

/// What is wrong with the value of an attribute, if anything.
///
/// `source` may be any text, `dataschema` too: a `#` is a reference like others and is passed on.
pub(super) fn fault_of_value(name: &str, value: &str) -> Option<String> {
    if let Some(character) = forbidden_character(value) {
        return Some(format!("must not contain the character U+{:04X}", u32::from(character)));
    }
    match name {
        "id" | "source" | "type" | "datacontenttype" | "dataschema" | "subject" if value.is_empty() => {
            Some("must not be empty".to_owned())
        }
        "specversion" if value != "1.0" => Some("must be `1.0`, no other version is supported".to_owned()),
        "time" if parse_timestamp(value).is_none() => Some("must be an RFC 3339 timestamp".to_owned()),
        _ => None,
    }
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
