//! Bytes on their way to a socket with the share of the budget they take, until they are gone.

use bytes::Bytes;

struct Charged<L> {
    text: Vec<u8>,
    _lease: L,
}

impl<L> AsRef<[u8]> for Charged<L> {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// The text as bytes that hold the lease.
pub fn charged(text: Vec<u8>, lease: impl Send + 'static) -> Bytes {
    Bytes::from_owner(Charged { text, _lease: lease })
}
