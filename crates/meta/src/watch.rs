//! Watches: a bounded queue of changes that never blocks the writer.
//!
//! A watcher that falls behind loses its queue and gets one [`WatchEvent::Lost`] in its place; a caller that
//! receives it lists again. What a watcher does not get as an event it sees in that listing, because a
//! change is announced only after it was made.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Revision;

/// How many changes wait for a slow watcher before they are dropped for a `Lost`.
const CAPACITY: usize = 4_096;

/// A change of a watched key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// The key was written.
    Put {
        /// The key.
        key: String,
        /// What it holds since.
        value: Bytes,
        /// The change.
        revision: Revision,
    },
    /// The key was removed.
    Delete {
        /// The key.
        key: String,
        /// The change.
        revision: Revision,
    },
    /// Changes may be missing before the next event: list again.
    Lost,
}

impl WatchEvent {
    /// The key it is about; none for [`WatchEvent::Lost`].
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Put { key, .. } | Self::Delete { key, .. } => Some(key),
            Self::Lost => None,
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<WatchEvent>,
    lost: bool,
    sender_gone: bool,
    watcher_gone: bool,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Notify,
    capacity: usize,
}

/// The receiving end of a watch. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch(Arc<Shared>);

impl Watch {
    /// A watch and the end a driver feeds it by.
    pub fn channel() -> (WatchSender, Self) {
        Self::with_capacity(CAPACITY)
    }

    /// The same with another bound on how many changes wait.
    pub fn with_capacity(capacity: usize) -> (WatchSender, Self) {
        let shared =
            Arc::new(Shared { queue: Mutex::default(), wake: Notify::new(), capacity: capacity.max(1) });
        (WatchSender(shared.clone()), Self(shared))
    }

    /// The next change; `None` once the store is closed and everything was received. Dropping the future
    /// loses nothing.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            {
                let mut queue = self.0.queue.lock();
                if std::mem::take(&mut queue.lost) {
                    return Some(WatchEvent::Lost);
                }
                if let Some(event) = queue.events.pop_front() {
                    return Some(event);
                }
                if queue.sender_gone {
                    return None;
                }
            }
            self.0.wake.notified().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.watcher_gone = true;
        queue.events = VecDeque::new();
    }
}

/// The end of a watch that a driver holds. Dropping it closes the watch.
#[derive(Debug)]
pub struct WatchSender(Arc<Shared>);

impl WatchSender {
    /// Queues a change; never blocks. `false`: nobody watches any more.
    pub fn send(&self, event: WatchEvent) -> bool {
        let mut queue = self.0.queue.lock();
        if queue.watcher_gone {
            return false;
        }
        if event == WatchEvent::Lost || queue.events.len() >= self.0.capacity {
            queue.events.clear();
            queue.lost = true;
        } else if !queue.lost {
            queue.events.push_back(event);
        }
        drop(queue);
        self.0.wake.notify_one();
        true
    }
}

impl Drop for WatchSender {
    fn drop(&mut self) {
        self.0.queue.lock().sender_gone = true;
        self.0.wake.notify_one();
    }
}

/// Everyone who watches a store that lives in this process.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Mutex<Vec<(String, WatchSender)>>);

impl Watchers {
    pub(crate) fn watch(&self, prefix: &str) -> Watch {
        let (sender, watch) = Watch::channel();
        self.0.lock().push((prefix.to_owned(), sender));
        watch
    }

    /// Tells a change to whom it concerns, a loss to everybody. Called in the order of the changes.
    pub(crate) fn announce(&self, event: &WatchEvent) {
        let concerns = |prefix: &str| event.key().is_none_or(|key| key.starts_with(prefix));
        self.0.lock().retain(|(prefix, sender)| !concerns(prefix) || sender.send(event.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str) -> WatchEvent {
        WatchEvent::Put { key: key.into(), value: Bytes::new(), revision: Revision(1) }
    }

    #[tokio::test]
    async fn a_slow_watcher_gets_lost_in_place_of_what_was_dropped() {
        let (sender, mut watch) = Watch::with_capacity(2);
        for key in ["a", "b", "c", "d"] {
            assert!(sender.send(put(key)));
        }
        assert_eq!(watch.next().await, Some(WatchEvent::Lost));
        assert!(sender.send(put("e")));
        assert_eq!(watch.next().await, Some(put("e")));
    }

    #[tokio::test]
    async fn both_ends_notice_that_the_other_is_gone() {
        let (sender, watch) = Watch::channel();
        drop(watch);
        assert!(!sender.send(put("a")));
        let (sender, mut watch) = Watch::channel();
        assert!(sender.send(put("a")));
        drop(sender);
        assert_eq!(watch.next().await, Some(put("a")));
        assert_eq!(watch.next().await, None);
    }

    #[tokio::test]
    async fn watchers_hear_of_their_prefix_alone() {
        let watchers = Watchers::default();
        let mut watch = watchers.watch("/a/");
        watchers.announce(&put("/ab"));
        watchers.announce(&put("/a/1"));
        assert_eq!(watch.next().await, Some(put("/a/1")));
    }
}
