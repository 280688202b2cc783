//! Every way in, and the one intake behind them.
//!
//! [`Intake`] is what all protocols share: publish, subscribe, poll, acknowledge. It takes only what the gate
//! has admitted. [`http`] is the traffic port's HTTP.

pub mod http;
pub mod intake;

pub use http::openapi::openapi;
pub use intake::Intake;
