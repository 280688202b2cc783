//! What every request of the traffic port goes through, in one order.
//!
//! Method, readiness, credential, the tenant's connections, declared length, the signature's head, body, signature,
//! parameters, parse, gate, intake. A caller that is not known costs the head of a request. A panic on the way is
//! answered with 500 and logged; the connection and the process go on. The API document alone is open: it is
//! answered after the method.

use std::panic::AssertUnwindSafe;

use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use http::{HeaderValue, StatusCode, header::AUTHORIZATION, request::Parts};
use mesh_frame::ClientId;
use mesh_gate::{Action, Caller, CertificateNames, Presented, Protocol};
use mesh_server::{ApiError, ErrorCode, JsonObject, Peer, Query, json, refuse};

use super::{
    edge::HttpEdge, errors::of_denied, origin, poll, publish, routes::Operation, settle, signed::with_head,
    stream, subscribe, ticket,
};

/// The API document. It says nothing of what is stored, so nobody is asked who wants it.
fn document(edge: &HttpEdge) -> Response {
    json(StatusCode::OK, edge.document())
}

/// Answers a request of a route.
pub(super) async fn handle(edge: &HttpEdge, operation: Operation, request: Request, peer: &Peer) -> Response {
    if operation == Operation::Document {
        return match Query::of(request.uri()).only(operation.query()) {
            Ok(()) => document(edge),
            Err(error) => error.into_response(),
        };
    }
    match AssertUnwindSafe(answer(edge, operation, request, peer)).catch_unwind().await {
        Ok(response) => response,
        Err(panic) => {
            let what = panic.downcast_ref::<&str>().copied().map(str::to_owned);
            let what = what.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            tracing::error!(?operation, panic = what, "a request panicked");
            ApiError::new(ErrorCode::Internal, "the server failed in a way it does not know").into_response()
        }
    }
}

async fn answer(edge: &HttpEdge, operation: Operation, request: Request, peer: &Peer) -> Response {
    let (parts, mut body) = request.into_parts();
    let mut body_asked_for = false;
    match run(edge, operation, &parts, peer, &mut body, &mut body_asked_for).await {
        Ok(response) => response,
        Err(error) => refuse(error, &parts, body, body_asked_for).await,
    }
}

async fn run(
    edge: &HttpEdge,
    operation: Operation,
    parts: &Parts,
    peer: &Peer,
    body: &mut Body,
    body_asked_for: &mut bool,
) -> Result<Response, ApiError> {
    if !edge.is_ready() {
        return Err(ApiError::new(ErrorCode::NotReady, "the server is starting or stopping"));
    }
    let Some(action) = operation.action() else { return Ok(document(edge)) };
    let intake = edge.intake();
    let caller = authenticate(edge, parts, peer, operation, action)?;
    peer.make_known();
    intake
        .count_connection(peer.tenants(), &caller, action)
        .map_err(|denied| ApiError { closes: true, ..of_denied(denied) })?;
    edge.bodies().check_declared(&parts.headers, body)?;
    let (verified, body) = match intake.unsigned(caller) {
        Ok(verified) => {
            *body_asked_for = true;
            let body = edge.bodies().read(body, verified.caller().tenant()).await?;
            (verified, body)
        }
        Err(caller) => {
            with_head(parts, |head| intake.glance(&caller, head, action)).map_err(of_denied)?;
            *body_asked_for = true;
            let body = edge.bodies().read(body, caller.tenant()).await?;
            let verified = with_head(parts, |head| intake.verify(&caller, head, &body.bytes, action));
            (verified.map_err(of_denied)?, body)
        }
    };
    Query::of(&parts.uri).only(operation.query())?;
    // In boxes: a publish does not carry around the room that these take.
    match operation {
        Operation::Publish => publish::publish(edge, &verified, parts, body).await,
        Operation::PublishBatch => publish::publish_batch(edge, &verified, parts, body).await,
        Operation::Subscribe => Box::pin(subscribe::subscribe(edge, &verified, &body.bytes)).await,
        Operation::Unsubscribe => Box::pin(subscribe::unsubscribe(edge, &verified, &body.bytes)).await,
        Operation::Poll => {
            no_members(&body.bytes)?;
            Box::pin(poll::poll(edge, &verified, parts)).await
        }
        Operation::Stream => {
            no_members(&body.bytes)?;
            Box::pin(stream::stream(edge, &verified, parts)).await
        }
        Operation::Ticket => ticket::ticket(edge, &verified, &body.bytes),
        Operation::Ack => Box::pin(settle::ack(edge, &verified, &body.bytes)).await,
        Operation::Nack => Box::pin(settle::nack(edge, &verified, &body.bytes)).await,
        Operation::Extend => Box::pin(settle::extend(edge, &verified, &body.bytes)).await,
        Operation::Reject => Box::pin(settle::reject(edge, &verified, &body.bytes)).await,
        Operation::Document => Ok(document(edge)),
    }
}

/// Refuses options in the body of a route that reads them from its query: they would do nothing.
fn no_members(body: &[u8]) -> Result<(), ApiError> {
    JsonObject::parse_optional(body, &[]).map(drop)
}

fn authenticate(
    edge: &HttpEdge,
    parts: &Parts,
    peer: &Peer,
    operation: Operation,
    action: Action,
) -> Result<Caller, ApiError> {
    let mut values = parts.headers.get_all(AUTHORIZATION).iter();
    let authorization = values.next().map(HeaderValue::as_bytes);
    if values.next().is_some() {
        return Err(ApiError::invalid("there is more than one Authorization header"));
    }
    let certificate = peer.certificate().map(|certificate| CertificateNames {
        common_name: certificate.common_name.as_deref(),
        alternative: &certificate.alternative,
    });
    let presented = Presented {
        authorization,
        certificate,
        trace: parts.headers.get("traceparent").and_then(|trace| trace.to_str().ok()),
        remote: Some(peer.remote()),
        protocol: Protocol::Http,
    };
    let intake = edge.intake();
    if origin::is_foreign(&parts.headers, edge.cors_origins()) {
        return Err(of_denied(intake.foreign_page(&presented, action)));
    }
    if operation == Operation::Stream && authorization.is_none() {
        let query = Query::of(&parts.uri);
        if let Some(ticket) = query.get("ticket")? {
            let client = query.required_name("clientId", ClientId::new)?;
            return intake.redeem(&ticket, &client, &presented).map_err(of_denied);
        }
    }
    intake.authenticate(&presented, action).map_err(of_denied)
}
