//! The routes of the traffic port, as a table. Routing, the `Allow` header and the API document come from it.
//!
//! Paths match exactly. A known path with another method is 405 with `Allow`, anything else 404, both as JSON.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{
    HeaderValue, Method,
    header::{ALLOW, CONTENT_LENGTH, RETRY_AFTER},
};
use http_body::Body as _;
use mesh_gate::Action;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::{
    Answers, Peer,
    edge::{HttpEdge, handle, refuse},
    errors::{ApiError, ErrorCode},
};

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Stores one event.
    Publish,
    /// Stores a batch of events.
    PublishBatch,
    /// Makes a client a member of a group.
    Subscribe,
    /// Ends memberships.
    Unsubscribe,
    /// Hands out deliveries.
    Poll,
    /// Pushes deliveries.
    Stream,
    /// Finishes deliveries.
    Ack,
    /// Gives deliveries back.
    Nack,
    /// Keeps deliveries for longer.
    Extend,
    /// Makes deliveries dead letters.
    Reject,
    /// Gives a ticket for a stream.
    Ticket,
    /// Shows the API document.
    Document,
}

impl Operation {
    /// What the gate is asked for; `None`: nothing.
    pub fn action(self) -> Option<Action> {
        ROUTES.iter().find(|route| route.operation == self).and_then(|route| route.action)
    }
}

/// One route.
#[derive(Clone, Debug)]
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, matched exactly.
    pub path: &'static str,
    /// What it does.
    pub operation: Operation,
    /// What the gate is asked for. `None`: the route is open, with no credential and no question.
    pub action: Option<Action>,
    /// What it does, in a sentence for readers.
    pub summary: &'static str,
}

/// Every route.
pub const ROUTES: &[Route] = &[
    Route {
        method: Method::POST,
        path: "/events/publish",
        operation: Operation::Publish,
        action: Some(Action::Publish),
        summary: "Store one CloudEvent of the topic, structured or binary; durable before 202",
    },
    Route {
        method: Method::POST,
        path: "/events/publish-batch",
        operation: Operation::PublishBatch,
        action: Some(Action::Publish),
        summary: "Store a JSON array of CloudEvents of the topic, all of them or none",
    },
    Route {
        method: Method::POST,
        path: "/events/subscribe",
        operation: Operation::Subscribe,
        action: Some(Action::Subscribe),
        summary: "Make a client a member of a group of the topic",
    },
    Route {
        method: Method::POST,
        path: "/events/unsubscribe",
        operation: Operation::Unsubscribe,
        action: Some(Action::Unsubscribe),
        summary: "End memberships of a client",
    },
    Route {
        method: Method::GET,
        path: "/events/poll",
        operation: Operation::Poll,
        action: Some(Action::Subscribe),
        summary: "Receive deliveries, waiting for the first",
    },
    Route {
        method: Method::GET,
        path: "/events/stream",
        operation: Operation::Stream,
        action: Some(Action::Subscribe),
        summary: "Receive deliveries as server-sent events",
    },
    Route {
        method: Method::POST,
        path: "/events/ack",
        operation: Operation::Ack,
        action: Some(Action::Subscribe),
        summary: "Finish one delivery or many",
    },
    Route {
        method: Method::POST,
        path: "/events/nack",
        operation: Operation::Nack,
        action: Some(Action::Subscribe),
        summary: "Give deliveries back for another attempt, after a delay or the backoff",
    },
    Route {
        method: Method::POST,
        path: "/events/extend",
        operation: Operation::Extend,
        action: Some(Action::Subscribe),
        summary: "Lock deliveries for longer",
    },
    Route {
        method: Method::POST,
        path: "/events/reject",
        operation: Operation::Reject,
        action: Some(Action::Subscribe),
        summary: "Make deliveries dead letters now; stored before 200",
    },
    Route {
        method: Method::POST,
        path: "/events/ticket",
        operation: Operation::Ticket,
        action: Some(Action::Subscribe),
        summary: "A ticket that stands for the credential when a browser opens a stream: good once, for a minute",
    },
    Route {
        method: Method::GET,
        path: "/openapi.json",
        operation: Operation::Document,
        action: None,
        summary: "This API as an OpenAPI 3.1 document; open",
    },
];

/// The traffic port: finds a request's route in the table and has the edge answer it.
#[derive(Clone, Debug)]
pub struct Traffic {
    edge: HttpEdge,
    cors: Option<CorsLayer>,
}

impl Traffic {
    /// The traffic port before an edge.
    pub fn new(edge: HttpEdge) -> Self {
        let cors = cors(edge.cors_origins());
        Self { edge, cors }
    }
}

impl Answers for Traffic {
    async fn answer(&self, request: Request, peer: &Peer) -> Response {
        // In boxes: a connection keeps the room for a request's future for as long as it is open, an idle stream too.
        match &self.cors {
            None => Box::pin(route(&self.edge, request, peer)).await,
            Some(cors) => Box::pin(with_cors(cors, &self.edge, request, peer)).await,
        }
    }
}

async fn with_cors(cors: &CorsLayer, edge: &HttpEdge, request: Request, peer: &Peer) -> Response {
    let routed = service_fn(async |request| Ok::<_, Infallible>(route(edge, request, peer).await));
    match cors.layer(routed).oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

async fn route(edge: &HttpEdge, request: Request, peer: &Peer) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    if let Some(route) = ROUTES.iter().find(|route| route.path == path && route.method == *method) {
        return handle(edge, route.operation, request, peer).await;
    }
    let is_head = method == Method::HEAD;
    let answer = match ROUTES.iter().any(|route| route.path == path) {
        true => method_not_allowed(request).await,
        false => not_found(request).await,
    };
    if is_head { without_body(answer) } else { answer }
}

/// An answer to HEAD: it says how long its body would be and has none.
fn without_body(answer: Response) -> Response {
    let (mut parts, body) = answer.into_parts();
    if let Some(length) = body.size_hint().exact() {
        parts.headers.insert(CONTENT_LENGTH, length.into());
    }
    Response::from_parts(parts, Body::empty())
}

/// What lets pages of other origins call; `None`: no origin may.
fn cors(origins: &[String]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let origins = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(origins.iter().filter_map(|origin| HeaderValue::try_from(origin).ok()))
    };
    let layer = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([RETRY_AFTER])
        .max_age(Duration::from_secs(600));
    Some(layer)
}

/// The answer where there is no route.
pub async fn not_found(request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let error = ApiError::new(ErrorCode::NotFound, "there is no such route");
    refuse(error, &parts, body, false).await
}

/// The answer where a route has other methods; `Allow` names them where the table knows the path.
pub async fn method_not_allowed(request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let allowed = allowed(parts.uri.path());
    let message = match &allowed {
        Some(methods) => format!("this route takes {methods}, not {}", parts.method),
        None => format!("this route does not take {}", parts.method),
    };
    let mut response = refuse(ApiError::new(ErrorCode::MethodNotAllowed, message), &parts, body, false).await;
    if let Some(methods) = allowed.and_then(|methods| HeaderValue::try_from(methods).ok()) {
        response.headers_mut().insert(ALLOW, methods);
    }
    response.into_response()
}

/// The methods a path takes, as `Allow` lists them.
fn allowed(path: &str) -> Option<String> {
    let methods: Vec<&str> =
        ROUTES.iter().filter(|route| route.path == path).map(|route| route.method.as_str()).collect();
    (!methods.is_empty()).then(|| methods.join(", "))
}
