//! Delivery ids: what a client hands back to settle a delivery.
//!
//! An id carries what routes it (instance, group, generation, partition, offset, hand-out, boot), to whom it was
//! given (a tag of the principal) and a
//! 96-bit MAC under a key that only this data directory has, in base32hex. It cannot be guessed, is never
//! given twice, and an id of another instance or a wiped directory is told from one that is merely old.

use data_encoding::BASE32HEX_NOPAD;
use hmac::{Hmac, KeyInit, Mac};
use mesh_frame::{Epoch, Offset, PartitionId};
use sha2::Sha256;

const MAC_BYTES: usize = 12;
const VERSION: u8 = 1;

/// What a delivery id says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryRef {
    /// The number of the group.
    pub group: u64,
    /// The group's generation.
    pub generation: u32,
    /// The partition.
    pub partition: PartitionId,
    /// The event's offset.
    pub offset: Offset,
    /// Which hand-out of the event.
    pub serial: u32,
    /// The boot that handed it out.
    pub boot: Epoch,
    /// Its receiver: a tag of the principal under the same key; 0: a caller without a principal.
    pub owner: u32,
}

/// Makes and reads the delivery ids of one instance.
#[derive(Clone)]
pub struct DeliveryIds {
    keyed: Hmac<Sha256>,
    instance: u32,
}

impl std::fmt::Debug for DeliveryIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeliveryIds").field("instance", &self.instance).finish_non_exhaustive()
    }
}

impl DeliveryIds {
    /// Ids under `secret`, marked with a hash of the instance's name.
    pub fn new(secret: &[u8; 32], instance: &str) -> Self {
        let keyed = Hmac::new_from_slice(secret).expect("HMAC takes a key of any length");
        let hash = xxhash_rust::xxh3::xxh3_64(instance.as_bytes());
        Self { keyed, instance: (hash >> 32) as u32 }
    }

    /// The id of a hand-out.
    pub fn make(&self, delivery: &DeliveryRef) -> String {
        let mut bytes = Vec::with_capacity(40);
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.instance.to_be_bytes());
        let parts = [
            delivery.group,
            u64::from(delivery.generation),
            u64::from(delivery.partition.0),
            delivery.offset.0,
            u64::from(delivery.serial),
            delivery.boot.0,
            u64::from(delivery.owner),
        ];
        for part in parts {
            put_varint(&mut bytes, part);
        }
        let mac = self.mac(&bytes);
        bytes.extend_from_slice(&mac);
        let mut text = BASE32HEX_NOPAD.encode(&bytes);
        text.make_ascii_lowercase();
        text
    }

    /// What an id of ours says; `None` when it is not one.
    pub fn read(&self, id: &str) -> Option<DeliveryRef> {
        if id.len() > 128 {
            return None;
        }
        let bytes = BASE32HEX_NOPAD.decode(id.to_ascii_uppercase().as_bytes()).ok()?;
        let (body, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC_BYTES)?)?;
        let mut keyed = self.keyed.clone();
        keyed.update(body);
        keyed.verify_truncated_left(mac).ok()?;
        let rest = body.strip_prefix(&[VERSION])?.strip_prefix(&self.instance.to_be_bytes())?;
        let mut rest = rest;
        let mut next = || take_varint(&mut rest);
        let delivery = DeliveryRef {
            group: next()?,
            generation: u32::try_from(next()?).ok()?,
            partition: PartitionId(u32::try_from(next()?).ok()?),
            offset: Offset(next()?),
            serial: u32::try_from(next()?).ok()?,
            boot: Epoch(next()?),
            owner: u32::try_from(next()?).ok()?,
        };
        rest.is_empty().then_some(delivery)
    }

    /// The tag of a principal: the same for the same name, and nothing that another directory would give.
    pub fn owner_tag(&self, principal: Option<&str>) -> u32 {
        let Some(principal) = principal else { return 0 };
        let mut keyed = self.keyed.clone();
        // No id begins with a zero.
        keyed.update(&[0]);
        keyed.update(principal.as_bytes());
        let tag = keyed.finalize().into_bytes();
        u32::from_be_bytes(*tag.first_chunk().expect("a SHA-256 MAC has 32 bytes")).max(1)
    }

    fn mac(&self, body: &[u8]) -> [u8; MAC_BYTES] {
        let mut keyed = self.keyed.clone();
        keyed.update(body);
        *keyed.finalize().into_bytes().first_chunk().expect("a SHA-256 MAC has 32 bytes")
    }
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f).checked_shl(shift)?;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(offset: u64) -> DeliveryRef {
        DeliveryRef {
            group: 3,
            generation: 1,
            partition: PartitionId(300),
            offset: Offset(offset),
            serial: 2,
            boot: Epoch(u64::MAX),
            owner: u32::MAX,
        }
    }

    #[test]
    fn an_id_says_what_it_was_made_of() {
        let ids = DeliveryIds::new(&[7; 32], "a");
        for offset in [0, 127, 128, 1 << 40, u64::MAX] {
            let id = ids.make(&delivery(offset));
            assert!(id.len() < 100 && id.bytes().all(|b| b.is_ascii_alphanumeric()), "{id}");
            assert_eq!(ids.read(&id), Some(delivery(offset)));
        }
    }

    #[test]
    fn the_tag_of_a_principal_is_its_own_in_one_directory() {
        let ids = DeliveryIds::new(&[7; 32], "a");
        assert_eq!(ids.owner_tag(None), 0);
        assert_eq!(ids.owner_tag(Some("alice")), ids.owner_tag(Some("alice")));
        assert_ne!(ids.owner_tag(Some("alice")), ids.owner_tag(Some("bob")));
        assert_ne!(ids.owner_tag(Some("alice")), DeliveryIds::new(&[8; 32], "a").owner_tag(Some("alice")));
    }

    #[test]
    fn an_id_that_was_changed_or_is_of_another_directory_is_not_read() {
        let ids = DeliveryIds::new(&[7; 32], "a");
        let id = ids.make(&delivery(5));
        for at in 0..id.len() {
            let mut bytes = id.clone().into_bytes();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            let forged = String::from_utf8(bytes).expect("ascii");
            assert!(
                ids.read(&forged)
                    .is_none_or(|read| forged == id || read == delivery(5) && at + 1 == id.len())
            );
        }
        assert_eq!(DeliveryIds::new(&[8; 32], "a").read(&id), None);
        assert_eq!(DeliveryIds::new(&[7; 32], "b").read(&id), None);
        for rubbish in ["", "x", "d-1", "\u{20ac}", &"0".repeat(200)] {
            assert_eq!(ids.read(rubbish), None, "{rubbish}");
        }
    }
}
