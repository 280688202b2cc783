//! How large the head of a request may be, whatever it is spoken in.

use axum::extract::Request;
use http::{HeaderMap, HeaderName};

use crate::{ApiError, ErrorCode};

/// Fields of a head.
const FIELDS: usize = 128;
/// Bytes of a head: its target, and its names and values.
const BYTES: usize = 96 << 10;
/// What is read of a head at most. A larger one is refused by the parser, whose answer has no text.
pub(crate) const READ: usize = 128 << 10;
/// And so many fields. One more than may be answered with a text.
pub(crate) const READ_FIELDS: usize = 2 * FIELDS;

/// Why the head of a request is refused, if it is.
pub(crate) fn refusal(request: &Request) -> Option<ApiError> {
    let headers = request.headers();
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let is_small = headers.len() <= FIELDS && path.len() + query.len() + bytes_of(headers) <= BYTES;
    (!is_small).then(|| {
        let what = format!(
            "the head of a request has at most {FIELDS} fields and {BYTES} bytes: an event with more goes in structured mode \
             (Content-Type: application/cloudevents+json)"
        );
        ApiError { closes: true, ..ApiError::new(ErrorCode::HeadTooLarge, what) }
    })
}

fn bytes_of(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| HeaderName::as_str(name).len() + value.len()).sum()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn refused(fields: usize, bytes: usize, query: usize) -> bool {
        let mut request = http::Request::builder().uri(format!("/x?{}", "q".repeat(query)));
        for number in 0..fields {
            request = request.header(format!("x-{number:05}"), "v".repeat(bytes));
        }
        let refused = refusal(&request.body(Body::empty()).expect("a request"));
        assert!(refused.iter().all(|error| error.code == ErrorCode::HeadTooLarge && error.closes));
        refused.is_some()
    }

    #[test]
    fn fields_and_bytes_are_counted() {
        assert!(!refused(0, 0, 0) && !refused(128, 10, 10));
        assert!(refused(129, 0, 0), "too many fields");
        assert!(!refused(1, (96 << 10) - 10, 0) && refused(1, 96 << 10, 0), "too large a value");
        assert!(refused(100, 1_000, 0) && refused(0, 0, 63 << 10) == (63 << 10 > BYTES), "all together");
    }
}
