//! The edge: what every request of the traffic port goes through, in one order.
//!
//! Method, readiness, credential, the tenant's connections, declared length, the signature's head, body, signature,
//! parameters, parse, gate, intake. Whoever is not known costs the head of a request. A panic on the way is
//! answered with 500 and logged; the connection and the process go on. The API document alone is open: it is
//! answered after the method.

use std::{
    borrow::Cow,
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{
    HeaderName, HeaderValue, StatusCode, Version,
    header::{AUTHORIZATION, CONNECTION, EXPECT},
    request::Parts,
};
use mesh_base::{Lease, Stop};
use mesh_frame::{ClientId, Event, TopicName};
use mesh_gate::{
    Action, Admitted, Caller, Cost, Denied, Exceeded, Presented, Protocol, Resource, SecurityGate,
    SignedHead, Verified,
};

use super::{
    BodyLimits, Operation, Peer, Readiness,
    answer::json,
    body::{BodyReader, discard},
    errors::{ApiError, ErrorCode},
    origin, poll, publish,
    query::Query,
    settle, stream, subscribe, ticket,
};
use crate::Intake;

/// What the edge is told by the configuration.
#[derive(Clone, Debug)]
pub struct HttpEdgeSettings {
    /// Bounds of request bodies.
    pub body: BodyLimits,
    /// Bytes of all poll answers and of what streams are writing.
    pub answers_in_flight_bytes: u64,
    /// The longest silence of a stream, after which a comment is written.
    pub stream_keep_alive: Duration,
    /// Where clients reach this very instance; empty: wherever they reached it.
    pub instance_url: String,
    /// The origins whose pages may call, such as `https://app.example`; `*`: all of them.
    pub cors_origins: Vec<String>,
    /// The API document that `/openapi.json` shows.
    pub document: Bytes,
}

impl Default for HttpEdgeSettings {
    fn default() -> Self {
        Self {
            body: BodyLimits::DEFAULT,
            answers_in_flight_bytes: 256 << 20,
            // Clients are promised fifteen seconds.
            stream_keep_alive: Duration::from_secs(14),
            instance_url: String::new(),
            cors_origins: Vec::new(),
            document: crate::openapi().to_string().into(),
        }
    }
}

/// The edge; cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpEdge(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    intake: Intake,
    bodies: BodyReader,
    answers_in_flight: Arc<AtomicU64>,
    settings: HttpEdgeSettings,
    readiness: Readiness,
    stop: Stop,
}

impl HttpEdge {
    /// The edge before an intake. `stop` ends waiting polls and streams; until `readiness` is open every route is `not_ready`.
    pub fn new(intake: Intake, settings: HttpEdgeSettings, readiness: Readiness, stop: Stop) -> Self {
        let bodies = BodyReader::new(settings.body);
        Self(Arc::new(Inner { intake, bodies, answers_in_flight: Arc::default(), settings, readiness, stop }))
    }

    pub(super) fn intake(&self) -> &Intake {
        &self.0.intake
    }

    pub(super) fn gate(&self) -> &SecurityGate {
        self.0.intake.gate()
    }

    pub(super) fn stop(&self) -> &Stop {
        &self.0.stop
    }

    pub(super) fn cors_origins(&self) -> &[String] {
        &self.0.settings.cors_origins
    }

    pub(super) fn instance_url(&self) -> &str {
        &self.0.settings.instance_url
    }

    pub(super) fn stream_keep_alive(&self) -> Duration {
        self.0.settings.stream_keep_alive
    }

    /// A share of the budget for poll answers.
    pub(super) fn lease_answer(&self, bytes: usize) -> Result<Lease, ApiError> {
        Lease::take(&self.0.answers_in_flight, bytes as u64, self.0.settings.answers_in_flight_bytes)
            .ok_or_else(|| ApiError::new(ErrorCode::Overloaded, "too many answers are being sent; try again"))
    }

    /// Asks the gate.
    pub(super) fn admit<T>(
        &self,
        caller: &Caller,
        action: Action,
        resource: Resource<'_>,
        value: T,
    ) -> Result<Admitted<T>, ApiError> {
        self.gate().admit(caller, action, resource, value).map_err(|denied| self.denied(denied))
    }

    /// Asks the gate about a publish, which takes from what the tenant and the topic may.
    pub(super) fn admit_publish<T>(
        &self,
        caller: &Caller,
        topic: &TopicName,
        cost: Cost,
        value: T,
    ) -> Result<Admitted<T>, ApiError> {
        self.gate().admit_publish(caller, topic, cost, value).map_err(|denied| self.denied(denied))
    }

    /// Verifies what events carry themselves, where the request was not signed.
    pub(super) fn verify_events<'a>(
        &self,
        verified: &'a Verified,
        events: &[Event],
    ) -> Result<Cow<'a, Caller>, ApiError> {
        let mut caller = Cow::Borrowed(&verified.caller);
        if verified.by_event {
            for event in events {
                let known = self.gate().verify_event(&caller, event).map_err(|denied| self.denied(denied))?;
                caller = Cow::Owned(known);
            }
        }
        Ok(caller)
    }

    /// The tenant has as many subscriptions as it may.
    pub(super) fn subscriptions_exceeded(&self, caller: &Caller, topic: &TopicName) -> ApiError {
        let exceeded = Exceeded { what: "subscriptions", retry_after: Duration::from_secs(1) };
        let resource = Resource::Topic(topic);
        self.denied(self.gate().quota_exceeded(caller, Action::Subscribe, resource, exceeded))
    }

    fn authenticate(
        &self,
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
        let presented = Presented {
            authorization,
            certificate: peer.certificate(),
            trace: parts.headers.get("traceparent").and_then(|trace| trace.to_str().ok()),
            remote: Some(peer.remote()),
            protocol: Protocol::Http,
        };
        if origin::is_foreign(&parts.headers, self.cors_origins()) {
            return Err(self.denied(self.gate().foreign_page(&presented, action)));
        }
        if operation == Operation::Stream && authorization.is_none() {
            let query = Query::of(&parts.uri);
            if let Some(ticket) = query.get("ticket")? {
                let client = query.required("clientId")?;
                let client = ClientId::new(&client).map_err(|error| ApiError::of_name("clientId", error))?;
                let redeemed = self.gate().redeem(&ticket, &client, &presented);
                return redeemed.map_err(|denied| self.denied(denied));
            }
        }
        self.gate().authenticate(&presented, action).map_err(|denied| self.denied(denied))
    }

    /// Counts the connection among the tenant's, once, until it ends.
    fn count_connection(&self, peer: &Peer, caller: &Caller, action: Action) -> Result<(), ApiError> {
        if !self.gate().limits_connections(caller) {
            return Ok(());
        }
        peer.tenants()
            .count(caller.tenant(), || self.gate().connection(caller, action))
            .map_err(|denied| ApiError { closes: true, ..self.denied(denied) })
    }

    fn denied(&self, denied: Denied) -> ApiError {
        let error = ApiError::from(denied);
        if error.code == ErrorCode::RateLimited {
            self.0.intake.signals().rate_limited.inc();
        }
        // A connection of somebody unknown does not stay: it would take the place of one of somebody known.
        let closes = error.code == ErrorCode::Unauthenticated;
        ApiError { closes, ..error }
    }
}

/// The API document. It says nothing of what is stored, so nobody is asked who wants it.
fn document(edge: &HttpEdge) -> Response {
    json(StatusCode::OK, edge.0.settings.document.clone())
}

/// Answers a request of a route.
pub(super) async fn handle(edge: &HttpEdge, operation: Operation, request: Request, peer: &Peer) -> Response {
    if operation == Operation::Document {
        return document(edge);
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
    let inner = &edge.0;
    if !inner.readiness.is_ready() {
        return Err(ApiError::new(ErrorCode::NotReady, "the server is starting or stopping"));
    }
    let Some(action) = operation.action() else { return Ok(document(edge)) };
    let caller = edge.authenticate(parts, peer, operation, action)?;
    edge.count_connection(peer, &caller, action)?;
    inner.bodies.check_declared(&parts.headers, body)?;
    let is_signed = edge.gate().asks_for_signatures();
    if is_signed {
        let glanced = with_head(parts, |head| edge.gate().glance(&caller, head, action));
        glanced.map_err(|denied| edge.denied(denied))?;
    }
    *body_asked_for = true;
    let body = inner.bodies.read(body, caller.tenant()).await?;
    let verified = if is_signed {
        let verified = with_head(parts, |head| edge.gate().verify(&caller, head, &body.bytes, action));
        verified.map_err(|denied| edge.denied(denied))?
    } else {
        Verified { caller, by_event: false }
    };
    let caller = &verified.caller;
    // In boxes: a publish does not carry around the room that these take.
    match operation {
        Operation::Publish => publish::publish(edge, &verified, parts, body).await,
        Operation::PublishBatch => publish::publish_batch(edge, &verified, parts, body).await,
        Operation::Subscribe => Box::pin(subscribe::subscribe(edge, caller, &body.bytes)).await,
        Operation::Unsubscribe => Box::pin(subscribe::unsubscribe(edge, caller, &body.bytes)).await,
        Operation::Poll => Box::pin(poll::poll(edge, caller, parts)).await,
        Operation::Stream => Box::pin(stream::stream(edge, caller, parts)).await,
        Operation::Ticket => ticket::ticket(edge, caller, &body.bytes),
        Operation::Ack => Box::pin(settle::ack(edge, caller, &body.bytes)).await,
        Operation::Nack => Box::pin(settle::nack(edge, caller, &body.bytes)).await,
        Operation::Extend => Box::pin(settle::extend(edge, caller, &body.bytes)).await,
        Operation::Reject => Box::pin(settle::reject(edge, caller, &body.bytes)).await,
        Operation::Document => Ok(document(edge)),
    }
}

/// The head of a request as signatures cover it.
fn with_head<T>(parts: &Parts, verify: impl FnOnce(&SignedHead<'_>) -> T) -> T {
    let header = |name: &str| -> Vec<&[u8]> {
        let values: Vec<&[u8]> = parts.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
        match parts.uri.authority() {
            // HTTP/2 has it in the target.
            Some(authority) if values.is_empty() && name == "host" => vec![authority.as_str().as_bytes()],
            _ => values,
        }
    };
    let speaking: Vec<&str> =
        parts.headers.keys().map(HeaderName::as_str).filter(|name| name.starts_with("ce-")).collect();
    verify(&SignedHead {
        speaking: &speaking,
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query(),
        header: &header,
    })
}

/// Answers with an error. What is left of the body is read for a moment first: a connection that is closed
/// with unread input is reset, and the client would lose the answer.
pub(super) async fn refuse(error: ApiError, parts: &Parts, mut body: Body, body_asked_for: bool) -> Response {
    // A client that waits to be asked for the body has sent nothing, and need not.
    let waits_to_be_asked = !body_asked_for && parts.headers.contains_key(EXPECT);
    let too_slow = error.code == ErrorCode::Timeout;
    let closes = error.closes;
    let is_read = !waits_to_be_asked && !too_slow && discard(&mut body).await;
    let mut response = error.into_response();
    if (!is_read || closes) && parts.version < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
