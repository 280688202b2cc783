//! HTTP: the routes of the traffic port.
//!
//! A request goes through one function (`handle`) in one order: method, readiness, credential, declared length, body,
//! parameters, parse, gate, intake. Every answer is JSON; an error is a [`mesh_server::ApiError`].

mod delivery_json;
mod edge;
mod errors;
mod handle;
pub mod openapi;
mod origin;
mod poll;
mod poll_body;
mod publish;
mod routes;
mod settle;
mod signed;
mod stream;
mod stream_body;
mod subscribe;
mod subscribe_request;
mod ticket;
mod traffic;

pub use edge::{HttpEdge, HttpEdgeSettings};
pub use routes::{Operation, ROUTES, Route};
pub use traffic::Traffic;
