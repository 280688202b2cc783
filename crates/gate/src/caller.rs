//! Who is calling: made once at the edge from what a request presents, never changed afterwards.

use std::{fmt, net::SocketAddr, sync::Arc};

use mesh_frame::TenantId;

/// The protocol a request came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP on the traffic port.
    Http,
    /// A WebSocket.
    WebSocket,
    /// The TCP protocol.
    Tcp,
    /// The agents' gateway.
    A2a,
    /// HTTP on the administration port.
    Admin,
}

/// What a request presents to be known by.
#[derive(Clone, Copy, Debug)]
pub struct Presented<'a> {
    /// The value of the `Authorization` header or of its like. An edge that got several refuses the request itself.
    pub authorization: Option<&'a [u8]>,
    /// Where it came from, where that is known.
    pub remote: Option<SocketAddr>,
    /// How it came.
    pub protocol: Protocol,
}

/// The name a credential gives its holder. Clones share the text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    /// The principal of that name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Who is calling. Tenant and principal come from the credential, never from an event or a body. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Caller {
    tenant: TenantId,
    principal: Option<Principal>,
    remote: Option<SocketAddr>,
    protocol: Protocol,
}

impl Caller {
    pub(crate) fn new(tenant: TenantId, principal: Option<Principal>, presented: &Presented<'_>) -> Self {
        Self { tenant, principal, remote: presented.remote, protocol: presented.protocol }
    }

    /// The tenant it belongs to.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Its name; `None` without a credential.
    pub fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    /// Where it calls from, where that is known.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }

    /// How it calls.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }
}
