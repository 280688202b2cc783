//! The admin routes, as one table: what the router is built from, and what documents and tests read.

use std::collections::BTreeMap;

use axum::{
    Router,
    extract::Request,
    middleware,
    response::{IntoResponse, Response},
    routing::{MethodRouter, delete, get, post},
};
use mesh_ingress::http::{ApiError, ErrorCode};

use crate::{
    groups,
    guard::guard,
    letters, topics,
    views::{self, AdminState},
};

/// A route of the admin port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The method.
    pub method: &'static str,
    /// The path.
    pub path: &'static str,
    /// Whether it answers without the token.
    pub open: bool,
    /// What it gives.
    pub summary: &'static str,
}

const fn on_get(path: &'static str, open: bool, summary: &'static str) -> Route {
    Route { method: "GET", path, open, summary }
}

const fn on_post(path: &'static str, summary: &'static str) -> Route {
    Route { method: "POST", path, open: false, summary }
}

const fn on_delete(path: &'static str, summary: &'static str) -> Route {
    Route { method: "DELETE", path, open: false, summary }
}

/// Every route of the admin port.
pub const ROUTES: &[Route] = &[
    on_get("/admin/health", true, "Status and components; with the token also topology and reasons"),
    on_get("/admin/ready", true, "200 while traffic is served, else 503"),
    on_get("/metrics", false, "Metrics in the Prometheus text format"),
    on_get("/admin/metrics", false, "Metrics as JSON, under EventMesh's names"),
    on_get("/admin/subscriptions", false, "The members of every group, of one topic or all"),
    on_get("/admin/clients", false, "The clients of a topic with what they have pending"),
    on_post("/admin/client/reject", "End every subscription of a client"),
    on_get("/admin/offsets", false, "How far every group of a topic is"),
    on_get("/admin/dlq/browse", false, "The dead letters of a topic"),
    on_post("/admin/dlq/replay", "Give dead letters to the group that failed again"),
    on_post("/admin/dlq/discard", "Remove dead letters"),
    on_get("/admin/topics", false, "Every topic"),
    on_post("/admin/topics", "Make a topic, or give it more partitions"),
    on_get(
        "/admin/topics/{topic}",
        false,
        "A topic's partitions with their bounds and sizes, and its groups",
    ),
    on_delete("/admin/topics/{topic}", "Delete a topic; by force with its groups"),
    on_get("/admin/groups", false, "Groups with members, settings and lag, of one topic or all"),
    on_delete("/admin/groups/{topic}/{group}", "Remove a group with its positions"),
    on_post("/admin/groups/{topic}/{group}/seek", "Make a group go on somewhere else"),
];

/// The router of the admin port.
pub fn router(state: AdminState) -> Router {
    let mut paths: BTreeMap<&'static str, (bool, Vec<&'static str>, MethodRouter<AdminState>)> =
        BTreeMap::new();
    for route in ROUTES {
        let (_, methods, handlers) =
            paths.entry(route.path).or_insert((route.open, Vec::new(), MethodRouter::new()));
        methods.push(route.method);
        *handlers = std::mem::take(handlers).merge(handler(route.method, route.path));
    }
    let mut open = Router::new();
    let mut guarded = Router::new();
    for (path, (is_open, methods, handlers)) in paths {
        let allowed = methods.join(", ");
        let handlers = handlers.fallback(move |request: Request| wrong_method(request, allowed));
        if is_open {
            open = open.route(path, handlers);
        } else {
            guarded = guarded.route(path, handlers);
        }
    }
    let guarded = guarded.route_layer(middleware::from_fn_with_state(state.token().clone(), guard));
    open.merge(guarded).fallback(unknown).with_state(state)
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
    ApiError::new(ErrorCode::NotFound, format!("there is no {}", request.uri().path())).into_response()
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
