//! What must be unique for ever: the key of delivery ids, the count of boots, the numbers of groups.
//!
//! A delivery id repeats only if instance, group number, generation, partition, offset, hand-out and boot count are
//! all the same and the key of its MAC is too. So none of them may come from a database whose loss would start it
//! again. All three are in Meta, and each stands the loss or the return of an older copy of either database:
//!
//! * The **key** is 32 random bytes at `/em/cluster/key`, made once by put-if-absent; every instance reads back what
//!   won. If Meta is wiped there is a new key, under which no id of before is valid.
//! * The **count of boots** of an instance is at `/em/boots/<instance>`, raised by compare-and-set at every start
//!   before anything is served. The position database keeps the last count it was opened with. The next one is one
//!   more than the higher of the two and is written to both: an older copy of Meta, with the key it had, or of the
//!   positions gives no count twice.
//! * The **number** of a group is 63 random bits, reserved by put-if-absent at `/em/group-numbers/<number>`, which
//!   names the group. Positions are kept by number: those that a wiped or restored Meta knows nothing of never become
//!   those of a new group. Numbers below 2³² were given by releases that counted them; they are never drawn.
//!
//! If Meta and the positions are both replaced by older copies, a count can be given twice under the same key:
//! an operator who restores a whole data directory removes `/em/cluster/key` from it, which voids all ids given before.

use std::collections::HashSet;

use mesh_base::{BackendError, BackendErrorKind};
use mesh_frame::{Epoch, InstanceId};
use mesh_meta::{MetaStore, Page};
use serde::{Deserialize, Serialize};

use crate::positions::RocksDbPositions;

use super::{Created, GroupId, Removed, Replaced, SharedRecord, Unknown, Writer, keys, records::Records};

/// How often a count is raised that others get in before.
const TRIES: usize = 64;
/// How many random numbers are drawn for one group before something must be wrong with the source.
const DRAWS: usize = 16;
/// Numbers below this were counted by older releases.
const LOWEST_NUMBER: u64 = 1 << 32;
/// How many reservations are listed at a time.
const PAGE: usize = 1_000;

/// The key of the MAC of delivery ids. Its text is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct DeliveryIdKey(pub [u8; 32]);

impl std::fmt::Debug for DeliveryIdKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeliveryIdKey(…)")
    }
}

/// As a record: 64 hexadecimal digits.
#[derive(Clone, Serialize, Deserialize)]
struct KeyRecord {
    key: String,
    #[serde(flatten)]
    unknown: Unknown,
}

impl std::fmt::Debug for KeyRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyRecord(…)")
    }
}

impl KeyRecord {
    fn of(key: &DeliveryIdKey) -> Self {
        Self { key: key.0.iter().map(|byte| format!("{byte:02x}")).collect(), unknown: Unknown::default() }
    }

    fn key(&self) -> Option<DeliveryIdKey> {
        let digits = self.key.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut key = [0; 32];
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(DeliveryIdKey(key))
    }
}

impl SharedRecord for KeyRecord {
    type Id = ();
    const NAME: &'static str = "key of delivery ids";

    fn key((): &()) -> String {
        keys::CLUSTER_KEY.to_owned()
    }

    fn read_key(key: &str) -> Option<()> {
        (key == keys::CLUSTER_KEY).then_some(())
    }

    fn unknown_mut(&mut self) -> &mut Unknown {
        &mut self.unknown
    }
}

/// How often an instance has started.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct BootsRecord {
    boots: u64,
    #[serde(flatten)]
    unknown: Unknown,
}

impl SharedRecord for BootsRecord {
    type Id = InstanceId;
    const NAME: &'static str = "count of boots";

    fn key(instance: &InstanceId) -> String {
        keys::single(keys::BOOTS, instance.as_str())
    }

    fn read_key(key: &str) -> Option<InstanceId> {
        InstanceId::new(&keys::read_single(keys::BOOTS, key)?).ok()
    }

    fn unknown_mut(&mut self) -> &mut Unknown {
        &mut self.unknown
    }
}

/// Whose a number is.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct NumberRecord {
    group: GroupId,
    #[serde(flatten)]
    unknown: Unknown,
}

impl SharedRecord for NumberRecord {
    type Id = u64;
    const NAME: &'static str = "group number";

    fn key(number: &u64) -> String {
        keys::group_number(*number)
    }

    fn read_key(key: &str) -> Option<u64> {
        keys::read_group_number(key)
    }

    fn unknown_mut(&mut self) -> &mut Unknown {
        &mut self.unknown
    }
}

/// What an instance is known by in this run.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The key of the MAC of delivery ids.
    pub delivery_id_key: [u8; 32],
    /// The count of this boot: the epoch of an instance that stands alone.
    pub epoch: Epoch,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// What putting the reservations in order changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumbersAligned {
    /// Numbers of groups that were not reserved.
    pub reserved: usize,
    /// Reservations of groups that are gone, or that were never finished.
    pub released: usize,
}

/// The store of what must be unique for ever; cheap to clone.
#[derive(Clone, Debug)]
pub struct IdentityStore {
    key: Records<KeyRecord>,
    boots: Records<BootsRecord>,
    numbers: Records<NumberRecord>,
}

impl IdentityStore {
    /// The identities in `meta`; nothing is read yet.
    pub fn new(meta: &MetaStore, writer: &Writer) -> Self {
        Self {
            key: Records::new(meta.clone(), writer.clone()),
            boots: Records::new(meta.clone(), writer.clone()),
            numbers: Records::new(meta.clone(), writer.clone()),
        }
    }

    /// The key of delivery ids, made when there is none. Durable when it returns, and the same for every instance.
    ///
    /// # Errors
    /// When Meta does not answer, the key there is damaged, or the system gives no random bytes.
    pub async fn delivery_id_key(&self) -> Result<DeliveryIdKey, BackendError> {
        if let Some(there) = self.key.get(&()).await? {
            return there.record.key().ok_or_else(damaged_key);
        }
        let mut fresh = DeliveryIdKey([0; 32]);
        fill(&mut fresh.0)?;
        self.adopt_delivery_id_key(&fresh).await
    }

    /// Makes a new key of delivery ids, whatever there is: every id that was given before is void. Durable when it
    /// returns.
    ///
    /// # Errors
    /// As [`IdentityStore::delivery_id_key`].
    pub async fn renew_delivery_id_key(&self) -> Result<(), BackendError> {
        let mut fresh = DeliveryIdKey([0; 32]);
        fill(&mut fresh.0)?;
        loop {
            let record = KeyRecord::of(&fresh);
            let renewed = match self.key.get(&()).await? {
                None => matches!(self.key.create(&(), record).await?, Created::Written(_)),
                Some(there) => {
                    matches!(self.key.replace(&(), &there, record).await?, Replaced::Replaced(_))
                }
            };
            if renewed {
                return Ok(());
            }
        }
    }

    /// Makes this the key of delivery ids unless there is one. Gives the one that is there then.
    ///
    /// # Errors
    /// As [`IdentityStore::delivery_id_key`].
    pub async fn adopt_delivery_id_key(&self, key: &DeliveryIdKey) -> Result<DeliveryIdKey, BackendError> {
        match self.key.create(&(), KeyRecord::of(key)).await? {
            Created::Written(there) | Created::AlreadyThere(there) => {
                there.record.key().ok_or_else(damaged_key)
            }
        }
    }

    /// Counts this boot of an instance: one more than Meta has and than `seen`, the count that the data directory has
    /// seen. Durable in Meta when it returns; the caller writes it to the data directory before it serves.
    ///
    /// # Errors
    /// When Meta does not answer, or other instances keep changing the count.
    pub async fn count_boot(&self, instance: &InstanceId, seen: Epoch) -> Result<Epoch, BackendError> {
        let after = |there: u64| {
            there.max(seen.0).checked_add(1).ok_or_else(|| refused("the count of boots is used up"))
        };
        for _ in 0..TRIES {
            let won = match self.boots.get(instance).await? {
                None => {
                    let first = BootsRecord { boots: after(0)?, unknown: Unknown::default() };
                    match self.boots.create(instance, first).await? {
                        Created::Written(there) => Some(there),
                        Created::AlreadyThere(_) => None,
                    }
                }
                Some(there) => {
                    let mut next = there.record.clone();
                    next.boots = after(next.boots)?;
                    match self.boots.replace(instance, &there, next).await? {
                        Replaced::Replaced(there) => Some(there),
                        Replaced::Stale(_) => None,
                    }
                }
            };
            if let Some(there) = won {
                return Ok(Epoch(there.record.boots));
            }
        }
        Err(refused("the count of boots is changed by somebody else all the time"))
    }

    /// The identity of the run that begins now: the key, and the count of this boot, which is durable in Meta and in
    /// the position database when it returns. Blocks for a device sync.
    ///
    /// # Errors
    /// When Meta does not answer, or the position database cannot be read or written. A count that was raised is not
    /// given again.
    pub async fn begin(
        &self,
        instance: &InstanceId,
        positions: &RocksDbPositions,
    ) -> Result<Identity, BackendError> {
        let DeliveryIdKey(delivery_id_key) = self.delivery_id_key().await?;
        let epoch = self.count_boot(instance, positions.last_boot()?).await?;
        positions.record_boot(epoch)?;
        Ok(Identity { delivery_id_key, epoch })
    }

    /// A number that no group has, reserved for this one: 63 random bits. Durable when it returns.
    ///
    /// # Errors
    /// When Meta does not answer (the number may be reserved all the same), or the system gives no random bytes.
    pub async fn new_group_number(&self, group: &GroupId) -> Result<u64, BackendError> {
        for _ in 0..DRAWS {
            let mut bytes = [0; 8];
            fill(&mut bytes)?;
            let number = u64::from_be_bytes(bytes) >> 1;
            if number >= LOWEST_NUMBER && self.reserve(number, group).await? {
                return Ok(number);
            }
        }
        Err(refused("random numbers are never free: the source of chance is broken"))
    }

    /// Gives back the number of a group that is removed, once no position of it is left. A number that is reserved for
    /// another group stays.
    ///
    /// # Errors
    /// When Meta does not answer; the number stays reserved until the next [`IdentityStore::align_group_numbers`].
    pub async fn release_group_number(&self, number: u64, group: &GroupId) -> Result<(), BackendError> {
        if let Some(there) = self.numbers.get(&number).await?
            && there.record.group == *group
        {
            // Only this group's owner writes the record: that it is no longer there is as good.
            match self.numbers.remove(&number, &there).await? {
                Removed::Removed(_) | Removed::Stale(_) => {}
            }
        }
        Ok(())
    }

    /// Makes the reservations those of exactly these groups. To be called at boot, while no group is made or removed:
    /// it reserves the numbers that older releases gave, and releases what a death left behind.
    ///
    /// # Errors
    /// When Meta does not answer, or two groups have the same number. What was done stays done.
    pub async fn align_group_numbers(
        &self,
        groups: &[(GroupId, u64)],
    ) -> Result<NumbersAligned, BackendError> {
        let known: HashSet<u64> = groups.iter().map(|(_, number)| *number).collect();
        let mut aligned = NumbersAligned::default();
        let mut reserved = HashSet::new();
        let mut page = Page::first(PAGE);
        loop {
            let found = self.numbers.page(keys::GROUP_NUMBERS, &page).await?;
            for (number, there) in found.records {
                if known.contains(&number) {
                    reserved.insert(number);
                } else {
                    match self.numbers.remove(&number, &there).await? {
                        Removed::Removed(_) => aligned.released += 1,
                        Removed::Stale(_) => {}
                    }
                }
            }
            let Some(after) = found.next else { break };
            page = Page::after(after, PAGE);
        }
        for (group, number) in groups.iter().filter(|(_, number)| !reserved.contains(number)) {
            if !self.reserve(*number, group).await? {
                return Err(refused("two groups have the same number")
                    .with_source(format!("the number {number} of group {group} is another group's")));
            }
            aligned.reserved += 1;
        }
        Ok(aligned)
    }

    /// `false`: it is another group's.
    async fn reserve(&self, number: u64, group: &GroupId) -> Result<bool, BackendError> {
        let record = NumberRecord { group: group.clone(), unknown: Unknown::default() };
        match self.numbers.create(&number, record).await? {
            Created::Written(_) => Ok(true),
            Created::AlreadyThere(_) => Ok(false),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the key is a secret, and numbers must not follow from a seed")]
fn fill(bytes: &mut [u8]) -> Result<(), BackendError> {
    getrandom::fill(bytes).map_err(|error| {
        BackendError::new(BackendErrorKind::Unavailable, "identities", "drawing random bytes")
            .with_source(error.to_string())
    })
}

fn refused(what: &'static str) -> BackendError {
    BackendError::new(BackendErrorKind::Refused, "identities", "making what is unique").with_source(what)
}

fn damaged_key() -> BackendError {
    BackendError::new(BackendErrorKind::Corrupt, "identities", "reading the key of delivery ids")
        .with_source(format!("{} does not hold 64 hexadecimal digits", keys::CLUSTER_KEY))
}
