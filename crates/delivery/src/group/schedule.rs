//! The timing wheel: which group the ticker looks at when. No timer for an idle partition.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
};

use mesh_base::UnixMillis;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Group;

/// Points in time with the group that has something to do then.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    due: Mutex<BTreeSet<(u64, u64)>>,
    earlier: Arc<Notify>,
}

impl Schedule {
    /// The group wants to be looked at no later than `at`.
    pub(crate) fn no_later_than(&self, group: &Group, at: UnixMillis) {
        let before = group.scheduled.fetch_min(at.0, Ordering::AcqRel);
        if at.0 >= before {
            return;
        }
        let mut due = self.due.lock();
        due.remove(&(before, group.number));
        let first = due.first().map_or(u64::MAX, |(first, _)| *first);
        due.insert((at.0, group.number));
        drop(due);
        if at.0 < first {
            self.earlier.notify_one();
        }
    }

    /// Takes out every group that is due.
    pub(crate) fn take_due(&self, now: UnixMillis) -> Vec<u64> {
        let mut due = self.due.lock();
        let later = due.split_off(&(now.0 + 1, 0));
        let now_due = std::mem::replace(&mut *due, later);
        now_due.into_iter().map(|(_, group)| group).collect()
    }

    /// The next point in time.
    pub(crate) fn next(&self) -> Option<UnixMillis> {
        self.due.lock().first().map(|(at, _)| UnixMillis(*at))
    }

    /// Waits until something earlier than before was scheduled.
    pub(crate) async fn something_earlier(&self) {
        self.earlier.notified().await;
    }
}
