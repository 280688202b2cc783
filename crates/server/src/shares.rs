//! What each tenant holds of a memory that all share, for request bodies or for answers: one tenant, however many it
//! begins and does not end, leaves room for another.
//!
//! A tenant that holds something may have at most [`SHARE`] times as much as is left. Its first body or answer is let
//! through whatever its size. Of bodies, what fits into a small buffer is not counted.

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

/// The tenants that hold something; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TenantShares(Arc<Mutex<HashMap<TenantId, Arc<AtomicU64>>>>);

/// What one body holds of its tenant's share.
#[derive(Debug)]
pub(crate) struct BodyShare {
    tenant: Arc<AtomicU64>,
    held: Vec<Lease>,
}

impl TenantShares {
    /// What a tenant holds.
    fn of(&self, tenant: &TenantId) -> Arc<AtomicU64> {
        let mut tenants = self.0.lock();
        if tenants.len() >= MANY && !tenants.contains_key(tenant) {
            tenants.retain(|_, used| Arc::strong_count(used) > 1);
        }
        tenants.entry(tenant.clone()).or_default().clone()
    }

    /// The share of a body that begins now.
    pub(crate) fn body_of(&self, tenant: &TenantId) -> BodyShare {
        BodyShare { tenant: self.of(tenant), held: Vec::new() }
    }
}

/// The memory of all answers on their way to their clients; clones share it.
#[derive(Clone, Debug)]
pub struct AnswerBudget {
    taken: Arc<AtomicU64>,
    most: u64,
    tenants: TenantShares,
}

/// What one tenant may take of an [`AnswerBudget`].
#[derive(Clone, Debug)]
pub struct AnswerShare {
    budget: AnswerBudget,
    tenant: Arc<AtomicU64>,
}

/// An answer's part of the budget, given back when it is dropped.
#[derive(Debug)]
#[must_use = "dropping the lease gives its bytes back at once"]
pub struct AnswerLease {
    _of_all: Lease,
    _of_tenant: Option<Lease>,
}

impl AnswerBudget {
    /// So many bytes for all.
    pub fn new(most: u64) -> Self {
        Self { taken: Arc::default(), most, tenants: TenantShares::default() }
    }

    /// The share of a tenant.
    pub fn of(&self, tenant: &TenantId) -> AnswerShare {
        AnswerShare { budget: self.clone(), tenant: self.tenants.of(tenant) }
    }
}

impl AnswerShare {
    /// Takes room for an answer; `None`: there is none, or the tenant has as much as it may. An answer that is larger than the
    /// whole budget takes all of it: such an event is delivered too, when nothing else is being sent.
    pub fn take(&self, bytes: usize) -> Option<AnswerLease> {
        let most = self.budget.most;
        let bytes = (bytes as u64).min(most);
        let left = most.saturating_sub(self.budget.taken.load(Ordering::Acquire));
        if !may_take(self.tenant.load(Ordering::Acquire), bytes, left) {
            return None;
        }
        let of_all = Lease::take(&self.budget.taken, bytes, most)?;
        Some(AnswerLease { _of_all: of_all, _of_tenant: Lease::take(&self.tenant, bytes, u64::MAX) })
    }
}

/// Whether one that holds `used` may take `bytes` more of what is `left` for all.
fn may_take(used: u64, bytes: u64, left: u64) -> bool {
    used == 0 || used.saturating_add(bytes) <= SHARE.saturating_mul(left.saturating_sub(bytes))
}

impl BodyShare {
    /// Takes more, of which `left` is free for all; `false`: the tenant has as much as it may.
    pub(crate) fn take(&mut self, bytes: u64, left: u64) -> bool {
        let own: u64 = self.held.iter().map(Lease::units).sum();
        let used = self.tenant.load(Ordering::Acquire);
        let is_alone = used <= own;
        if !is_alone && !may_take(used, bytes, left) {
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
        let shares = TenantShares::default();
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
    fn answers_of_one_tenant_that_are_not_read_leave_a_part_to_the_others() {
        let budget = AnswerBudget::new(1_000);
        let hog = budget.of(&tenant("hog"));
        let held: Vec<AnswerLease> = std::iter::from_fn(|| hog.take(50)).collect();
        assert_eq!(held.len(), 16, "four fifths");
        let quiet = budget.of(&tenant("quiet"));
        let first = quiet.take(150).expect("a part is left for another");
        assert!(hog.take(1).is_none() && quiet.take(60).is_none());
        drop(held);
        assert!(quiet.take(60).is_some());
        drop(first);
        let largest = quiet.take(5_000).expect("alone it takes all of it");
        assert!(hog.take(1).is_none(), "nothing is left");
        drop(largest);
        assert!(hog.take(1_000).is_some());
    }

    #[test]
    fn tenants_without_bodies_are_struck_off() {
        let shares = TenantShares::default();
        let held = shares.body_of(&tenant("held"));
        for n in 0..3 * MANY {
            drop(shares.body_of(&tenant(&n.to_string())));
        }
        assert!(shares.0.lock().len() <= MANY + 1);
        assert!(shares.0.lock().contains_key(&tenant("held")));
        drop(held);
    }
}
