//! Keys of the admin port.

use super::{Fallback, Group, keys};
use crate::config::kind::{Host, Port, Token};

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
    "eventmesh.admin.token", Fallback::Unset("everything but health and readiness is locked"),
    "The bearer token of the admin port. A blank one stops the start, and so does a placeholder like `${TOKEN}` \
     that nobody filled in.", secret;
}
