//! `POST /events/ticket`: what a page puts into the address of its stream, since it cannot give it a header.

use axum::response::Response;
use http::StatusCode;
use mesh_frame::{ClientId, format_timestamp};
use mesh_gate::{CredentialKind, Verified};
use mesh_server::{ApiError, ErrorCode, JsonObject, json, push_text};

use super::{edge::HttpEdge, errors::of_denied};
use crate::intake::AskTicket;

/// An empty body asks for a ticket for any client of the caller.
pub(super) fn ticket(edge: &HttpEdge, verified: &Verified, body: &[u8]) -> Result<Response, ApiError> {
    let client = JsonObject::parse_optional(body, &["clientId"])?.name("clientId", ClientId::new)?;
    if verified.caller().identity().credential == CredentialKind::Ticket {
        return Err(ApiError::new(ErrorCode::Unauthenticated, "a ticket does not give tickets"));
    }
    let admitted = edge.intake().admit(verified, AskTicket { client }).map_err(of_denied)?;
    let ticket = edge.intake().ticket(admitted).ok_or_else(|| {
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
