//! `GET /events/poll`: waits for deliveries and writes them; `[]` when there are none, at once when the server stops.
//! While the client has a stream open the answer says so in a header: a poll beside a stream finds nothing.

use std::time::Duration;

use axum::{body::Body, response::Response};
use http::{HeaderName, HeaderValue, StatusCode, request::Parts};
use mesh_delivery::Answer;
use mesh_frame::{ClientId, Epoch};
use mesh_gate::Verified;
use mesh_server::{ApiError, ErrorCode, Query, json, json_body};

use super::{
    delivery_json::{self, DeliveryWriter},
    edge::HttpEdge,
    errors::of_denied,
    poll_body::PollBody,
};
use crate::intake::Poll;

/// Says that the client has a stream open, which is where its deliveries go.
pub(super) const STREAM_OPEN: HeaderName = HeaderName::from_static("em-stream-open");

pub(super) async fn poll(edge: &HttpEdge, verified: &Verified, parts: &Parts) -> Result<Response, ApiError> {
    let query = Query::of(&parts.uri);
    let client = query.required_name("clientId", ClientId::new)?;
    let most = query.number("max", 1, 100, 1_000)?;
    let timeout = query.number("timeoutMs", 0, 1_000, 60_000)?;
    let poll = Poll {
        client: edge.intake().client(verified.caller(), client.clone())?,
        most: usize::try_from(most).expect("a thousand at most"),
        timeout: Duration::from_millis(timeout),
    };
    let admitted = edge.intake().admit(verified, poll).map_err(of_denied)?;
    let answer = tokio::select! {
        biased;
        answer = edge.intake().poll(admitted) => answer?,
        () = edge.stop().wait() => return Ok(json(StatusCode::OK, &b"[]"[..])),
    };
    let mut response = if answer.deliveries().is_empty() {
        json(StatusCode::OK, &b"[]"[..])
    } else {
        let bytes = size_of(&answer);
        let lease = edge.answers_of(verified.caller().tenant()).take(bytes);
        let lease = lease.ok_or_else(|| {
            ApiError::new(ErrorCode::Overloaded, "too many answers to your tenant are being sent; try again")
        })?;
        let text = written(&answer, edge.intake().epoch(), bytes);
        json_body(StatusCode::OK, Body::new(PollBody::new(answer, text, lease)))
    };
    if edge.intake().has_stream(verified.caller(), &client) {
        response.headers_mut().insert(STREAM_OPEN, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// About how many bytes the answer takes, and hardly ever fewer.
fn size_of(answer: &Answer) -> usize {
    3 + answer.deliveries().iter().map(delivery_json::size_of).sum::<usize>()
}

fn written(answer: &Answer, epoch: Epoch, bytes: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes);
    let mut writer = DeliveryWriter::new(epoch);
    for delivery in answer.deliveries() {
        text.push(if text.is_empty() { b'[' } else { b',' });
        writer.push(&mut text, delivery, delivery.record.json());
    }
    text.extend_from_slice(b"]\n");
    text
}
