//! Keys of the admin port.

use crate::config::{
    declared::{Fallback, Group, keys},
    kind::{File, Host, Port, Token},
};

/// This group.
pub const GROUP: Group = Group { title: "Administration", about: "The port for operators." };

keys! {
    HOST: Host = Host,
    "eventmesh.admin.host", Fallback::PerMode { standalone: "127.0.0.1", server: "0.0.0.0" },
    "The address that the admin port listens on.";

    PORT: Port = Port,
    "eventmesh.admin.port", Fallback::Value("10106"),
    "The admin port.";

    TOKEN: Token = Token,
    "eventmesh.admin.token", Fallback::Unset("`standalone` on loopback makes one, `admin.token` in the data directory; else the port is locked"),
    "The bearer token of the admin port. A blank one stops the start, and so does a placeholder like `${TOKEN}` \
     that nobody filled in. Its holder may do everything.", secret;

    TOKEN_FILE: File = File,
    "eventmesh.admin.security.token.file", Fallback::Unset("one token for everything"),
    "More admin tokens: TOML of `[[token]]` with `name`, `value` or `sha256`, and `role`: a `viewer` reads, an \
     `operator` also moves deliveries and positions, an `admin` also removes topics and groups.", never_blank;

    METRICS_TOKEN: Token = Token,
    "eventmesh.admin.security.metrics.token", Fallback::Unset("metrics need a viewer's token"),
    "A bearer token that opens metrics and nothing else.", secret;
}
