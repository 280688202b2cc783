//! The traffic port in process, over a real socket, with the memory log.

#![allow(missing_docs, reason = "tests")]

mod bad_input;
mod client;
mod gate;
mod limits;
mod mesh;
mod round;
mod sse;
mod streams;
mod verbs;
