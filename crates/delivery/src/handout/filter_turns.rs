//! Turns at filtering: looks at groups whose filters cost much are made one after another, tenants in turn.
//!
//! A look is bounded, but a thousand of them that may all go on at once keep every thread from the requests of
//! others. So few of them are under way at a time, and each tenant has one of them at most: however many
//! filters a tenant has, another one waits for one look of it.

use std::{collections::HashMap, sync::Arc};

use mesh_frame::TenantId;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Filters of so many comparisons are made in turns.
pub(crate) const COSTLY: usize = 16;
/// How many tenants are listed before those are struck off that have no look under way.
const MANY: usize = 256;

/// Who may filter now.
#[derive(Debug)]
pub(crate) struct FilterTurns {
    /// One turn each.
    tenants: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
    /// For the tenants whose turn it is.
    all: Arc<Semaphore>,
}

/// A turn; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "dropping the turn ends it at once"]
pub(crate) struct Turn {
    _of_all: OwnedSemaphorePermit,
    _of_tenant: OwnedSemaphorePermit,
}

impl FilterTurns {
    /// With half of the machine's threads for them, one at least.
    pub(crate) fn new() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { tenants: Mutex::default(), all: Arc::new(Semaphore::new((threads / 2).max(1))) }
    }

    /// Waits for the tenant's turn, if filters of that `cost` take turns at all. Dropped before that, it takes none.
    pub(crate) async fn turn(&self, tenant: &TenantId, cost: usize) -> Option<Turn> {
        if cost < COSTLY {
            return None;
        }
        let of_tenant = self.of(tenant).acquire_owned().await.ok()?;
        let of_all = self.all.clone().acquire_owned().await.ok()?;
        Some(Turn { _of_all: of_all, _of_tenant: of_tenant })
    }

    fn of(&self, tenant: &TenantId) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock();
        if tenants.len() >= MANY && !tenants.contains_key(tenant) {
            // One that is waited for or under way is held by that.
            tenants.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        tenants.entry(tenant.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, poll};

    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).expect("legal")
    }

    #[tokio::test]
    async fn tenants_have_turns_however_many_looks_one_of_them_has() {
        let turns = FilterTurns { tenants: Mutex::default(), all: Arc::new(Semaphore::new(1)) };
        let (a, b) = (tenant("a"), tenant("b"));
        assert!(turns.turn(&a, COSTLY - 1).await.is_none(), "what costs little takes no turns");
        let first = turns.turn(&a, COSTLY).await.expect("a turn");
        let mut others: Vec<_> = (0..100).map(|_| Box::pin(turns.turn(&a, COSTLY))).collect();
        for other in &mut others {
            assert!(poll!(other).is_pending());
        }
        let mut quiet = Box::pin(turns.turn(&b, COSTLY));
        assert!(poll!(&mut quiet).is_pending());
        drop(first);
        let turn = quiet.now_or_never().flatten().expect("the other tenant is next");
        assert!(poll!(&mut others[0]).is_pending());
        drop(turn);
        assert!(poll!(&mut others[0]).is_ready());
        // One that gives up takes no turn with it.
        others.drain(..50);
        assert!(poll!(&mut others[0]).is_ready());
    }

    #[tokio::test]
    async fn tenants_without_looks_are_struck_off() {
        let turns = FilterTurns::new();
        let held = turns.turn(&tenant("held"), COSTLY).await;
        for number in 0..3 * MANY {
            drop(turns.of(&tenant(&number.to_string())));
        }
        assert!(turns.tenants.lock().len() <= MANY + 1 && turns.tenants.lock().contains_key(&tenant("held")));
        drop(held);
    }
}
