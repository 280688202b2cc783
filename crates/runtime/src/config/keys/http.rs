//! Keys of the traffic port.

use crate::config::{
    declared::{Fallback, Group, keys},
    kind::{AdvertisedAddress, Bytes, Count, Host, Names, Port, Span, is_host_name},
};

/// This group.
pub const GROUP: Group = Group {
    title: "HTTP traffic",
    about: "The port that clients publish to and receive from, and its limits.",
};

const SHORTEST_MS: u64 = 100;
const HOUR_MS: u64 = 3_600_000;
const MIB: u64 = 1 << 20;

keys! {
    HOST: Host = Host,
    "eventmesh.http.host", Fallback::PerMode { standalone: "127.0.0.1", server: "0.0.0.0" },
    "The address that the traffic port listens on.";

    PORT: Port = Port,
    "eventmesh.http.port", Fallback::Value("10105"),
    "The traffic port.";

    ADVERTISED_ADDR: AdvertisedAddress = AdvertisedAddress,
    "eventmesh.http.advertisedAddr", Fallback::Unset("`instanceUrl` stays empty"),
    "Where clients reach this instance; answers to subscribe carry it as `instanceUrl`.";

    HOSTS: Names = Names { of: "a host name like mesh.example.org", is_one: is_host_name },
    "eventmesh.http.hosts", Fallback::Unset("localhost, addresses and the advertised name"),
    "What else this server is called, with commas between the names. Where a port listens on loopback, a request for another \
     name (`Host`, `:authority`) is answered 403: a page in a browser could let its own name point here.";

    MAX_BODY: Bytes = Bytes { min: 1 << 10, max: 1 << 30 },
    "eventmesh.http.maxBodyBytes", Fallback::Value("12MiB"),
    "The largest request body; a larger one is answered 413. Data of 8 MiB in Base64 need 12 MiB.";

    HEADER_TIMEOUT: Span = Span { min_ms: SHORTEST_MS, max_ms: HOUR_MS, zero_means: None },
    "eventmesh.http.headerTimeout", Fallback::Value("10s"),
    "How long a client may take to send the head of a request.";

    BODY_TIMEOUT: Span = Span { min_ms: SHORTEST_MS, max_ms: HOUR_MS, zero_means: None },
    "eventmesh.http.bodyTimeout", Fallback::Value("30s"),
    "How long a client may take to send the body of a request.";

    IDLE_TIMEOUT: Span = Span { min_ms: SHORTEST_MS, max_ms: 24 * HOUR_MS, zero_means: None },
    "eventmesh.http.idleTimeout", Fallback::Value("75s"),
    "How long a connection without a request stays open.";

    MAX_CONNECTIONS: Count = Count { min: 1, max: 1_000_000 },
    "eventmesh.http.maxConnections", Fallback::Value("10000"),
    "How many connections may be open at a time.";

    MAX_IN_FLIGHT_BODIES: Bytes = Bytes { min: MIB, max: 1 << 40 },
    "eventmesh.http.maxInFlightBodyBytes", Fallback::Value("256MiB"),
    "Memory for all request bodies that are being received or stored; beyond it a request is answered 503.";

    MAX_IN_FLIGHT_POLLS: Bytes = Bytes { min: MIB, max: 1 << 40 },
    "eventmesh.http.maxInFlightPollBytes", Fallback::Value("256MiB"),
    "Memory for all poll answers that are being written, and for what streams write; beyond it a poll is answered 503 and \
     a stream waits. At least `eventmesh.http.maxBodyBytes`; an event that takes more all the same is sent alone.";
}
