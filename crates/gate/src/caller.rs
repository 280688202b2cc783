//! Who is calling: made once at the edge from what a request presents, never changed afterwards.

use std::{fmt, net::SocketAddr, sync::Arc};

use mesh_base::UnixMillis;
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

impl Protocol {
    /// The name in the audit log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::WebSocket => "websocket",
            Self::Tcp => "tcp",
            Self::A2a => "a2a",
            Self::Admin => "admin",
        }
    }
}

/// What a client certificate that the TLS layer verified says of its holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CertificateNames<'a> {
    /// The common name of the subject, if it has one.
    pub common_name: Option<&'a str>,
    /// The alternative names, each as `DNS:…`, `URI:…`, `EMAIL:…` or `IP:…`.
    pub alternative: &'a [String],
}

/// What a request presents to be known by.
#[derive(Clone, Copy, Debug)]
pub struct Presented<'a> {
    /// The value of the `Authorization` header or of its like. An edge that got several refuses the request itself.
    pub authorization: Option<&'a [u8]>,
    /// The names of the client certificate of the connection, where it has one that was verified.
    pub certificate: Option<CertificateNames<'a>>,
    /// The `traceparent` of the request, as it came.
    pub trace: Option<&'a str>,
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

/// What kind of credential a caller is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CredentialKind {
    /// None.
    None,
    /// A token of the token file.
    Token,
    /// A signed token of an issuer (JWT).
    Jwt,
    /// A client certificate.
    Certificate,
    /// A signature over the request.
    Signature,
    /// A ticket that stands for another credential for one stream.
    Ticket,
}

impl CredentialKind {
    /// The name in the audit log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Token => "token",
            Self::Jwt => "jwt",
            Self::Certificate => "certificate",
            Self::Signature => "signature",
            Self::Ticket => "ticket",
        }
    }
}

/// Which entry of a file a credential is. It tells nothing of the credential itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryId(pub(crate) [u8; 32]);

impl fmt::Debug for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EntryId")
    }
}

/// What a credential says of its holder. Made by filters, shared by every request that presents the credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The tenant.
    pub tenant: TenantId,
    /// The name; `None` without a credential.
    pub principal: Option<Principal>,
    /// Roles, as rules name them.
    pub roles: Vec<String>,
    /// What kind of credential it was.
    pub credential: CredentialKind,
    /// When the credential ends; `None`: with its file or certificate.
    pub expires_at: Option<UnixMillis>,
    /// Which entry of a file the credential is; `None`: it does not stand in a file.
    pub entry: Option<EntryId>,
}

impl Identity {
    /// A caller of this tenant without a principal.
    pub fn anonymous(tenant: TenantId) -> Self {
        Self {
            tenant,
            principal: None,
            roles: Vec::new(),
            credential: CredentialKind::None,
            expires_at: None,
            entry: None,
        }
    }

    /// Whether both are of the same holder with the same rights, by whatever credential.
    pub(crate) fn is_holder_of(&self, other: &Self) -> bool {
        self.tenant == other.tenant && self.principal == other.principal && self.roles == other.roles
    }
}

/// Who is calling. Tenant and principal come from the credential, never from an event or a body. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Caller {
    identity: Arc<Identity>,
    trace: Option<Arc<str>>,
    remote: Option<SocketAddr>,
    protocol: Protocol,
    /// The filter that would have denied, had the gate been closed.
    failed_open: Option<&'static str>,
}

impl Caller {
    pub(crate) fn new(
        identity: Arc<Identity>,
        presented: &Presented<'_>,
        failed_open: Option<&'static str>,
    ) -> Self {
        Self {
            identity,
            trace: presented.trace.map(Into::into),
            remote: presented.remote,
            protocol: presented.protocol,
            failed_open,
        }
    }

    /// The same call, with what a further filter found out about the caller.
    pub(crate) fn known_as(&self, identity: Arc<Identity>) -> Self {
        Self { identity, ..self.clone() }
    }

    /// The same call, let through although `filter` would have denied it.
    pub(crate) fn although(&self, filter: &'static str) -> Self {
        Self { failed_open: self.failed_open.or(Some(filter)), ..self.clone() }
    }

    /// What its credential says.
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// The tenant it belongs to; also what its quota goes by.
    pub fn tenant(&self) -> &TenantId {
        &self.identity.tenant
    }

    /// Its name; `None` without a credential.
    pub fn principal(&self) -> Option<&Principal> {
        self.identity.principal.as_ref()
    }

    /// Its roles.
    pub fn roles(&self) -> &[String] {
        &self.identity.roles
    }

    /// The `traceparent` of the request.
    pub fn trace(&self) -> Option<&str> {
        self.trace.as_deref()
    }

    /// Where it calls from, where that is known.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }

    /// How it calls.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The filter that would have denied it, had the gate been closed.
    pub fn failed_open(&self) -> Option<&'static str> {
        self.failed_open
    }
}
