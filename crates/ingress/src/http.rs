//! HTTP: the traffic port's routes, and the server under them, which the administration port uses too.
//!
//! A request goes through one function ([`edge`](self)) in one order: method, readiness, credential, declared
//! length, body, parameters, parse, gate, intake. Every answer is JSON; an error is [`ApiError`], of a closed list
//! of codes. Nothing waits without a bound, and what is refused early is still read for a moment, so that the
//! client gets the answer instead of a reset.

mod answer;
mod body;
mod body_shares;
mod charged;
mod connection;
mod connection_tenants;
mod connections;
mod delivery_json;
mod edge;
mod errors;
mod json;
mod origin;
mod poll;
mod poll_body;
mod publish;
mod query;
mod readiness;
mod routes;
mod server;
mod service;
mod settle;
mod socket;
mod stream;
mod stream_body;
mod subscribe;
mod subscribe_request;
mod ticket;
mod tls;
mod watch;

pub use body::BodyLimits;
pub use connection::Peer;
pub use edge::{HttpEdge, HttpEdgeSettings};
pub use errors::{ApiError, ErrorCode};
pub use json::{Given, JsonObject};
pub use readiness::Readiness;
pub use routes::{Operation, ROUTES, Route, Traffic, method_not_allowed, not_found};
pub use server::{HttpServer, HttpServerSettings, HttpServerSignals};
pub use service::Answers;
pub use subscribe_request::read_start;
pub use tls::{ClientCertificates, Tls, TlsError, TlsSettings};
pub use watch::Patience;
