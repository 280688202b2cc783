//! The client against a real server process, and against scripted answers that no healthy server gives.

mod scripted;
mod server;

mod documents;
mod lossy;
mod secure;
mod whole;
