//! `GET /events/poll`: waits for deliveries and writes them; `[]` when there are none, at once when the server stops.

use std::time::Duration;

use axum::{body::Body, response::Response};
use http::{StatusCode, request::Parts};
use mesh_delivery::Answer;
use mesh_frame::{ClientId, Epoch, format_timestamp};
use mesh_gate::{Action, Caller, Resource};

use super::{
    answer::{json, push_number, push_number_text, push_text, with_body},
    edge::HttpEdge,
    errors::ApiError,
    poll_body::PollBody,
    query::Query,
};
use crate::intake::Poll;

/// What a delivery takes besides the event, the names of topic and group and its id.
const ENVELOPE: usize = 256;

pub(super) async fn poll(edge: &HttpEdge, caller: &Caller, parts: &Parts) -> Result<Response, ApiError> {
    let query = Query::of(&parts.uri);
    let client =
        ClientId::new(&query.required("clientId")?).map_err(|error| ApiError::of_name("clientId", error))?;
    let most = query.number("max", 1, 100, 1_000)?;
    let timeout = query.number("timeoutMs", 0, 1_000, 60_000)?;
    let poll = Poll {
        client: client.clone(),
        most: usize::try_from(most).expect("a thousand at most"),
        timeout: Duration::from_millis(timeout),
    };
    let admitted = edge.admit(caller, Action::Subscribe, Resource::Client(&client), poll)?;
    let answer = tokio::select! {
        biased;
        answer = edge.intake().poll(admitted) => answer?,
        () = edge.stop().wait() => return Ok(json(StatusCode::OK, &b"[]"[..])),
    };
    if answer.deliveries().is_empty() {
        return Ok(json(StatusCode::OK, &b"[]"[..]));
    }
    let bytes = size_of(&answer);
    let lease = edge.lease_answer(bytes)?;
    let text = written(&answer, edge.intake().epoch(), bytes);
    Ok(with_body(StatusCode::OK, Body::new(PollBody::new(answer, text, lease))))
}

/// About how many bytes the answer takes, and hardly ever fewer.
fn size_of(answer: &Answer) -> usize {
    let size = |delivery: &mesh_delivery::Delivery| {
        let id = delivery.group.id();
        let names = delivery.id.len() + id.topic.as_str().len() + id.name.as_str().len();
        delivery.record.json().len() + names + ENVELOPE
    };
    2 + answer.deliveries().iter().map(size).sum::<usize>()
}

fn written(answer: &Answer, epoch: Epoch, bytes: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes);
    // Deliveries of one answer are mostly locked until the same time.
    let (mut locked_until, mut locked_until_text) = (None, String::new());
    for delivery in answer.deliveries() {
        if locked_until != Some(delivery.locked_until) {
            locked_until = Some(delivery.locked_until);
            locked_until_text = format_timestamp(delivery.locked_until.0);
        }
        let group = delivery.group.id();
        text.extend_from_slice(if text.is_empty() { b"[{\"deliveryId\":\"" } else { b",{\"deliveryId\":\"" });
        text.extend_from_slice(delivery.id.as_bytes());
        text.extend_from_slice(b"\",\"event\":");
        text.extend_from_slice(delivery.record.json());
        text.extend_from_slice(b",\"attempt\":");
        push_number(&mut text, u64::from(delivery.attempt));
        text.extend_from_slice(b",\"topic\":\"");
        text.extend_from_slice(group.topic.as_str().as_bytes());
        text.extend_from_slice(b"\",\"group\":");
        push_text(&mut text, group.name.as_str());
        text.extend_from_slice(b",\"partition\":");
        push_number(&mut text, u64::from(delivery.partition.0));
        text.extend_from_slice(b",\"offset\":");
        push_number_text(&mut text, delivery.offset.0);
        text.extend_from_slice(b",\"epoch\":");
        push_number_text(&mut text, epoch.0);
        text.extend_from_slice(b",\"lockedUntil\":\"");
        text.extend_from_slice(locked_until_text.as_bytes());
        text.extend_from_slice(b"\"}");
    }
    text.push(b']');
    text
}
