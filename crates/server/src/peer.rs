//! Who is at the other end of a connection.

use std::{net::SocketAddr, sync::Arc};

use crate::connection_tenants::ConnectionTenants;

/// What a client certificate that was verified says of its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The common name of the subject, if it has one.
    pub common_name: Option<String>,
    /// The alternative names, each as `DNS:…`, `URI:…`, `EMAIL:…` or `IP:…`.
    pub alternative: Vec<String>,
}

/// Who is at the other end of a connection; clones are of the same connection.
#[derive(Clone, Debug)]
pub struct Peer(Arc<AtOtherEnd>);

#[derive(Debug)]
struct AtOtherEnd {
    remote: SocketAddr,
    certificate: Option<PeerCertificate>,
    tenants: ConnectionTenants,
}

impl Peer {
    pub(crate) fn new(remote: SocketAddr, certificate: Option<PeerCertificate>) -> Self {
        Self(Arc::new(AtOtherEnd { remote, certificate, tenants: ConnectionTenants::default() }))
    }

    /// Its address.
    pub fn remote(&self) -> SocketAddr {
        self.0.remote
    }

    /// The certificate it showed.
    pub fn certificate(&self) -> Option<&PeerCertificate> {
        self.0.certificate.as_ref()
    }

    /// The tenants that the connection counts for.
    pub fn tenants(&self) -> &ConnectionTenants {
        &self.0.tenants
    }
}
