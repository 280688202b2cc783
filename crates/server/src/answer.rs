//! Answers that are written byte by byte: no value trees on the way of an event.

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};

/// A JSON answer.
pub(super) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response {
    with_body(status, Body::from(body.into()))
}

/// An answer whose body is JSON.
pub(super) fn with_body(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Appends a text as a JSON string.
pub(super) fn push_text(json: &mut Vec<u8>, text: &str) {
    if text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
        json.push(b'"');
        json.extend_from_slice(text.as_bytes());
        json.push(b'"');
    } else {
        serde_json::to_writer(json, text).expect("writing to memory does not fail");
    }
}

/// Appends a number.
pub(super) fn push_number(json: &mut Vec<u8>, number: u64) {
    json.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a number as a JSON string, for what may pass the integers of JavaScript.
pub(super) fn push_number_text(json: &mut Vec<u8>, number: u64) {
    json.push(b'"');
    push_number(json, number);
    json.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_only_where_they_must_be() {
        for text in ["", "plain", "ü", "a\"b\\c\u{1}\n", "\u{7f}"] {
            let mut json = Vec::new();
            push_text(&mut json, text);
            assert_eq!(serde_json::from_slice::<String>(&json).expect("a string"), text);
        }
        let mut json = Vec::new();
        push_number_text(&mut json, u64::MAX);
        assert_eq!(json, b"\"18446744073709551615\"");
    }
}
