//! A drop guard over units of a budget: they are taken when it is made, and given back when it is dropped.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Units taken from a bounded pool, given back when this is dropped. There is no `release` to forget.
#[derive(Debug)]
#[must_use = "dropping the lease gives its units back at once"]
pub struct Lease {
    pool: Arc<AtomicU64>,
    units: u64,
}

impl Lease {
    /// Takes `units` from a pool that counts what is taken, unless that would pass `limit`.
    pub fn take(pool: &Arc<AtomicU64>, units: u64, limit: u64) -> Option<Self> {
        pool.fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
            taken.checked_add(units).filter(|sum| *sum <= limit)
        })
        .ok()?;
        Some(Self { pool: pool.clone(), units })
    }

    /// How many units it holds.
    pub fn units(&self) -> u64 {
        self.units
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.fetch_sub(self.units, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_come_back_when_the_holder_ends() {
        let pool = Arc::new(AtomicU64::new(0));
        let first = Lease::take(&pool, 7, 10).expect("seven of ten");
        assert!(Lease::take(&pool, 4, 10).is_none());
        let second = Lease::take(&pool, 3, 10).expect("the rest");
        drop(first);
        assert_eq!(pool.load(Ordering::Relaxed), second.units());
        drop(second);
        assert_eq!(pool.load(Ordering::Relaxed), 0);
    }
}
