//! The tenants that a connection is counted for: each once, from its first request until the connection ends.

use mesh_base::Lease;
use mesh_frame::TenantId;
use parking_lot::Mutex;

/// A connection that is shared by this many tenants is a proxy's; it is counted for the latest of them.
const MOST: usize = 64;

/// The tenants of one connection. Dropped with it, the units go back.
#[derive(Debug, Default)]
pub struct ConnectionTenants(Mutex<Vec<Counted>>);

/// A tenant with the unit it holds.
type Counted = (TenantId, Option<Lease>);

impl ConnectionTenants {
    /// Counts the connection for a tenant, unless it was: `lease` takes the unit.
    ///
    /// # Errors
    /// What `lease` fails with; the connection is not counted then.
    pub fn count<E>(
        &self,
        tenant: &TenantId,
        lease: impl FnOnce() -> Result<Option<Lease>, E>,
    ) -> Result<(), E> {
        let mut counted = self.0.lock();
        if counted.iter().any(|(other, _)| other == tenant) {
            return Ok(());
        }
        let lease = lease()?;
        if counted.len() >= MOST {
            counted.remove(0);
        }
        counted.push((tenant.clone(), lease));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use super::*;

    #[test]
    fn a_tenant_is_counted_once_a_connection_and_no_more_when_it_ends() {
        let pool = Arc::new(AtomicU64::new(0));
        let tenant = |n: usize| TenantId::new(&format!("t{n}")).expect("legal");
        let take = || Lease::take(&pool, 1, 1_000).map(Some).ok_or(());
        let connection = ConnectionTenants::default();
        for _ in 0..3 {
            connection.count(&tenant(0), take).expect("room");
        }
        assert_eq!(pool.load(Ordering::Relaxed), 1);
        assert_eq!(connection.count(&tenant(1), || Err(7)), Err(7));
        for n in 0..2 * MOST {
            connection.count(&tenant(n), take).expect("room");
        }
        assert_eq!(pool.load(Ordering::Relaxed), MOST as u64);
        drop(connection);
        assert_eq!(pool.load(Ordering::Relaxed), 0);
    }
}
