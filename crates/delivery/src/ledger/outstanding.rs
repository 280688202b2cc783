//! The budget of outstanding rows that all groups share.

use std::sync::atomic::{AtomicUsize, Ordering};

/// One tenant alone has four fifths of the rows of the process, two have four ninths each.
const SHARE: usize = 4;

/// Outstanding rows of the process: at the last count, and those added since; never fewer than there are.
#[derive(Debug)]
pub(crate) struct Outstanding {
    rows: AtomicUsize,
    most: usize,
}

impl Outstanding {
    /// At most `most` rows.
    pub(crate) fn new(most: usize) -> Self {
        Self { rows: AtomicUsize::new(0), most }
    }

    /// They were counted.
    pub(crate) fn counted(&self, rows: usize) {
        self.rows.store(rows, Ordering::Release);
    }

    /// That many were added.
    pub(crate) fn added(&self, rows: usize) {
        self.rows.fetch_add(rows, Ordering::AcqRel);
    }

    /// How many more rows a tenant may take that has `its` already: at most [`SHARE`] times as many as are left, so
    /// that however many it leaves unsettled, another tenant finds some.
    pub(crate) fn left_for(&self, its: usize) -> usize {
        let left = self.most.saturating_sub(self.rows.load(Ordering::Acquire));
        (SHARE * left).saturating_sub(its) / (SHARE + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_that_takes_all_it_may_leaves_a_fifth_to_another() {
        let outstanding = Outstanding::new(1_000);
        let mut its = 0;
        while outstanding.left_for(its) > 0 {
            let more = outstanding.left_for(its);
            outstanding.added(more);
            its += more;
        }
        assert!((790..=800).contains(&its), "{its}");
        assert!(outstanding.left_for(0) > 150);
        outstanding.counted(0);
        assert_eq!(outstanding.left_for(0), 800);
    }
}
