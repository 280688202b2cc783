//! The encoding of attribute values in `ce-` headers, both ways, in this one place.
//!
//! A value may hold quoted strings, whose quotes and backslashes go first; then `%XY` is decoded exactly once.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use thiserror::Error;

/// What is encoded: blank, quote, percent, and everything outside printable ASCII.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// Why a header value is not the text of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeaderValueError {
    /// A quote that opens and does not close.
    #[error("has a quoted string that does not end")]
    OpenQuote,
    /// A `%` that two hexadecimal digits do not follow.
    #[error("has a `%` that is not followed by two hexadecimal digits")]
    BadPercent,
    /// What comes out is not UTF-8.
    #[error("is not UTF-8 after percent-decoding")]
    NotText,
}

/// The text that a header value encodes.
///
/// Needless encoding and lower-case digits are accepted, and so is UTF-8 that was not encoded.
///
/// # Errors
///
/// [`HeaderValueError`] says what is wrong with the encoding.
pub fn decode_header_value(value: &[u8]) -> Result<Cow<'_, str>, HeaderValueError> {
    let bytes = without_percents(without_quotes(value)?)?;
    match bytes {
        Cow::Borrowed(bytes) => {
            str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| HeaderValueError::NotText)
        }
        Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(|_| HeaderValueError::NotText),
    }
}

/// The header value that encodes `text`.
pub fn encode_header_value(text: &str) -> Cow<'_, str> {
    percent_encode(text.as_bytes(), ENCODED).into()
}

fn without_quotes(value: &[u8]) -> Result<Cow<'_, [u8]>, HeaderValueError> {
    if memchr::memchr(b'"', value).is_none() {
        return Ok(Cow::Borrowed(value));
    }
    let mut text = Vec::with_capacity(value.len());
    let mut is_quoted = false;
    let mut bytes = value.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\\' if is_quoted => text.push(*bytes.next().ok_or(HeaderValueError::OpenQuote)?),
            other => text.push(*other),
        }
    }
    if is_quoted { Err(HeaderValueError::OpenQuote) } else { Ok(Cow::Owned(text)) }
}

fn without_percents(value: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>, HeaderValueError> {
    if memchr::memchr(b'%', &value).is_none() {
        return Ok(value);
    }
    let mut text = Vec::with_capacity(value.len());
    let mut rest = value.as_ref();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            text.push(*byte);
            continue;
        }
        let ([high, low], after) = rest.split_first_chunk::<2>().ok_or(HeaderValueError::BadPercent)?;
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(HeaderValueError::BadPercent);
        let decoded = digit(*high)? * 16 + digit(*low)?;
        text.push(u8::try_from(decoded).expect("two hexadecimal digits are one byte"));
        rest = after;
    }
    Ok(Cow::Owned(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_decoded_exactly_once() {
        // covers: U25
        use HeaderValueError::{BadPercent, NotText, OpenQuote};
        let cases: [(&[u8], Result<&str, HeaderValueError>); 20] = [
            (b"plain", Ok("plain")),
            (b"", Ok("")),
            (b"a%20b", Ok("a b")),
            (b"%E2%82%AC", Ok("€")),
            (b"%e2%82%ac", Ok("€")),
            (b"%41", Ok("A")),
            (b"%2541", Ok("%41")),
            (b"\"a b\"", Ok("a b")),
            (b"\"a\\\"%20\\b\"c", Ok("a\" bc")),
            (b"a%22b", Ok("a\"b")),
            (b"%F0%9F%98%80", Ok("😀")),
            ("ü".as_bytes(), Ok("ü")),
            (b"%ff", Err(NotText)),
            (b"\xff", Err(NotText)),
            (b"%C0%A0", Err(NotText)),
            (b"%ED%A0%80", Err(NotText)),
            (b"100%", Err(BadPercent)),
            (b"%4", Err(BadPercent)),
            (b"%+1", Err(BadPercent)),
            (b"\"open", Err(OpenQuote)),
        ];
        for (value, expected) in cases {
            let decoded = decode_header_value(value);
            assert_eq!(decoded.as_deref().map_err(|error| *error), expected, "{value:?}");
        }
        assert_eq!(decode_header_value(b"\"open\\"), Err(OpenQuote));
    }

    #[test]
    fn only_what_must_be_encoded_is() {
        assert_eq!(encode_header_value("Zürich 100%"), "Z%C3%BCrich%20100%25");
        assert_eq!(encode_header_value("a\"b"), "a%22b");
        assert_eq!(encode_header_value("50€"), "50%E2%82%AC");
        assert_eq!(encode_header_value("😀"), "%F0%9F%98%80");
        assert_eq!(encode_header_value("a\u{7f}"), "a%7F");
        assert_eq!(encode_header_value("!#$&'()*+,-./:;<=>?@[\\]^_`{|}~"), "!#$&'()*+,-./:;<=>?@[\\]^_`{|}~");
    }
}
