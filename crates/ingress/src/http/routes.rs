//! The routes of the traffic port, as a table. The router, the `Allow` header and the API document come from it.
//!
//! Paths match exactly. A known path with another method is 405 with `Allow`, anything else 404, both as JSON.

use std::time::Duration;

use axum::{
    Router,
    extract::Request,
    response::{IntoResponse, Response},
    routing::{MethodFilter, on},
};
use http::{
    HeaderValue, Method,
    header::{ALLOW, RETRY_AFTER},
};
use mesh_gate::Action;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::{
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

/// The router of the traffic port.
pub fn router(edge: &HttpEdge) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let method = MethodFilter::try_from(route.method.clone()).expect("the table has standard methods");
        let edge = edge.clone();
        let operation = route.operation;
        let handler = move |request: Request| {
            let edge = edge.clone();
            async move { handle(&edge, operation, request).await }
        };
        router = router.route(route.path, on(method, handler));
    }
    let router = router.fallback(not_found).method_not_allowed_fallback(method_not_allowed);
    match cors(edge.cors_origins()) {
        Some(layer) => router.layer(layer),
        None => router,
    }
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
