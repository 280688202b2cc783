//! `POST /events/ticket`: what a page puts into the address of its stream, since it cannot give it a header.

use axum::response::Response;
use http::StatusCode;
use mesh_frame::{ClientId, format_timestamp};
use mesh_gate::{Action, Caller, Resource};

use super::{
    answer::{json, push_text},
    edge::HttpEdge,
    errors::{ApiError, ErrorCode},
    json::JsonObject,
};

/// An empty body asks for a ticket for any client of the caller.
pub(super) fn ticket(edge: &HttpEdge, caller: &Caller, body: &[u8]) -> Result<Response, ApiError> {
    let client = if body.is_empty() { None } else { JsonObject::parse(body)?.text("clientId")? };
    let client = client.map(|client| ClientId::new(&client)).transpose();
    let client = client.map_err(|error| ApiError::of_name("clientId", error))?;
    if caller.identity().credential == mesh_gate::CredentialKind::Ticket {
        return Err(ApiError::new(ErrorCode::Unauthenticated, "a ticket does not give tickets"));
    }
    let resource = Resource::Deliveries(&[]);
    let admitted = edge.admit(caller, Action::Subscribe, resource, client)?;
    let (client, caller) = admitted.into_parts();
    let ticket = edge.gate().ticket(&caller, client).ok_or_else(|| {
        ApiError::new(ErrorCode::Overloaded, "too many tickets are out; those that are used make room")
    })?;
    let mut text = Vec::with_capacity(128);
    text.extend_from_slice(b"{\"ticket\":");
    push_text(&mut text, &ticket.text);
    text.extend_from_slice(b",\"expiresAt\":");
    push_text(&mut text, &format_timestamp(ticket.good_until.0));
    text.push(b'}');
    let mut response = json(StatusCode::OK, text);
    response.headers_mut().insert(http::header::CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
    Ok(response)
}
