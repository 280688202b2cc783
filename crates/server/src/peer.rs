//! Who is at the other end of a connection.

use std::{net::SocketAddr, sync::Arc};

use crate::{connection_tenants::ConnectionTenants, watch::Watch};

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
    watch: Arc<Watch>,
}

impl Peer {
    pub(crate) fn new(remote: SocketAddr, certificate: Option<PeerCertificate>, watch: Arc<Watch>) -> Self {
        Self(Arc::new(AtOtherEnd { remote, certificate, tenants: ConnectionTenants::default(), watch }))
    }

    /// A request of the connection was authenticated: it may stay for the next one. Until then a connection has the time
    /// of one head, and gives way to new ones when there are too many.
    pub fn make_known(&self) {
        self.0.watch.make_known();
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
