//! What an operator asks the process: health, readiness, metrics, who is subscribed, how far everybody is,
//! what died.
//!
//! `/admin/health` and `/admin/ready` are always open, from before recovery. Everything else needs the admin
//! token; without a configured one it is locked. It works through delivery's handles and never touches the
//! log or the stores.

mod guard;
mod health;
mod metrics;
mod query;
mod routes;
mod views;

pub use guard::AdminToken;
pub use health::{Health, HealthReport};
pub use routes::{ROUTES, Route, router};
pub use views::AdminState;
