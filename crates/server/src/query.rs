//! The query of a request: decoded exactly once, each parameter given at most once.

use std::borrow::Cow;

use mesh_frame::NameError;
use percent_encoding::percent_decode_str;

use crate::ApiError;

/// A query that is searched, not copied. [`Query::only`] refuses parameters that a route does not know.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    /// A query as it came; `None` is an empty one.
    pub fn new(raw: Option<&'a str>) -> Self {
        Self(raw.unwrap_or_default())
    }

    /// The query of a target.
    pub fn of(uri: &'a http::Uri) -> Self {
        Self::new(uri.query())
    }

    /// The value of a parameter; empty, repeated and undecodable ones are refused.
    ///
    /// # Errors
    /// `invalid_argument`.
    pub fn get(self, name: &str) -> Result<Option<Cow<'a, str>>, ApiError> {
        let mut found = None;
        for pair in self.0.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if key != name && decoded(key).is_none_or(|key| key != name) {
                continue;
            }
            if found.is_some() {
                return Err(ApiError::invalid(format!("parameter `{name}` is given more than once")));
            }
            if value.is_empty() {
                return Err(ApiError::invalid(format!("parameter `{name}` is empty")));
            }
            let value = decoded(value).ok_or_else(|| {
                ApiError::invalid(format!("parameter `{name}` is not percent-encoded UTF-8"))
            })?;
            found = Some(value);
        }
        Ok(found)
    }

    /// As [`Query::get`], for what must be there.
    ///
    /// # Errors
    /// `missing_parameter` too.
    pub fn required(self, name: &str) -> Result<Cow<'a, str>, ApiError> {
        self.get(name)?.ok_or_else(|| ApiError::missing(name))
    }

    /// A name of some kind.
    ///
    /// # Errors
    /// Those of [`Query::get`], and what [`ApiError::of_name`] says of a text that is no such name.
    pub fn name<T>(
        self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, NameError>,
    ) -> Result<Option<T>, ApiError> {
        let text = self.get(name)?;
        text.map(|text| read(&text)).transpose().map_err(|error| ApiError::of_name(name, error))
    }

    /// As [`Query::name`], for what must be there.
    ///
    /// # Errors
    /// `missing_parameter` too.
    pub fn required_name<T>(
        self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, NameError>,
    ) -> Result<T, ApiError> {
        self.name(name, read)?.ok_or_else(|| ApiError::missing(name))
    }

    /// `true` or `false`, which is also meant when it is not given.
    ///
    /// # Errors
    /// `invalid_argument`.
    pub fn flag(self, name: &str) -> Result<bool, ApiError> {
        match self.get(name)?.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(ApiError::invalid(format!("parameter `{name}` must be true or false"))),
        }
    }

    /// Refuses parameters that are not among these: one that is misspelt must not do what it would do if it were
    /// not there.
    ///
    /// # Errors
    /// `invalid_argument`, which names the nearest that is known.
    pub fn only(self, known: &[&str]) -> Result<(), ApiError> {
        for pair in self.0.split('&').filter(|pair| !pair.is_empty()) {
            let name = pair.split_once('=').map_or(pair, |(name, _)| name);
            if known.contains(&name) {
                continue;
            }
            let decoded = decoded(name);
            if !decoded.as_deref().is_some_and(|name| known.contains(&name)) {
                let name = decoded.as_deref().unwrap_or(name);
                return Err(ApiError::unknown_name("this route", "parameter", name, known));
            }
        }
        Ok(())
    }

    /// A number: larger than `most` is taken as `most`, below `least` and what is no number is refused.
    ///
    /// # Errors
    /// `invalid_argument`.
    pub fn number(self, name: &str, least: u64, default: u64, most: u64) -> Result<u64, ApiError> {
        let Some(text) = self.get(name)? else { return Ok(default) };
        let bad = || ApiError::invalid(format!("parameter `{name}` must be a number from {least} to {most}"));
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad());
        }
        // All digits: what does not fit is only larger than the largest.
        let number = text.parse::<u64>().unwrap_or(u64::MAX);
        if number < least { Err(bad()) } else { Ok(number.min(most)) }
    }
}

/// Decodes once: `+` is a blank, `%` starts two hex digits.
fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Some(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let malformed =
        bytes.iter().enumerate().any(|(at, byte)| *byte == b'%' && !(is_hex(at + 1) && is_hex(at + 2)));
    if malformed {
        return None;
    }
    let with_blanks = text.replace('+', " ");
    percent_decode_str(&with_blanks).decode_utf8().ok().map(|text| Cow::Owned(text.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;

    #[test]
    fn a_parameter_is_decoded_once() {
        // covers: U29
        let cases = [
            ("topic=a%2Bb", "a+b"),
            ("topic=a%26b", "a&b"),
            ("topic=a%252Bb", "a%2Bb"),
            ("x=1&topic=a+b&y", "a b"),
            ("%74opic=a", "a"),
            ("topic=a=b", "a=b"),
            ("topic=%C3%BC", "ü"),
        ];
        for (query, expected) in cases {
            assert_eq!(Query(query).required("topic").expect("legal"), expected, "{query}");
        }
    }

    #[test]
    fn what_is_missing_empty_repeated_or_undecodable_has_its_code() {
        let cases = [
            ("", ErrorCode::MissingParameter),
            ("topi=a&topics=b", ErrorCode::MissingParameter),
            ("topic", ErrorCode::InvalidArgument),
            ("topic=", ErrorCode::InvalidArgument),
            ("topic=a&topic=b", ErrorCode::InvalidArgument),
            ("topic=a&%74opic=a", ErrorCode::InvalidArgument),
            ("topic=%", ErrorCode::InvalidArgument),
            ("topic=%2", ErrorCode::InvalidArgument),
            ("topic=%zz", ErrorCode::InvalidArgument),
            ("topic=%ff", ErrorCode::InvalidArgument),
        ];
        for (query, code) in cases {
            let error = Query(query).required("topic").expect_err("refused");
            assert!(error.code == code && error.message.contains("`topic`"), "{query}: {error:?}");
        }
    }

    #[test]
    fn numbers_over_their_range_are_clamped_and_others_are_refused() {
        // covers: U179
        let number = |query| Query(query).number("n", 1, 100, 1_000).map_err(|error| error.code);
        assert_eq!(number(""), Ok(100));
        assert_eq!(number("n=1"), Ok(1));
        assert_eq!(number("n=1001"), Ok(1_000));
        assert_eq!(number("n=9000000000000000000000000"), Ok(1_000));
        for query in ["n=0", "n=-1", "n=1.5", "n=abc", "n=%201", "n="] {
            assert_eq!(number(query), Err(ErrorCode::InvalidArgument), "{query}");
        }
    }

    #[test]
    fn only_what_is_known_is_let_through_and_flags_are_one_of_two_words() {
        let only = |query| Query(query).only(&["a", "b"]).map_err(|error| error.message);
        assert_eq!((only(""), only("a=1&&%62=2")), (Ok(()), Ok(())));
        for (query, told) in [
            ("a=1&c=2", "this route has no parameter `c`; it has `a`, `b`"),
            ("%63", "this route has no parameter `c`; it has `a`, `b`"),
            ("%zz=1", "this route has no parameter `%zz`; it has `a`, `b`"),
            ("A=1", "this route has no parameter `A`; did you mean `a`? It has `a`, `b`"),
        ] {
            assert_eq!(only(query), Err(told.to_owned()), "{query}");
        }
        let none = Query("a=1").only(&[]).map_err(|error| error.message);
        assert_eq!(none, Err("this route has no parameter `a`; it takes none".to_owned()));
        let flag = |query| Query(query).flag("f").map_err(|error| error.code);
        assert_eq!((flag(""), flag("f=false"), flag("f=true")), (Ok(false), Ok(false), Ok(true)));
        for query in ["f", "f=", "f=1", "f=TRUE", "f=true&f=true"] {
            assert_eq!(flag(query), Err(ErrorCode::InvalidArgument), "{query}");
        }
    }
}
