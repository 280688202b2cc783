//! What a `datacontenttype` says about the data.

use std::str;

use serde::de::IgnoredAny;

use crate::data_form::DataForm;

/// How deep JSON data may be nested.
pub(crate) const DEEPEST_JSON: usize = 128;

/// Whether the type is JSON: subtype `json` or ending in `+json`, parameters aside, in any case.
pub(crate) fn is_json(media_type: &str) -> bool {
    // As nearly everybody spells it.
    if media_type == "application/json" {
        return true;
    }
    let essence = essence(media_type);
    let Some((_, subtype)) = essence.split_once('/') else { return false };
    let suffix = subtype.len().checked_sub("+json".len()).and_then(|at| subtype.get(at..));
    subtype.eq_ignore_ascii_case("json") || suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case("+json"))
}

/// The type without its parameters.
pub(crate) fn essence(media_type: &str) -> &str {
    memchr::memchr(b';', media_type.as_bytes()).map_or(media_type, |end| &media_type[..end]).trim()
}

/// Whether a text is a media type by RFC 2046: type and subtype, and parameters with a token or a quoted string each.
pub(crate) fn is_media_type(text: &str) -> bool {
    // As nearly everybody spells it.
    if text == "application/json" {
        return true;
    }
    let (essence, mut rest) = text.split_once(';').unwrap_or((text, ""));
    let is_type =
        essence.trim().split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
    if !is_type {
        return false;
    }
    loop {
        rest = rest.trim_start_matches([' ', '\t', ';']);
        if rest.is_empty() {
            return true;
        }
        let Some((_, value)) = rest.split_once('=').filter(|(name, _)| is_token(name)) else { return false };
        let end = match value.strip_prefix('"') {
            Some(quoted) => match end_of_quoted(quoted) {
                Some(end) => end + 1,
                None => return false,
            },
            None => match value.find([';', ' ', '\t']).unwrap_or(value.len()) {
                end if is_token(&value[..end]) => end,
                _ => return false,
            },
        };
        rest = value[end..].trim_start_matches([' ', '\t']);
        if !rest.is_empty() && !rest.starts_with(';') {
            return false;
        }
    }
}

/// Where a quoted string ends, behind its second quote; `None`: it does not end.
fn end_of_quoted(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&byte))
}

/// Whether the type is text in UTF-8: `text/…` with no charset or one that UTF-8 includes.
fn is_utf8_text(media_type: &str) -> bool {
    let mut parts = media_type.split(';');
    let text =
        parts.next().unwrap_or_default().trim().get(..5).is_some_and(|top| top.eq_ignore_ascii_case("text/"));
    text && parts.all(|parameter| match parameter.split_once('=') {
        Some((name, charset)) if name.trim().eq_ignore_ascii_case("charset") => {
            let charset = charset.trim().trim_matches('"');
            charset.eq_ignore_ascii_case("utf-8") || charset.eq_ignore_ascii_case("us-ascii")
        }
        _ => true,
    })
}

/// The form of data that came as bytes: JSON of a JSON type that parses is JSON, `text/*` that is UTF-8 is
/// text, everything else is binary. The depth of the JSON is not looked at.
pub(crate) fn form_of_bytes(media_type: Option<&str>, data: &[u8]) -> DataForm {
    let Some(media_type) = media_type else { return bytes_or_none(data) };
    if data.is_empty() {
        return DataForm::None;
    }
    let json = is_json(media_type);
    if !json && !is_utf8_text(media_type) {
        return DataForm::Binary;
    }
    match str::from_utf8(data) {
        Ok(text) if json && serde_json::from_str::<IgnoredAny>(text).is_ok() => DataForm::Json,
        Ok(_) if !json => DataForm::Text,
        _ => DataForm::Binary,
    }
}

fn bytes_or_none(data: &[u8]) -> DataForm {
    if data.is_empty() { DataForm::None } else { DataForm::Binary }
}

/// Whether JSON is nested deeper than [`DEEPEST_JSON`].
pub(crate) fn is_too_deep(json: &[u8]) -> bool {
    // That many brackets have to be closed again.
    if json.len() <= 2 * DEEPEST_JSON {
        return false;
    }
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'"' => at = end_of_string(json, at),
            b'[' | b'{' if depth == DEEPEST_JSON => return true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// The position after the quote that closes the string whose text starts at `at`.
fn end_of_string(json: &[u8], mut at: usize) -> usize {
    while let Some(found) = json.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if json[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_types_are_known_by_their_subtype() {
        for json in ["application/json", "TEXT/JSON; charset=utf-8", "application/vnd.x+JSON", "a/json;q=1"] {
            assert!(is_json(json), "{json}");
        }
        for other in ["application/jsonx", "json", "text/plain;x=/json", "application/xml", "", "a/é+jso"] {
            assert!(!is_json(other), "{other}");
        }
    }

    #[test]
    fn bytes_get_the_form_that_gives_them_back_unchanged() {
        let cases: [(Option<&str>, &[u8], DataForm); 11] = [
            (None, b"", DataForm::None),
            (Some("application/json"), b"", DataForm::None),
            (None, b"{}", DataForm::Binary),
            (Some("application/json"), b" {\"a\":1e400}\n", DataForm::Json),
            (Some("application/json"), b"{", DataForm::Binary),
            (Some("application/json"), b"\"\xff\"", DataForm::Binary),
            (Some("text/plain"), "grün".as_bytes(), DataForm::Text),
            (Some("text/plain; charset=\"UTF-8\""), b"x", DataForm::Text),
            (Some("text/plain; charset=utf-16"), b"x\0", DataForm::Binary),
            (Some("text/plain"), b"\xff", DataForm::Binary),
            (Some("application/xml"), b"<a/>", DataForm::Binary),
        ];
        for (media_type, data, expected) in cases {
            assert_eq!(form_of_bytes(media_type, data), expected, "{media_type:?} {data:?}");
        }
    }

    #[test]
    fn brackets_in_strings_are_no_depth() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(!is_too_deep(nested(128).as_bytes()));
        assert!(is_too_deep(nested(129).as_bytes()));
        assert!(!is_too_deep(format!(r#"["\\\"{}"]"#, "[".repeat(400)).as_bytes()));
        assert!(!is_too_deep("[],".repeat(400).as_bytes()));
    }
}
