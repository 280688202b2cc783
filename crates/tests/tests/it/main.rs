//! The suites that drive the real binary from outside; `docs/testing.md` says how to run and replay them.

mod acks;
mod admin;
mod bench;
mod codes;
mod config;
mod corruption;
mod crash;
mod damage;
mod dead_letters;
mod dedup;
mod disk_full;
mod documents;
mod kills;
mod limits;
mod metrics;
mod openapi;
mod peers;
mod poll;
mod preserve;
mod publish;
mod recovery;
mod settings;
mod stop;
mod streams;
mod subscribe;
mod topics;
