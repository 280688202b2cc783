//! The manager: buckets and leases by tenant.
//!
//! A tenant that nothing is limited for costs no memory. One that is limited has an entry while it uses something:
//! entries with full buckets and without leases are dropped first, one with a debt never, since a new entry would
//! be a new bucket. There are at most [`ENTRIES`]; tenants that come while all of them are in use share one entry
//! in each shard, with one set of buckets, until a place is free. So made-up tenants cost neither memory nor
//! those who were there before.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use mesh_base::{Clock, Lease};
use mesh_frame::TenantId;
use parking_lot::Mutex;

use super::{
    TenantLimits, TenantLimitsFile,
    bucket::{Bucket, Ticks},
};
use crate::filter::{LoadError, Reload};

/// How many tenants have buckets of their own at one time.
const ENTRIES: usize = 65_536;
const SHARDS: usize = 16;
/// What a shard may grow to before it is looked at for idle entries.
const SMALL: usize = 64;
/// How long a look for idle entries holds, where it found too few.
const SWEEP_AGAIN: Duration = Duration::from_millis(100);
/// Nobody knows when a connection ends.
const RETRY_CONNECTION: Duration = Duration::from_secs(1);
/// What is limited to nothing is asked for again when the limits may be others.
const RETRY_NEVER: Duration = Duration::from_secs(60);

/// What a request takes from the rates of its tenant: the events and the bytes that it stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Events.
    pub events: u64,
    /// Bytes of the request.
    pub bytes: u64,
}

/// A limit was reached. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// Which: `connections`, `eventsPerSecond`, `bytesPerSecond`.
    pub what: &'static str,
    /// When trying again can help: for rates, when it succeeds if nobody else takes anything.
    pub retry_after: Duration,
}

/// Keeps what tenants use within what they may. Its memory is bounded whatever number of tenants show up.
#[derive(Debug)]
pub struct TenantQuotaManager {
    general: TenantLimits,
    own: Option<TenantLimitsFile>,
    clock: Clock,
    hasher: RandomState,
    shards: Vec<Mutex<Shard>>,
    entries_a_shard: usize,
}

#[derive(Debug, Default)]
struct Shard {
    usage: HashMap<TenantId, Usage>,
    /// Of the tenants that have no place.
    shared: Usage,
    sweep_at: usize,
    next_sweep: Duration,
}

/// What a tenant uses.
#[derive(Debug, Default)]
struct Usage {
    events: Bucket,
    bytes: Bucket,
    connections: Arc<AtomicU64>,
}

impl TenantQuotaManager {
    /// `general` holds for every tenant that `own` has nothing about.
    pub fn new(general: TenantLimits, own: Option<TenantLimitsFile>, clock: Clock) -> Self {
        Self::with_entries(general, own, clock, ENTRIES)
    }

    fn with_entries(
        general: TenantLimits,
        own: Option<TenantLimitsFile>,
        clock: Clock,
        entries: usize,
    ) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let hasher = RandomState::new();
        Self { general, own, clock, hasher, shards, entries_a_shard: entries / SHARDS }
    }

    /// What a tenant may use.
    pub fn limits(&self, tenant: &TenantId) -> TenantLimits {
        self.own.as_ref().map_or(self.general, |own| own.of(tenant, &self.general))
    }

    /// Takes what a publish costs, all of it or nothing.
    ///
    /// # Errors
    /// The limit that was reached; of two the one that takes longer.
    pub fn publish(&self, tenant: &TenantId, cost: Cost) -> Result<(), Exceeded> {
        let limits = self.limits(tenant);
        let price = |what, tokens, rate: Option<u64>| match rate {
            None => Ok(None),
            Some(rate) => {
                let never = Exceeded { what, retry_after: RETRY_NEVER };
                Ticks::of(tokens, rate).map(Some).ok_or(never)
            }
        };
        let events = price("eventsPerSecond", cost.events, limits.events_per_second)?;
        let bytes = price("bytesPerSecond", cost.bytes, limits.bytes_per_second)?;
        if events.is_none() && bytes.is_none() {
            return Ok(());
        }
        self.with_usage(tenant, |usage, now| {
            let refused = |what, bucket: Bucket, price: Option<Ticks>| {
                let retry_after = bucket.check(now, price?, Ticks::SECOND).err()?;
                Some(Exceeded { what, retry_after })
            };
            let refused = [
                refused("eventsPerSecond", usage.events, events),
                refused("bytesPerSecond", usage.bytes, bytes),
            ];
            if let Some(longest) = refused.into_iter().flatten().max_by_key(|refused| refused.retry_after) {
                return Err(longest);
            }
            if let Some(events) = events {
                usage.events.take(now, events);
            }
            if let Some(bytes) = bytes {
                usage.bytes.take(now, bytes);
            }
            Ok(())
        })
    }

    /// One more connection of a tenant, until the lease is dropped. `None`: connections are not limited.
    ///
    /// # Errors
    /// The limit that was reached.
    pub fn connection(&self, tenant: &TenantId) -> Result<Option<Lease>, Exceeded> {
        let Some(limit) = self.limits(tenant).connections else { return Ok(None) };
        let lease = self.with_usage(tenant, |usage, _| Lease::take(&usage.connections, 1, limit));
        lease.map(Some).ok_or(Exceeded { what: "connections", retry_after: RETRY_CONNECTION })
    }

    /// How many tenants have an entry of their own.
    pub fn entries(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().usage.len()).sum()
    }

    /// Reads the file again if it changed. Blocks.
    ///
    /// # Errors
    /// When what is new cannot be used; what was there holds.
    pub fn reload(&self) -> Result<Reload, LoadError> {
        self.own.as_ref().map_or(Ok(Reload::Unchanged), TenantLimitsFile::reload)
    }

    /// Does something to what a tenant uses, alone.
    fn with_usage<T>(&self, tenant: &TenantId, act: impl FnOnce(&mut Usage, Ticks) -> T) -> T {
        let shard = usize::try_from(self.hasher.hash_one(tenant) % SHARDS as u64).unwrap_or_default();
        let mut shard = self.shards[shard].lock();
        // Read under the lock: nobody sees an earlier time than who was here before.
        let now = self.clock.elapsed();
        act(shard.usage_of(tenant, now, self.entries_a_shard), now.into())
    }
}

impl Shard {
    fn usage_of(&mut self, tenant: &TenantId, now: Duration, entries: usize) -> &mut Usage {
        if !self.usage.contains_key(tenant) {
            self.sweep(now, entries);
            if self.usage.len() < entries {
                self.usage.insert(tenant.clone(), Usage::default());
            }
        }
        self.usage.get_mut(tenant).unwrap_or(&mut self.shared)
    }

    /// Drops idle entries, each time there are twice as many as were left before.
    fn sweep(&mut self, now: Duration, entries: usize) {
        if self.usage.len() < self.sweep_at.max(SMALL).min(entries) || now < self.next_sweep {
            return;
        }
        self.usage.retain(|_, usage| !usage.is_idle(now.into()));
        self.sweep_at = self.usage.len() * 2;
        self.next_sweep = if self.usage.len() < entries { now } else { now + SWEEP_AGAIN };
    }
}

impl Usage {
    fn is_idle(&self, now: Ticks) -> bool {
        self.events.is_full(now) && self.bytes.is_full(now) && self.connections.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
mod tests;
