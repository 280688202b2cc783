//! Which groups are to be looked at, and why: a timer, an append, a commit whose request has gone, a dead letter.

use std::sync::Arc;

use mesh_state::positions::Commit;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Group, marked::Marked, schedule::Schedule};

/// What waits to be looked at. Each kind has one task that takes it out.
#[derive(Debug, Default)]
pub(crate) struct Attention {
    /// Groups with a timer.
    pub(crate) schedule: Schedule,
    /// Groups that were busy when something was appended for them.
    pub(crate) marked: Marked,
    abandoned: Queue<(Arc<Group>, Commit)>,
    dead: Queue<u64>,
}

#[derive(Debug)]
struct Queue<T> {
    waiting: Mutex<Vec<T>>,
    something: Notify,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), something: Notify::new() }
    }
}

impl<T> Queue<T> {
    fn add(&self, one: T) {
        self.waiting.lock().push(one);
        self.something.notify_one();
    }

    fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.waiting.lock())
    }
}

impl Attention {
    /// The request that handed in a commit of the group has gone: the group is looked at when the commit is decided.
    pub(crate) fn abandon(&self, group: Arc<Group>, commit: Commit) {
        self.abandoned.add((group, commit));
    }

    /// Waits until commits were abandoned, and takes them.
    pub(crate) async fn abandoned(&self) -> Vec<(Arc<Group>, Commit)> {
        loop {
            let abandoned = self.abandoned.take();
            if !abandoned.is_empty() {
                return abandoned;
            }
            self.abandoned.something.notified().await;
        }
    }

    /// The group has deliveries that wait for their dead letters.
    pub(crate) fn make_dead(&self, group: &Group) {
        self.dead.add(group.number);
    }

    /// Takes the groups that have deliveries which wait for their dead letters.
    pub(crate) fn take_dead(&self) -> Vec<u64> {
        self.dead.take()
    }

    /// Waits until there may be such groups.
    pub(crate) async fn something_dead(&self) {
        self.dead.something.notified().await;
    }
}
