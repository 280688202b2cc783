//! What the deliveries of a tenant come to that are handed out and neither finished nor timed out.
//!
//! Every group says under its own lock how many it has, whenever that changed; a hand-out reserves what it may
//! take before it takes, so that groups which hand out at the same time do not pass the tenant's limit together.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A tenant's counts.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    in_flight: AtomicU64,
    /// Its outstanding rows, parked ones included: at the last count, and those added since.
    rows: AtomicUsize,
}

impl Backlog {
    /// Outstanding rows; never fewer than there are.
    pub(crate) fn rows(&self) -> usize {
        self.rows.load(Ordering::Acquire)
    }

    /// They were counted.
    pub(crate) fn counted_rows(&self, rows: usize) {
        self.rows.store(rows, Ordering::Release);
    }

    /// That many were added.
    pub(crate) fn added_rows(&self, rows: usize) {
        self.rows.fetch_add(rows, Ordering::AcqRel);
    }

    /// How many there are, those reserved included.
    pub(crate) fn count(&self) -> u64 {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Reserves up to `wanted`, as far as `limit` has room; how many it were.
    pub(crate) fn reserve(&self, wanted: usize, limit: u64) -> usize {
        let mut got = 0;
        let taken = self.in_flight.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
            got = limit.saturating_sub(count).min(wanted as u64);
            count.checked_add(got)
        });
        if taken.is_ok() { usize::try_from(got).unwrap_or(wanted) } else { 0 }
    }

    /// A group has `now` where it had, or had reserved, `before`.
    pub(crate) fn changed(&self, before: u64, now: u64) {
        if now >= before {
            self.in_flight.fetch_add(now - before, Ordering::AcqRel);
        } else {
            self.in_flight.fetch_sub(before - now, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_reserved_than_the_limit_has_room_for() {
        let backlog = Backlog::default();
        assert_eq!(backlog.reserve(7, 10), 7);
        assert_eq!(backlog.reserve(7, 10), 3);
        assert_eq!(backlog.reserve(1, 10), 0);
        backlog.changed(10, 4);
        assert_eq!((backlog.count(), backlog.reserve(10, 3)), (4, 0));
        backlog.changed(4, 1);
        assert_eq!(backlog.reserve(10, 3), 2);
    }
}
