//! What the child-process tests stand on: a server as a child process, a client for its ports, a recorded
//! history and the one checker that judges it.
//!
//! The tests themselves are in `tests/it`; `docs/testing.md` says how to run and replay them.

mod access;
mod authority;
mod checker;
mod client;
mod delivery;
mod document;
mod event;
mod history;
mod http;
mod issuer;
pub mod modules;
mod ports;
mod process;
mod raw;
mod raw_http2;
mod recorder;
mod secure;
mod seed;
mod server;
mod signer;
mod stream;
mod subscribe;
mod verdict;
mod wait;

pub use access::{Access, token_of};
pub use authority::{Authority, Pair};
pub use checker::{Rule, Violation, check};
pub use client::{Client, TOKEN};
pub use delivery::Delivery;
pub use document::{Operation, document, operations};
pub use event::{event, id_of, keyed};
pub use history::{AckAnswer, DeadRow, Fact, History, Moment, SeekTo, Verb};
pub use http::{Http, Reply};
pub use issuer::{KeyHost, TokenKey};
pub use ports::free_port;
pub use process::{Output, binary, run_to_end};
pub use raw::Raw;
pub use raw_http2::{Heard, RawHttp2};
pub use recorder::{RecordedStream, Recorder, sized};
pub use secure::{SecureClient, SecureConnection, Speaks, read_body_until};
pub use seed::{Seed, rounds};
pub use server::Server;
pub use signer::{Signer, ToSign};
pub use stream::EventStream;
pub use subscribe::Subscribe;
pub use wait::{pause, until, within};
