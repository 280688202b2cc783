//! `GET /events/stream`: deliveries as server-sent events, for as long as the client is connected.
//!
//! An unknown client is answered with its error before any header of the stream. `Last-Event-ID` is not looked
//! at: what a client has not settled comes again, whatever it saw last.

use axum::{body::Body, response::Response};
use http::{
    HeaderName, HeaderValue,
    header::{CACHE_CONTROL, CONTENT_TYPE},
    request::Parts,
};
use mesh_frame::ClientId;
use mesh_gate::Verified;
use mesh_server::{ApiError, Query};

use super::{edge::HttpEdge, errors::of_denied, stream_body::StreamBody};
use crate::intake::OpenStream;

/// Tells proxies of a common kind not to hold events back.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

pub(super) async fn stream(
    edge: &HttpEdge,
    verified: &Verified,
    parts: &Parts,
) -> Result<Response, ApiError> {
    let client = Query::of(&parts.uri).required_name("clientId", ClientId::new)?;
    let open = OpenStream { client: edge.intake().client(verified.caller(), client)? };
    let admitted = edge.intake().admit(verified, open).map_err(of_denied)?;
    let stream = edge.intake().stream(admitted).await?;
    let answers = edge.answers_of(verified.caller().tenant());
    let mut response = Response::new(Body::new(StreamBody::new(edge.clone(), answers, stream)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}
