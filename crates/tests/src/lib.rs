//! What the child-process tests stand on: a server as a child process, a client for its ports, a recorded
//! history and the one checker that judges it.
//!
//! The tests themselves are in `tests/it`; `docs/testing.md` says how to run and replay them.

mod access;
mod checker;
mod client;
mod delivery;
mod event;
mod history;
mod http;
mod ports;
mod process;
mod raw;
mod recorder;
mod seed;
mod server;
mod subscribe;
mod wait;

pub use access::{Access, token_of};
pub use checker::{Rule, Violation, check};
pub use client::Client;
pub use delivery::Delivery;
pub use event::{event, id_of, keyed};
pub use history::{AckAnswer, DeadRow, Fact, History, Moment};
pub use http::{Http, Reply};
pub use ports::free_port;
pub use process::{Output, binary, run_to_end};
pub use raw::Raw;
pub use recorder::{Recorder, sized};
pub use seed::{Seed, rounds};
pub use server::{Server, TOKEN};
pub use subscribe::Subscribe;
pub use wait::{pause, until, within};
