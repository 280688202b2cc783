//! How a port is served, for every protocol: connections and their limits, TLS, bodies, JSON, errors, drain.
//!
//! [`HttpServer`] binds, accepts and drains; what answers requests implements [`Answers`]. Every error is an [`ApiError`]
//! with a code of the closed list [`ErrorCode`]. Nothing waits without a bound, and what is refused early is still
//! read for a moment, so that the client gets the answer instead of a reset. What a route means is not known here.

mod answer;
mod body;
mod charged;
mod codes;
mod connection;
mod connection_tenants;
mod connections;
mod error;
mod head;
mod hosts;
mod http2;
mod json;
mod json_text;
pub mod openapi;
mod peer;
mod preface;
mod query;
mod readiness;
mod server;
mod service;
mod shares;
mod socket;
mod status;
mod tls;
mod watch;

pub use answer::{json, json_body, refuse};
pub use body::{BodyLimits, BodyReader, ReadBody, discard};
pub use charged::charged;
pub use codes::ErrorCode;
pub use connection_tenants::ConnectionTenants;
pub use error::ApiError;
pub use hosts::Hosts;
pub use json::{Given, JsonObject, kind_of};
pub use json_text::{push_number, push_number_text, push_text};
pub use peer::{Peer, PeerCertificate};
pub use query::Query;
pub use readiness::Readiness;
pub use server::{HttpServer, HttpServerSettings, HttpServerSignals};
pub use service::Answers;
pub use shares::{AnswerBudget, AnswerLease, AnswerShare};
pub use status::status;
pub use tls::{ClientCertificates, Tls, TlsError, TlsSettings};
pub use watch::Patience;
