//! Configuration, wiring, main.
//!
//! The only crate that knows every other one. It branches on settings while it builds, never on data.

pub mod boot;
pub mod cli;
pub mod config;
pub mod logging;
