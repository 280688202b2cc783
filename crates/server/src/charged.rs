//! Bytes on their way to a socket with the share of the budget they take, until they are gone.

use bytes::Bytes;
use mesh_base::Lease;

struct Charged {
    text: Vec<u8>,
    _lease: Lease,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// The text as bytes that hold the lease.
pub fn charged(text: Vec<u8>, lease: Lease) -> Bytes {
    Bytes::from_owner(Charged { text, _lease: lease })
}
