//! Groups that something was appended for while they were busy: the writer of the log marks them and goes on.

use std::sync::{Arc, atomic::Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Group;

/// Groups to be woken, each once.
#[derive(Debug, Default)]
pub(crate) struct Marked {
    groups: Mutex<Vec<Arc<Group>>>,
    something: Notify,
}

impl Marked {
    /// Members of the group are to be woken.
    pub(crate) fn mark(&self, group: &Arc<Group>) {
        if !group.marked.swap(true, Ordering::AcqRel) {
            self.groups.lock().push(group.clone());
            self.something.notify_one();
        }
    }

    /// Waits until groups are marked, and takes them.
    pub(crate) async fn take(&self) -> Vec<Arc<Group>> {
        loop {
            let groups = std::mem::take(&mut *self.groups.lock());
            if !groups.is_empty() {
                // Before they are looked at: what is appended from now on marks them anew.
                for group in &groups {
                    group.marked.store(false, Ordering::Release);
                }
                return groups;
            }
            self.something.notified().await;
        }
    }
}
