//! Binary mode: attributes in `ce-` headers, `datacontenttype` in `Content-Type`, data in the body.

use bytes::Bytes;

use super::{
    draft::Draft,
    error::{EventError, EventErrorKind},
    header_value::decode_header_value,
    rules::{Setter, setter_of},
};
use crate::{
    data_form::DataForm,
    event::Event,
    frame::{ATTRIBUTE_HEADER, HEADER, first_duplicate},
    limits::Limits,
    media_type::{DEEPEST_JSON, form_of_bytes, is_too_deep},
};

/// Reads an event in binary mode.
///
/// `headers` are the request's, names in lower case; those that do not start with `ce-` are passed over. An
/// empty body is no data. Every attribute is text.
///
/// # Errors
///
/// [`EventError`] names the attribute. `ce-datacontenttype` is refused, since `Content-Type` says it.
pub fn parse_binary<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    content_type: Option<&str>,
    body: Bytes,
    limits: &Limits,
) -> Result<Event, EventError> {
    let headers = headers.into_iter().filter_map(|(name, value)| Some((name.strip_prefix("ce-")?, value)));
    let headers: Vec<(&str, &[u8])> = headers.collect();
    if let Some(name) = first_duplicate(headers.iter().map(|(name, _)| *name)) {
        return Err(EventError::of_attribute(name, "is given twice"));
    }
    let content_type = content_type.map(str::trim).filter(|media_type| !media_type.is_empty());
    let attributes_size: usize =
        headers.iter().map(|(name, value)| name.len() + value.len() + ATTRIBUTE_HEADER).sum();
    let content_type_size =
        content_type.map_or(0, |media_type| media_type.len() + "datacontenttype".len() + ATTRIBUTE_HEADER);
    let mut draft = Draft::new(limits, HEADER + attributes_size + content_type_size + body.len());
    for (name, value) in headers {
        if name == "datacontenttype" {
            return Err(EventError::of_attribute(name, "is the header Content-Type in binary mode"));
        }
        match setter_of(name) {
            Setter::Client => {}
            Setter::ServerSilently => continue,
            Setter::Server => return Err(reserved(name)),
        }
        let text = decode_header_value(value).map_err(|error| EventError::of_attribute(name, error))?;
        draft.attribute(name, &text, None)?;
    }
    if let Some(media_type) = content_type {
        draft.attribute("datacontenttype", media_type, None)?;
    }
    if body.len() > limits.data_bytes {
        return draft.finish(DataForm::Binary, body.len(), |_| Ok(()));
    }
    let form = form_of_bytes(content_type, &body);
    if form == DataForm::Json && is_too_deep(&body) {
        return Err(EventError::invalid(format!("the data is nested deeper than {DEEPEST_JSON}")));
    }
    draft.finish(form, body.len(), |buffer| {
        buffer.extend_from_slice(&body);
        Ok(())
    })
}

/// A client set an attribute of the server's.
pub(super) fn reserved(name: &str) -> EventError {
    EventError {
        kind: EventErrorKind::ReservedAttribute,
        ..EventError::of_attribute(name, "is reserved: only the server sets it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Header = (&'static str, &'static [u8]);
    const REQUIRED: [Header; 4] =
        [("ce-specversion", b"1.0"), ("ce-id", b"e1"), ("ce-source", b"/s"), ("ce-type", b"t")];

    fn parse(more: &[Header], content_type: Option<&str>, body: &'static [u8]) -> Result<Event, EventError> {
        let headers = REQUIRED.into_iter().chain(more.iter().copied());
        parse_binary(headers, content_type, Bytes::from_static(body), &Limits::DEFAULT)
    }

    fn json_of(event: Result<Event, EventError>) -> String {
        String::from_utf8(event.expect("legal").json().to_vec()).expect("JSON is UTF-8")
    }

    #[test]
    fn headers_become_attributes_and_the_content_type_stays_as_it_is() {
        // covers: U25, U31
        let more: [Header; 3] = [("ce-subject", b"a%20b"), ("x-other", b"x"), ("ce-n", b"5")];
        let head = r#"{"specversion":"1.0","id":"e1","source":"/s","type":"t","subject":"a b","n":"5""#;
        let cases: [(Option<&str>, &'static [u8], &str); 6] = [
            (None, b"", ""),
            (None, b"{}", r#","data_base64":"e30=""#),
            (
                Some("application/json"),
                b"{\"a\": 1.0}",
                r#","datacontenttype":"application/json","data":{"a": 1.0}"#,
            ),
            (
                Some("application/xml"),
                b"<a/>",
                r#","datacontenttype":"application/xml","data_base64":"PGEvPg==""#,
            ),
            (
                Some("text/plain;charset=utf-8"),
                b"x",
                r#","datacontenttype":"text/plain;charset=utf-8","data":"x""#,
            ),
            (Some("application/json"), b"", r#","datacontenttype":"application/json""#),
        ];
        for (content_type, body, tail) in cases {
            assert_eq!(json_of(parse(&more, content_type, body)), format!("{head}{tail}}}"));
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_the_attribute() {
        let cases: [(Header, &str); 8] = [
            (("ce-subject", b"%ff"), "subject"),
            (("ce-subject", b"100%"), "subject"),
            (("ce-subject", b""), "subject"),
            (("ce-id", b"e2"), "id"),
            (("ce-datacontenttype", b"text/plain"), "datacontenttype"),
            (("ce-my-ext", b"x"), "my-ext"),
            (("ce-data", b"x"), "data"),
            (("ce-e1", b"a%00"), "e1"),
        ];
        for (header, attribute) in cases {
            let error = parse(&[header], None, b"").expect_err("a rule is broken");
            assert_eq!(
                (error.kind, error.attribute.as_deref()),
                (EventErrorKind::Invalid, Some(attribute)),
                "{error}"
            );
            assert!(error.message.contains(attribute), "{error}");
        }
        for missing in REQUIRED {
            let headers = REQUIRED.into_iter().filter(|header| *header != missing);
            let error = parse_binary(headers, None, Bytes::new(), &Limits::DEFAULT).expect_err("incomplete");
            assert_eq!(error.attribute.as_deref(), missing.0.strip_prefix("ce-"));
        }
    }

    #[test]
    fn server_attributes_are_refused_or_dropped() {
        let error = parse(&[("ce-emdlreason", b"x")], None, b"").expect_err("reserved");
        assert_eq!(error.kind, EventErrorKind::ReservedAttribute);
        let more: [Header; 3] = [("ce-emtenantid", b"x"), ("ce-emmqoffset", b"1"), ("ce-empopck", b"%zz")];
        assert_eq!(json_of(parse(&more, None, b"")), json_of(parse(&[], None, b"")));
    }

    #[test]
    fn data_over_its_limit_is_too_large_and_deep_json_is_invalid() {
        let limits = Limits { data_bytes: 3, ..Limits::DEFAULT };
        let error = parse_binary(REQUIRED, Some("application/json"), Bytes::from_static(b"[[]]"), &limits);
        assert_eq!(error.map_err(|error| error.kind), Err(EventErrorKind::TooLarge));
        let deep = Bytes::from("[".repeat(129) + &"]".repeat(129));
        let parsed = |media_type| parse_binary(REQUIRED, Some(media_type), deep.clone(), &Limits::DEFAULT);
        assert_eq!(parsed("application/json").map_err(|error| error.kind), Err(EventErrorKind::Invalid));
        assert_eq!(parsed("text/plain").expect("not JSON").form(), DataForm::Text);
    }
}
