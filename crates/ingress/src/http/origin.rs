//! Requests that a page of another site makes a browser send.
//!
//! CORS keeps the page from reading the answer, not the request from being carried out: what needs no header of its
//! own is sent without asking. Browsers say where a request comes from in `Sec-Fetch-Site`, which no page can set.

use http::{HeaderMap, header::ORIGIN};

/// Whether a browser says that a page of another site sends this, and it is of none of the origins that may.
pub(super) fn is_foreign(headers: &HeaderMap, may_call: &[String]) -> bool {
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    if !matches!(site, Some(b"cross-site" | b"same-site")) {
        return false;
    }
    let origin = headers.get(ORIGIN).map(|origin| origin.as_bytes());
    !may_call.iter().any(|allowed| allowed == "*" || origin == Some(allowed.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_of_another_site_and_of_no_origin_that_may_call_is_foreign() {
        let foreign = |site: Option<&str>, origin: Option<&str>, may_call: &[&str]| {
            let mut headers = HeaderMap::new();
            for (name, value) in [("sec-fetch-site", site), ("origin", origin)] {
                headers.extend(value.map(|value| {
                    (name.parse::<http::HeaderName>().expect("legal"), value.parse().expect("legal"))
                }));
            }
            let may_call: Vec<String> = may_call.iter().map(|origin| (*origin).to_owned()).collect();
            is_foreign(&headers, &may_call)
        };
        let (page, other) = ("https://app.example", "https://evil.example");
        for (site, origin, may_call, expected) in [
            (None, None, &[][..], false),
            (None, Some(other), &[], false),
            (Some("none"), None, &[], false),
            (Some("same-origin"), Some(page), &[], false),
            (Some("same-site"), Some(page), &[], true),
            (Some("cross-site"), Some(other), &[], true),
            (Some("cross-site"), None, &[page], true),
            (Some("cross-site"), Some(other), &[page], true),
            (Some("cross-site"), Some(page), &[page], false),
            (Some("cross-site"), Some(other), &["*"], false),
        ] {
            assert_eq!(foreign(site, origin, may_call), expected, "{site:?} {origin:?} {may_call:?}");
        }
    }
}
