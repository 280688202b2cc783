//! The admin routes, as one table: what the router is built from, and what documents and tests read.

use axum::{
    Router,
    extract::Request,
    middleware,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get},
};
use mesh_ingress::http::{ApiError, ErrorCode};

use crate::{
    guard::guard,
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

const fn route(path: &'static str, open: bool, summary: &'static str) -> Route {
    Route { method: "GET", path, open, summary }
}

/// Every route of the admin port.
pub const ROUTES: &[Route] = &[
    route("/admin/health", true, "Status and components; with the token also topology and reasons"),
    route("/admin/ready", true, "200 while traffic is served, else 503"),
    route("/metrics", false, "Metrics in the Prometheus text format"),
    route("/admin/metrics", false, "Metrics as JSON, under EventMesh's names"),
    route("/admin/subscriptions", false, "The members of every group, of one topic or all"),
    route("/admin/clients", false, "The clients of a topic with what they have pending"),
    route("/admin/offsets", false, "How far every group of a topic is"),
    route("/admin/dlq/browse", false, "The dead letters of a topic"),
];

/// The router of the admin port.
pub fn router(state: AdminState) -> Router {
    let mut open = Router::new();
    let mut guarded = Router::new();
    for route in ROUTES {
        let handler = handler(route.path).fallback(wrong_method);
        if route.open {
            open = open.route(route.path, handler);
        } else {
            guarded = guarded.route(route.path, handler);
        }
    }
    let guarded = guarded.route_layer(middleware::from_fn_with_state(state.token().clone(), guard));
    open.merge(guarded).fallback(unknown).with_state(state)
}

/// The handler behind a path of the table.
///
/// # Panics
/// When the table has a path without one; the test below walks the table.
fn handler(path: &str) -> MethodRouter<AdminState> {
    match path {
        "/admin/health" => get(views::health),
        "/admin/ready" => get(views::ready),
        "/metrics" => get(views::prometheus),
        "/admin/metrics" => get(views::metrics),
        "/admin/subscriptions" => get(views::subscriptions),
        "/admin/clients" => get(views::clients),
        "/admin/offsets" => get(views::offsets),
        "/admin/dlq/browse" => get(views::dead_letters),
        other => unreachable!("no handler for {other}"),
    }
}

async fn wrong_method(request: Request) -> Response {
    let mut response =
        ApiError::new(ErrorCode::MethodNotAllowed, format!("{} takes GET", request.uri().path()))
            .into_response();
    response.headers_mut().insert(http::header::ALLOW, http::HeaderValue::from_static("GET"));
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
            drop(handler(route.path));
        }
    }
}
