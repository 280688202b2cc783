//! Values without the secrets that can stand in them.

use std::borrow::Cow;

/// What stands where a secret would.
pub const MASK: &str = "********";

/// A text without the secrets of the URLs in it: what stands before an `@`, and the query. It masks too much rather than too
/// little: an `@` in a path hides the host as well.
pub fn without_url_secrets(text: &str) -> Cow<'_, str> {
    if !text.contains("://") {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("://") {
        let (scheme, tail) = rest.split_at(at + "://".len());
        shown.push_str(scheme);
        let end = tail.find(char::is_whitespace).unwrap_or(tail.len());
        let url = &tail[..end];
        let host = url.rfind('@').map_or(0, |at| {
            shown.push_str(MASK);
            at
        });
        match url[host..].find('?') {
            None => rest = &tail[host..],
            Some(query) => {
                shown.push_str(&url[host..=host + query]);
                shown.push_str(MASK);
                rest = &tail[end..];
            }
        }
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_parts_and_queries_of_urls_are_masked_and_nothing_else() {
        for (text, expected) in [
            ("10105", "10105"),
            ("a@b?c=d", "a@b?c=d"),
            ("https://host:1/path#part", "https://host:1/path#part"),
            ("https://user:PASS@host/x?apikey=KEY", "https://********@host/x?********"),
            ("https://user:PA/SS@host/x", "https://********@host/x"),
            ("https://user:P@SS@host", "https://********@host"),
            ("https://host?KEY#part", "https://host?********"),
            ("http://a:S1@b,http://c:S2@d", "http://********@d"),
            ("http://a/x?S1 and http://b:S2@c", "http://a/x?******** and http://********@c"),
            ("://?", "://?********"),
        ] {
            assert_eq!(without_url_secrets(text), expected, "{text}");
        }
    }
}
