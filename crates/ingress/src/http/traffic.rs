//! The traffic port: which route a request is for, and what pages of other origins may do.
//!
//! Paths match exactly. A known path with another method is 405 with `Allow`, anything else 404, both as JSON.

use std::{convert::Infallible, time::Duration};

use axum::{body::Body, extract::Request, response::Response};
use futures_util::future::Either;
use http::{
    HeaderValue, Method,
    header::{ALLOW, CONTENT_LENGTH, RETRY_AFTER},
};
use http_body::Body as _;
use mesh_server::{Answers, ApiError, ErrorCode, Peer, refuse};
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::{
    edge::HttpEdge,
    handle::handle,
    poll::STREAM_OPEN,
    routes::{Operation, ROUTES, allowed},
};

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
    fn answer(&self, request: Request, peer: &Peer) -> impl Future<Output = Response> + Send {
        // In boxes: a connection keeps the room for a request's future for as long as it is open, an idle stream too.
        match &self.cors {
            None => Either::Left(Box::pin(route(&self.edge, request, peer))),
            Some(cors) => Either::Right(Box::pin(with_cors(cors, &self.edge, request, peer))),
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
    // What hands out nothing is answered to HEAD as to GET (RFC 9110, 9.1).
    let document = ROUTES.iter().find(|route| route.path == path && route.operation == Operation::Document);
    if let Some(route) = document.filter(|_| is_head) {
        return without_body(handle(edge, route.operation, request, peer).await);
    }
    let answer = match allowed(path) {
        Some(methods) => method_not_allowed(request, methods).await,
        None => not_found(request, edge.admin_port()).await,
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
        .expose_headers([RETRY_AFTER, STREAM_OPEN])
        .max_age(Duration::from_secs(600));
    Some(layer)
}

/// The answer where there is no route.
async fn not_found(request: Request, admin_port: Option<u16>) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let port = admin_port.map_or_else(String::new, |port| format!(" {port}"));
    let message = if path == "/" {
        format!(
            "this is the traffic port of an event mesh: /openapi.json lists the routes of both ports; administration is on \
             the admin port{port}"
        )
    } else if path.starts_with("/admin") || path == "/metrics" {
        format!(
            "there is no such route here: administration is on the admin port{port}; /openapi.json lists the routes"
        )
    } else {
        "there is no such route; /openapi.json lists those there are".to_owned()
    };
    refuse(ApiError::new(ErrorCode::NotFound, message), &parts, body, false).await
}

/// The answer where a route has other methods, which `Allow` names.
async fn method_not_allowed(request: Request, methods: String) -> Response {
    let (parts, body) = request.into_parts();
    let message = format!("this route takes {methods}, not {}", parts.method);
    let mut response = refuse(ApiError::new(ErrorCode::MethodNotAllowed, message), &parts, body, false).await;
    if let Ok(methods) = HeaderValue::try_from(methods) {
        response.headers_mut().insert(ALLOW, methods);
    }
    response
}
