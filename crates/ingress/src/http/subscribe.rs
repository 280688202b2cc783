//! `POST /events/subscribe` and `/events/unsubscribe`.

use axum::response::Response;
use http::StatusCode;
use mesh_delivery::{SubscribeError, Subscribed};
use mesh_frame::{ClientId, GroupName, TopicName};
use mesh_gate::{Action, Caller, Resource};

use super::{
    answer::{json, push_number, push_number_text, push_text},
    edge::HttpEdge,
    errors::ApiError,
    json::JsonObject,
    subscribe_request,
};
use crate::intake::{Hidden, Unsubscribe};

pub(super) async fn subscribe(edge: &HttpEdge, caller: &Caller, body: &[u8]) -> Result<Response, ApiError> {
    let request = subscribe_request::parse(&JsonObject::parse(body)?, caller.tenant())?;
    let topic = request.topic.clone();
    let admitted = edge.admit(caller, Action::Subscribe, Resource::Topic(&topic), request)?;
    let subscribed = edge.intake().subscribe(admitted).await;
    let subscribed = subscribed.map_err(|error| match error {
        SubscribeError::TenantFull(_) => edge.subscriptions_exceeded(caller, &topic),
        error => error.into(),
    })?;
    Ok(json(StatusCode::OK, written(&subscribed, edge.instance_url())))
}

fn written(subscribed: &Subscribed, instance_url: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(192 + 24 * subscribed.start.len());
    text.extend_from_slice(b"{\"subscriptionId\":");
    push_text(&mut text, subscribed.subscription.as_str());
    text.extend_from_slice(b",\"instanceUrl\":");
    push_text(&mut text, instance_url);
    text.extend_from_slice(b",\"group\":");
    push_text(&mut text, subscribed.group.as_str());
    text.extend_from_slice(b",\"mode\":");
    push_text(&mut text, subscribed.mode.as_str());
    text.extend_from_slice(b",\"start\":{");
    for (place, (partition, offset)) in subscribed.start.iter().enumerate() {
        text.extend_from_slice(if place == 0 { b"\"" } else { b",\"" });
        push_number(&mut text, u64::from(partition.0));
        text.extend_from_slice(b"\":");
        push_number_text(&mut text, offset.0);
    }
    text.extend_from_slice(b"}}");
    text
}

pub(super) async fn unsubscribe(edge: &HttpEdge, caller: &Caller, body: &[u8]) -> Result<Response, ApiError> {
    let request = JsonObject::parse(body)?;
    let client = ClientId::new(&request.required_text("clientId")?)
        .map_err(|error| ApiError::of_name("clientId", error))?;
    let topic = request.text("topic")?.map(|topic| TopicName::client(&topic)).transpose();
    let topic = topic.map_err(|error| ApiError::of_name("topic", error))?;
    let group = request.text("group")?.map(|group| GroupName::new(&group)).transpose();
    let group = group.map_err(|error| ApiError::of_name("group", error))?;
    let delete_group = request.boolean("deleteGroup")?.unwrap_or(false);
    let client = edge.intake().client(caller, client, Action::Unsubscribe)?;
    if !edge.gate().is_open() && !client.is_there() {
        // As for a client that is another principal's: nobody learns which of the two it is.
        return Err(Hidden.into());
    }
    // Whoever owns it may leave. One that is nobody's becomes the caller's with this, and a group may go with its
    // backlog: both take the right to use it.
    let action = if client.is_owned() && !delete_group { Action::Unsubscribe } else { Action::Subscribe };
    let (id, topics) = (client.id().clone(), client.topics().to_vec());
    let asked = Unsubscribe { client, topic, group, delete_group };
    let admitted = edge.admit(caller, action, Resource::Client(&id, &topics), asked)?;
    let removed = edge.intake().unsubscribe(admitted).await;
    let removed = removed.map_err(|error| match error {
        SubscribeError::NotYours => Hidden.into(),
        error => ApiError::from(error),
    })?;
    let text: &'static [u8] = if removed { b"{\"removed\":true}" } else { b"{\"removed\":false}" };
    Ok(json(StatusCode::OK, text))
}
