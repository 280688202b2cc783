//! Who waits for events of a group: long polls that found nothing.
//!
//! A wake-up says "look again" and nothing more. Each is for one waiter; one that was woken and did not
//! look (its request was cancelled), or left something behind, passes it on. Nobody is woken for nothing
//! and no event waits while a poll does.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// One waiting poll.
#[derive(Debug)]
pub struct Waiter {
    member: u64,
    woken: AtomicBool,
    done: AtomicBool,
    signal: Notify,
}

impl Waiter {
    /// A poll of a member, by a number that is the member's own.
    pub fn new(member: u64) -> Arc<Self> {
        Arc::new(Self {
            member,
            woken: AtomicBool::new(false),
            done: AtomicBool::new(false),
            signal: Notify::new(),
        })
    }

    /// Waits for a wake-up.
    pub async fn woken(&self) {
        self.signal.notified().await;
    }

    /// It waits no longer. `true`: it had been woken.
    pub fn finish(&self) -> bool {
        self.done.store(true, Ordering::Release);
        self.woken.load(Ordering::Acquire)
    }

    fn wake(&self) -> bool {
        if self.done.load(Ordering::Acquire) || self.woken.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.signal.notify_one();
        true
    }
}

/// The waiters of one group, in the order they came.
#[derive(Debug, Default)]
pub struct Waiters {
    queue: Mutex<VecDeque<Arc<Waiter>>>,
    count: AtomicUsize,
}

impl Waiters {
    /// It waits from now on.
    pub fn add(&self, waiter: &Arc<Waiter>) {
        let mut queue = self.queue.lock();
        queue.push_back(waiter.clone());
        self.count.store(queue.len(), Ordering::SeqCst);
    }

    /// It waits no longer.
    pub fn remove(&self, waiter: &Arc<Waiter>) {
        let mut queue = self.queue.lock();
        queue.retain(|other| !Arc::ptr_eq(other, waiter));
        self.count.store(queue.len(), Ordering::SeqCst);
    }

    /// Whether nobody waits, about.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many wait, about.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Wakes up to that many of those whose member may have something.
    pub fn wake(&self, most: usize, may: impl Fn(u64) -> bool) {
        if self.is_empty() {
            return;
        }
        let queue = self.queue.lock();
        let mut left = most;
        for waiter in queue.iter() {
            if left == 0 {
                break;
            }
            if may(waiter.member) {
                left -= usize::from(waiter.wake());
            }
        }
    }

    /// The members that wait, each as often as it does.
    pub fn members(&self) -> Vec<u64> {
        self.queue.lock().iter().map(|waiter| waiter.member).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_is_for_one_and_the_next_for_the_next() {
        let waiters = Waiters::default();
        let (first, second) = (Waiter::new(1), Waiter::new(2));
        waiters.add(&first);
        waiters.add(&second);
        assert_eq!(waiters.members(), [1, 2]);
        waiters.wake(1, |_| true);
        waiters.wake(1, |_| true);
        assert!(first.finish() && second.finish());
        waiters.remove(&first);
        assert_eq!(waiters.len(), 1);
    }

    #[test]
    fn a_waiter_that_is_done_is_passed_over() {
        let waiters = Waiters::default();
        let (gone, waiting) = (Waiter::new(1), Waiter::new(2));
        waiters.add(&gone);
        waiters.add(&waiting);
        assert!(!gone.finish());
        waiters.wake(1, |_| true);
        assert!(waiting.finish());
    }

    #[tokio::test]
    async fn a_wake_up_before_the_wait_is_not_lost() {
        let waiters = Waiters::default();
        let waiter = Waiter::new(1);
        waiters.add(&waiter);
        waiters.wake(5, |member| member == 1);
        waiter.woken().await;
    }
}
