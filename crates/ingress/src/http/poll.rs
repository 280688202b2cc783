//! `GET /events/poll`: waits for deliveries and writes them; `[]` when there are none, at once when the server stops.

use std::time::Duration;

use axum::{body::Body, response::Response};
use http::{StatusCode, request::Parts};
use mesh_delivery::Answer;
use mesh_frame::{ClientId, Epoch};
use mesh_gate::{Action, Caller, Resource};

use super::{
    answer::{json, with_body},
    delivery_json::{self, DeliveryWriter},
    edge::HttpEdge,
    errors::ApiError,
    poll_body::PollBody,
    query::Query,
};
use crate::intake::Poll;

pub(super) async fn poll(edge: &HttpEdge, caller: &Caller, parts: &Parts) -> Result<Response, ApiError> {
    let query = Query::of(&parts.uri);
    let client =
        ClientId::new(&query.required("clientId")?).map_err(|error| ApiError::of_name("clientId", error))?;
    let most = query.number("max", 1, 100, 1_000)?;
    let timeout = query.number("timeoutMs", 0, 1_000, 60_000)?;
    let client = edge.intake().client(caller, client, Action::Subscribe)?;
    let (id, topics) = (client.id().clone(), client.topics().to_vec());
    let poll = Poll {
        client,
        most: usize::try_from(most).expect("a thousand at most"),
        timeout: Duration::from_millis(timeout),
    };
    let admitted = edge.admit(caller, Action::Subscribe, Resource::Client(&id, &topics), poll)?;
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
    2 + answer.deliveries().iter().map(delivery_json::size_of).sum::<usize>()
}

fn written(answer: &Answer, epoch: Epoch, bytes: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes);
    let mut writer = DeliveryWriter::new(epoch);
    for delivery in answer.deliveries() {
        text.push(if text.is_empty() { b'[' } else { b',' });
        writer.push(&mut text, delivery, delivery.record.json());
    }
    text.push(b']');
    text
}
