//! What the bodies of each tenant hold of the memory that all bodies may: one tenant, however many bodies it begins
//! and does not end, leaves room for another.
//!
//! A tenant with bodies under way has at most [`SHARE`] times as much as is left. Its first body is let through
//! whatever its size, and what fits into a small buffer is not counted.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use mesh_base::Lease;
use mesh_frame::TenantId;
use parking_lot::Mutex;

/// One tenant alone has four fifths of the memory, two have four ninths each.
const SHARE: u64 = 4;
/// A first piece of this size or less is only counted with all.
pub(crate) const SMALL: u64 = 16 << 10;
/// How many tenants are listed before those without bodies are struck off.
const MANY: usize = 256;

/// The tenants with bodies under way; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyShares(Arc<Mutex<HashMap<TenantId, Arc<AtomicU64>>>>);

/// What one body holds of its tenant's share.
#[derive(Debug)]
pub(crate) struct BodyShare {
    tenant: Arc<AtomicU64>,
    held: Vec<Lease>,
}

impl BodyShares {
    /// The share of a body that begins now.
    pub(crate) fn body_of(&self, tenant: &TenantId) -> BodyShare {
        let mut tenants = self.0.lock();
        if tenants.len() >= MANY && !tenants.contains_key(tenant) {
            tenants.retain(|_, used| Arc::strong_count(used) > 1);
        }
        let tenant = tenants.entry(tenant.clone()).or_default().clone();
        BodyShare { tenant, held: Vec::new() }
    }
}

impl BodyShare {
    /// Takes more, of which `left` is free for all; `false`: the tenant has as much as it may.
    pub(crate) fn take(&mut self, bytes: u64, left: u64) -> bool {
        let own: u64 = self.held.iter().map(Lease::units).sum();
        let used = self.tenant.load(Ordering::Acquire);
        let is_alone = used <= own;
        if !is_alone && used.saturating_add(bytes) > SHARE.saturating_mul(left.saturating_sub(bytes)) {
            return false;
        }
        self.held.extend(Lease::take(&self.tenant, bytes, u64::MAX));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).expect("legal")
    }

    #[test]
    fn a_tenant_leaves_room_for_another_and_gets_its_units_back() {
        let shares = BodyShares::default();
        let (mut left, mut hog) = (1_000, Vec::new());
        loop {
            let mut body = shares.body_of(&tenant("hog"));
            if !body.take(100, left) {
                break;
            }
            left -= 100;
            hog.push(body);
        }
        assert_eq!((hog.len(), left), (8, 200));
        assert!(shares.body_of(&tenant("quiet")).take(150, left), "the first of a tenant");
        drop(hog);
        assert_eq!(shares.body_of(&tenant("hog")).tenant.load(Ordering::Relaxed), 0);
        let mut large = shares.body_of(&tenant("one"));
        assert!(large.take(900, 1_000) && large.take(50, 100), "one body alone may be as large as it likes");
    }

    #[test]
    fn tenants_without_bodies_are_struck_off() {
        let shares = BodyShares::default();
        let held = shares.body_of(&tenant("held"));
        for n in 0..3 * MANY {
            drop(shares.body_of(&tenant(&n.to_string())));
        }
        assert!(shares.0.lock().len() <= MANY + 1);
        assert!(shares.0.lock().contains_key(&tenant("held")));
        drop(held);
    }
}
