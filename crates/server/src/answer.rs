//! Answers of HTTP: JSON with a status, an error with what comes with its code, and how to answer a request whose
//! body was not read.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use http::{
    HeaderValue, StatusCode, Version,
    header::{CONNECTION, CONTENT_TYPE, EXPECT, RETRY_AFTER, WWW_AUTHENTICATE},
    request::Parts,
};

use crate::{ApiError, ErrorCode, discard, status};

/// A JSON answer. It ends with a line break, so that a prompt does not follow on the same line.
pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Response {
    let mut body = BytesMut::from(body.into());
    body.extend_from_slice(b"\n");
    json_body(status, Body::from(body.freeze()))
}

/// An answer whose body is JSON.
pub fn json_body(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(status(self.code)).expect("the list has legal statuses");
        let mut response = json(status, self.json());
        if self.code == ErrorCode::Unauthenticated {
            // RFC 9110, 15.5.2: such an answer says which credential would do.
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_millis().div_ceil(1_000).clamp(1, 86_400);
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(u64::try_from(seconds).unwrap_or(1)));
        }
        response
    }
}

/// Answers with an error. What is left of the body is read for a moment first: a connection that is closed
/// with unread input is reset, and the client would lose the answer.
pub async fn refuse(error: ApiError, parts: &Parts, mut body: Body, body_asked_for: bool) -> Response {
    // A client that waits to be asked for the body has sent nothing, and need not.
    let waits_to_be_asked = !body_asked_for && parts.headers.contains_key(EXPECT);
    let too_slow = error.code == ErrorCode::Timeout;
    let closes = error.closes;
    let is_read = !waits_to_be_asked && !too_slow && discard(&mut body).await;
    let mut response = error.into_response();
    if (!is_read || closes) && parts.version < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_waiting_helps_says_when_to_try_again() {
        for code in ErrorCode::ALL {
            let response = ApiError::new(*code, "m").into_response();
            assert_eq!(response.status().as_u16(), status(*code));
            let helps = status(*code) == 429 || (status(*code) == 503 && *code != ErrorCode::AdminLocked);
            assert_eq!(response.headers().contains_key(RETRY_AFTER), helps, "{}", code.as_str());
        }
    }
}
