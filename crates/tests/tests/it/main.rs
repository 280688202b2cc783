//! The suites that drive the real binary from outside; `docs/testing.md` says how to run and replay them.

mod acks;
mod admin;
mod config;
mod corruption;
mod crash;
mod damage;
mod dedup;
mod disk_full;
mod documents;
mod gate_quota;
mod gate_rights;
mod limits;
mod openapi;
mod poll;
mod preserve;
mod publish;
mod recovery;
mod settings;
mod stop;
mod streams;
mod subscribe;
