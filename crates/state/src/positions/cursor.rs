//! How far a group is on a partition, and the bytes that say so.

use mesh_frame::{Incarnation, Offset};

/// How far a group is on a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Everything below is done, or has a row in the ledger. Never "the last one done".
    pub next_to_read: Offset,
    /// The log the offset belongs to.
    pub incarnation: Incarnation,
}

impl Cursor {
    pub(super) fn encode(self) -> [u8; 17] {
        let mut out = [1; 17];
        out[1..9].copy_from_slice(&self.next_to_read.0.to_be_bytes());
        out[9..].copy_from_slice(&self.incarnation.0.to_be_bytes());
        out
    }

    /// `None` when the bytes are damaged or of a newer version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 17] = bytes.try_into().ok()?;
        (bytes[0] == 1).then(|| Self {
            next_to_read: Offset(u64::from_be_bytes(*bytes[1..].first_chunk().expect("17 bytes"))),
            incarnation: Incarnation(u64::from_be_bytes(*bytes[9..].first_chunk().expect("17 bytes"))),
        })
    }
}
