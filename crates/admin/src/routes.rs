//! The admin routes, as one table: what the router is built from, and what documents and tests read.

use std::collections::BTreeMap;

use axum::{
    Router,
    body::Body,
    extract::Request,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{MethodRouter, delete, get, post, put},
};
use http_body::Body as _;
use mesh_server::{ApiError, ErrorCode, JsonObject, Query};

use crate::{
    body, groups,
    guard::{AdminRole, Needs, guard},
    letters, rate_limits, topics,
    views::{self, AdminState},
};

/// A route of the admin port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The method.
    pub method: &'static str,
    /// The path.
    pub path: &'static str,
    /// What it needs.
    pub needs: Needs,
    /// The parameters of the query that it knows; another one is refused.
    pub query: &'static [&'static str],
    /// Whether it reads a body; one that does not refuses it.
    pub has_body: bool,
    /// What it gives.
    pub summary: &'static str,
}

const fn on(method: &'static str, path: &'static str, needs: Needs, summary: &'static str) -> Route {
    // A GET reads its query; whatever else changes something may be told in a body.
    let has_body = !matches!(method.as_bytes(), b"GET");
    Route { method, path, needs, query: &[], has_body, summary }
}

impl Route {
    const fn query(self, query: &'static [&'static str]) -> Self {
        Self { query, ..self }
    }
}

const VIEWER: Needs = Needs::Role(AdminRole::Viewer);
const OPERATOR: Needs = Needs::Role(AdminRole::Operator);
const ADMIN: Needs = Needs::Role(AdminRole::Admin);

/// Every route of the admin port.
pub const ROUTES: &[Route] = &[
    on(
        "GET",
        "/admin/health",
        Needs::Nothing,
        "Status and components; with the token also topology and reasons",
    ),
    on("GET", "/admin/ready", Needs::Nothing, "200 while traffic is served, else 503"),
    on("GET", "/metrics", Needs::Metrics, "Metrics in the Prometheus text format"),
    on("GET", "/admin/metrics", Needs::Metrics, "Metrics as JSON, under EventMesh's names"),
    on("GET", "/admin/subscriptions", VIEWER, "The members of every group, of one topic or all")
        .query(&["topic"]),
    on("GET", "/admin/clients", VIEWER, "The clients of a topic with what they have pending")
        .query(&["topic"]),
    on("POST", "/admin/client/reject", OPERATOR, "End every subscription of a client")
        .query(groups::REJECT_OPTIONS),
    on("GET", "/admin/offsets", VIEWER, "How far every group of a topic is").query(&["topic"]),
    on("GET", "/admin/dlq/browse", VIEWER, "The dead letters of a topic").query(views::BROWSE_OPTIONS),
    on("POST", "/admin/dlq/replay", OPERATOR, "Give dead letters to the group that failed again")
        .query(letters::OPTIONS),
    on("POST", "/admin/dlq/discard", OPERATOR, "Remove dead letters").query(letters::OPTIONS),
    on("GET", "/admin/topics", VIEWER, "Every topic"),
    on("POST", "/admin/topics", OPERATOR, "Make a topic, or give it more partitions"),
    on(
        "GET",
        "/admin/topics/{topic}",
        VIEWER,
        "A topic's partitions with their bounds and sizes, and its groups",
    ),
    on("DELETE", "/admin/topics/{topic}", ADMIN, "Delete a topic; by force with its groups")
        .query(topics::DELETE_OPTIONS),
    on("GET", "/admin/groups", VIEWER, "Groups with members, settings and lag, of one topic or all")
        .query(&["topic"]),
    on("DELETE", "/admin/groups/{topic}/{group}", ADMIN, "Remove a group with its positions")
        .query(groups::DELETE_OPTIONS),
    on("POST", "/admin/groups/{topic}/{group}/seek", OPERATOR, "Make a group go on somewhere else")
        .query(groups::SEEK_OPTIONS),
    on("GET", "/admin/ratelimit", VIEWER, "The rates of topics"),
    on("PUT", "/admin/ratelimit", OPERATOR, "Give a topic a rate"),
    on("POST", "/admin/ratelimit", OPERATOR, "Give a topic a rate"),
    on("DELETE", "/admin/ratelimit", OPERATOR, "Take a topic's rate away").query(&["topic"]),
];

/// The router of the admin port.
pub fn router(state: AdminState) -> Router {
    let mut paths: BTreeMap<&'static str, (Vec<&'static str>, MethodRouter<AdminState>)> = BTreeMap::new();
    for route in ROUTES {
        let (methods, handlers) = paths.entry(route.path).or_default();
        methods.push(route.method);
        let handler = guarded(known(handler(route.method, route.path), route), route.needs, &state);
        *handlers = std::mem::take(handlers).merge(handler);
    }
    let mut router = Router::new();
    for (path, (methods, handlers)) in paths {
        let allowed = methods.join(", ");
        router =
            router.route(path, handlers.fallback(move |request: Request| wrong_method(request, allowed)));
    }
    router.fallback(unknown).with_state(state)
}

/// A handler that is given nothing but what its route knows.
fn known(handler: MethodRouter<AdminState>, route: &'static Route) -> MethodRouter<AdminState> {
    handler.route_layer(middleware::from_fn(async move |request: Request, next: Next| {
        if let Err(error) = Query::of(request.uri()).only(route.query) {
            return error.into_response();
        }
        if route.has_body || request.body().is_end_stream() {
            return next.run(request).await;
        }
        // Options in a body that is not read would do nothing.
        let (parts, body) = request.into_parts();
        match body::read(body).await.and_then(|body| JsonObject::parse_optional(&body, &[]).map(drop)) {
            Ok(()) => next.run(Request::from_parts(parts, Body::empty())).await,
            Err(error) => error.into_response(),
        }
    }))
}

/// A handler behind what it needs.
fn guarded(handler: MethodRouter<AdminState>, needs: Needs, state: &AdminState) -> MethodRouter<AdminState> {
    if needs == Needs::Nothing {
        return handler;
    }
    let state = state.clone();
    handler.route_layer(middleware::from_fn(move |request: Request, next: Next| {
        let (access, gate) = (state.access().clone(), state.gate().clone());
        guard(access, gate, needs, request, next)
    }))
}

/// The handler behind a line of the table.
///
/// # Panics
/// When the table has a line without one; the test below walks the table.
fn handler(method: &str, path: &str) -> MethodRouter<AdminState> {
    match (method, path) {
        ("GET", "/admin/health") => get(views::health),
        ("GET", "/admin/ready") => get(views::ready),
        ("GET", "/metrics") => get(views::prometheus),
        ("GET", "/admin/metrics") => get(views::metrics),
        ("GET", "/admin/subscriptions") => get(views::subscriptions),
        ("GET", "/admin/clients") => get(views::clients),
        ("POST", "/admin/client/reject") => post(groups::reject),
        ("GET", "/admin/offsets") => get(views::offsets),
        ("GET", "/admin/dlq/browse") => get(views::dead_letters),
        ("POST", "/admin/dlq/replay") => post(letters::replay),
        ("POST", "/admin/dlq/discard") => post(letters::discard),
        ("GET", "/admin/topics") => get(topics::list),
        ("POST", "/admin/topics") => post(topics::make),
        ("GET", "/admin/topics/{topic}") => get(topics::describe),
        ("DELETE", "/admin/topics/{topic}") => delete(topics::delete),
        ("GET", "/admin/groups") => get(groups::list),
        ("DELETE", "/admin/groups/{topic}/{group}") => delete(groups::delete),
        ("POST", "/admin/groups/{topic}/{group}/seek") => post(groups::seek),
        ("GET", "/admin/ratelimit") => get(rate_limits::list),
        ("PUT", "/admin/ratelimit") => put(rate_limits::put),
        ("POST", "/admin/ratelimit") => post(rate_limits::put),
        ("DELETE", "/admin/ratelimit") => delete(rate_limits::remove),
        other => unreachable!("no handler for {other:?}"),
    }
}

async fn wrong_method(request: Request, allowed: String) -> Response {
    let text = format!("{} takes {allowed}", request.uri().path());
    let mut response = ApiError::new(ErrorCode::MethodNotAllowed, text).into_response();
    let allowed = http::HeaderValue::from_str(&allowed).expect("the names of methods");
    response.headers_mut().insert(http::header::ALLOW, allowed);
    response
}

async fn unknown(request: Request) -> Response {
    let path = request.uri().path();
    let hint = if path.starts_with("/events") || path == "/openapi.json" {
        "this is the admin port, and that is on the traffic port (eventmesh.http.port)"
    } else {
        "this is the admin port; /openapi.json on the traffic port (eventmesh.http.port) lists its routes"
    };
    ApiError::new(ErrorCode::NotFound, format!("there is no {path}: {hint}")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_of_the_table_has_a_handler() {
        for route in ROUTES {
            drop(handler(route.method, route.path));
        }
    }
}
