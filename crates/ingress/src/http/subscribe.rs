//! `POST /events/subscribe` and `/events/unsubscribe`.

use axum::response::Response;
use http::StatusCode;
use mesh_delivery::Subscribed;
use mesh_frame::{ClientId, GroupName, TopicName};
use mesh_gate::Verified;
use mesh_server::{ApiError, JsonObject, json, push_number, push_number_text, push_text};

use super::{edge::HttpEdge, errors::of_denied, subscribe_request};
use crate::intake::Unsubscribe;

pub(super) async fn subscribe(
    edge: &HttpEdge,
    verified: &Verified,
    body: &[u8],
) -> Result<Response, ApiError> {
    let object = JsonObject::parse(body, subscribe_request::MEMBERS)?;
    let request = subscribe_request::parse(&object, body.len() as u64)?;
    let admitted = edge.intake().admit(verified, request).map_err(of_denied)?;
    let subscribed = edge.intake().subscribe(admitted).await?;
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
    let created: &[u8] = if subscribed.created { b",\"created\":true" } else { b",\"created\":false" };
    text.extend_from_slice(created);
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

pub(super) async fn unsubscribe(
    edge: &HttpEdge,
    verified: &Verified,
    body: &[u8],
) -> Result<Response, ApiError> {
    let request = JsonObject::parse(body, &["clientId", "topic", "group", "deleteGroup"])?;
    let client = request.required_name("clientId", ClientId::new)?;
    let topic = request.name("topic", TopicName::client)?;
    let group = request.name("group", GroupName::new)?;
    let delete_group = request.boolean("deleteGroup")?.unwrap_or(false);
    let client = edge.intake().client_to_unsubscribe(verified.caller(), client)?;
    let asked = Unsubscribe { client, topic, group, delete_group };
    let admitted = edge.intake().admit(verified, asked).map_err(of_denied)?;
    let removed = edge.intake().unsubscribe(admitted).await?;
    let text: &'static [u8] = if removed { b"{\"removed\":true}" } else { b"{\"removed\":false}" };
    Ok(json(StatusCode::OK, text))
}
