//! What an operator asks the process and tells it: health, readiness, metrics, who is subscribed, how far
//! groups are, dead letters; topics and groups made, moved and removed; dead letters replayed or discarded.
//!
//! `/admin/health` and `/admin/ready` are always open, from before recovery. Everything else needs a token with the
//! role of the route; without a configured one it is locked. It works through delivery's handles and never touches the
//! log or the stores.

mod asked;
mod body;
mod errors;
mod groups;
mod guard;
mod health;
mod json;
mod letters;
mod metrics;
mod openapi;
mod rate_limits;
mod routes;
mod topic_rates;
mod topic_settings;
mod topics;
mod views;

pub use guard::{AdminAccess, AdminRole, AdminTokens, Needs};
pub use health::{Health, HealthReport};
pub use openapi::openapi;

pub use routes::{ROUTES, Route, router};
pub use topic_rates::RateLimits;
pub use views::{AdminState, PublishCounters};
