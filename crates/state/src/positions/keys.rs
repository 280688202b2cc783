//! The key layout of the position database.
//!
//! `cursors`: `u64 group, u32 generation, u32 partition` → cursor. `ledger`: the same and `u64 offset` → row.
//! Numbers are big-endian, so that the rows of a lane are one range in the order of their offsets.

use mesh_frame::{Offset, PartitionId};

/// What messages call it; `decisions` of the failure matrix quote it.
pub(super) const NAME: &str = "offset store";
pub(crate) const CURSORS: &str = "cursors";
pub(crate) const LEDGER: &str = "ledger";

/// In `default`.
pub(crate) const FORMAT: &[u8] = b"format";
pub(crate) const BOOTS: &[u8] = b"boots";
/// Only in format 1: they are in Meta since.
pub(crate) const SECRET: &[u8] = b"delivery_id_key";
pub(crate) const NEXT_GROUP: &[u8] = b"next_group";
pub(crate) const PROBE: &[u8] = b"probe";

/// A lane: one group on one partition, in one generation of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneKey {
    /// The group's number.
    pub group: u64,
    /// Raised whenever the group's positions start anew.
    pub generation: u32,
    /// The partition.
    pub partition: PartitionId,
}

impl LaneKey {
    pub(crate) fn bytes(self) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.group.to_be_bytes());
        key[8..12].copy_from_slice(&self.generation.to_be_bytes());
        key[12..].copy_from_slice(&self.partition.0.to_be_bytes());
        key
    }

    pub(crate) fn row(self, offset: Offset) -> [u8; 24] {
        let mut key = [0; 24];
        key[..16].copy_from_slice(&self.bytes());
        key[16..].copy_from_slice(&offset.0.to_be_bytes());
        key
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            group: u64::from_be_bytes(*bytes.first_chunk()?),
            generation: u32::from_be_bytes(*bytes.get(8..)?.first_chunk()?),
            partition: PartitionId(u32::from_be_bytes(*bytes.get(12..)?.first_chunk()?)),
        })
    }

    pub(crate) fn read_row(bytes: &[u8]) -> Option<(Self, Offset)> {
        let lane = Self::read(bytes)?;
        let offset = u64::from_be_bytes(bytes.get(16..)?.try_into().ok()?);
        Some((lane, Offset(offset)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back_and_sort_by_offset() {
        let lane = LaneKey { group: 7, generation: 2, partition: PartitionId(3) };
        assert_eq!(LaneKey::read_row(&lane.row(Offset(300))), Some((lane, Offset(300))));
        assert!(lane.row(Offset(255)) < lane.row(Offset(256)));
        assert_eq!(LaneKey::read(b"short"), None);
        assert_eq!(LaneKey::read_row(&lane.bytes()), None);
    }
}
