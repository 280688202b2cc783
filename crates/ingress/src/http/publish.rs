//! `POST /events/publish` and `/events/publish-batch`.

use std::str;

use axum::response::Response;
use http::{
    StatusCode,
    header::{CONTENT_TYPE, HeaderMap},
    request::Parts,
};
use mesh_frame::{ContentMode, Event, Limits, TopicName, parse_batch, parse_binary, parse_structured};
use mesh_gate::Verified;
use mesh_server::{ApiError, ErrorCode, Query, ReadBody, json, push_number, push_number_text};

use super::{edge::HttpEdge, errors::of_denied};
use crate::intake::{PublishBatch, PublishEvent};

pub(super) async fn publish(
    edge: &HttpEdge,
    verified: &Verified,
    parts: &Parts,
    body: ReadBody,
) -> Result<Response, ApiError> {
    let topic = topic_of(parts)?;
    let event = event_of(&parts.headers, &body, edge.intake().limits())?;
    let request = PublishEvent { topic, event };
    drop(body);
    let admitted = edge.intake().admit(verified, request).map_err(of_denied)?;
    let stored = edge.intake().publish(admitted).await?;
    let mut text = Vec::with_capacity(96 + stored.topic.as_str().len());
    text.extend_from_slice(b"{\"status\":\"accepted\",\"topic\":\"");
    // A topic has no character that JSON escapes.
    text.extend_from_slice(stored.topic.as_str().as_bytes());
    text.extend_from_slice(b"\",\"partition\":");
    push_number(&mut text, u64::from(stored.partition.0));
    text.extend_from_slice(b",\"offset\":");
    push_number_text(&mut text, stored.offset.0);
    if stored.duplicate {
        text.extend_from_slice(b",\"duplicate\":true");
    }
    text.push(b'}');
    Ok(json(StatusCode::ACCEPTED, text))
}

pub(super) async fn publish_batch(
    edge: &HttpEdge,
    verified: &Verified,
    parts: &Parts,
    body: ReadBody,
) -> Result<Response, ApiError> {
    let topic = topic_of(parts)?;
    let events = events_of(&parts.headers, &body, edge.intake().limits())?;
    let request = PublishBatch { topic, events };
    drop(body);
    let admitted = edge.intake().admit(verified, request).map_err(of_denied)?;
    let stored = edge.intake().publish_batch(admitted).await?;
    let mut text = Vec::with_capacity(48);
    text.extend_from_slice(b"{\"status\":\"accepted\",\"count\":");
    push_number(&mut text, stored.count as u64);
    if stored.duplicates > 0 {
        text.extend_from_slice(b",\"duplicates\":");
        push_number(&mut text, stored.duplicates as u64);
    }
    text.push(b'}');
    Ok(json(StatusCode::ACCEPTED, text))
}

fn topic_of(parts: &Parts) -> Result<TopicName, ApiError> {
    Query::of(&parts.uri).required_name("topic", TopicName::client)
}

fn event_of(headers: &HeaderMap, body: &ReadBody, limits: &Limits) -> Result<Event, ApiError> {
    let content_type = content_type(headers)?;
    let event = match mode_of(headers, content_type)? {
        ContentMode::Structured => parse_structured(&body.bytes, limits)?,
        ContentMode::Binary => {
            let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
            parse_binary(headers, content_type, body.bytes.clone(), limits)?
        }
        ContentMode::Batch => {
            return Err(ApiError::new(
                ErrorCode::InvalidEvent,
                "this route takes one event; post a batch to /events/publish-batch",
            ));
        }
    };
    Ok(event)
}

fn events_of(headers: &HeaderMap, body: &ReadBody, limits: &Limits) -> Result<Vec<Event>, ApiError> {
    match mode_of(headers, content_type(headers)?)? {
        ContentMode::Batch | ContentMode::Structured => Ok(parse_batch(&body.bytes, limits)?),
        ContentMode::Binary => Err(ApiError::new(
            ErrorCode::InvalidEvent,
            "binary mode carries a single event; post it to /events/publish",
        )),
    }
}

fn mode_of(headers: &HeaderMap, content_type: Option<&str>) -> Result<ContentMode, ApiError> {
    Ok(ContentMode::of(content_type, headers.contains_key("ce-specversion"))?)
}

fn content_type(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(None) };
    str::from_utf8(value.as_bytes())
        .map(Some)
        .map_err(|_| ApiError::new(ErrorCode::UnsupportedMediaType, "the Content-Type is not text"))
}
