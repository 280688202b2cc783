//! Who waits for events of a group: long polls that found nothing.
//!
//! A wake-up says "look again" and nothing more. Each is for one waiter; one that was woken and did not
//! look (its request was cancelled), or left something behind, passes it on. Nobody is woken for nothing
//! and no event waits while somebody does.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::lane::Member;

/// One waiting poll.
#[derive(Debug)]
pub(crate) struct Waiter {
    member: Member,
    woken: AtomicBool,
    done: AtomicBool,
    signal: Notify,
}

impl Waiter {
    pub(crate) fn new(member: Member) -> Arc<Self> {
        Arc::new(Self {
            member,
            woken: AtomicBool::new(false),
            done: AtomicBool::new(false),
            signal: Notify::new(),
        })
    }

    /// Waits for a wake-up.
    pub(crate) async fn woken(&self) {
        self.signal.notified().await;
    }

    /// It waits no longer. `true`: it had been woken.
    pub(crate) fn finish(&self) -> bool {
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
pub(crate) struct Waiters {
    queue: Mutex<VecDeque<Arc<Waiter>>>,
    count: AtomicUsize,
}

impl Waiters {
    pub(crate) fn add(&self, waiter: &Arc<Waiter>) {
        let mut queue = self.queue.lock();
        queue.push_back(waiter.clone());
        self.count.store(queue.len(), Ordering::SeqCst);
    }

    pub(crate) fn remove(&self, waiter: &Arc<Waiter>) {
        let mut queue = self.queue.lock();
        queue.retain(|other| !Arc::ptr_eq(other, waiter));
        self.count.store(queue.len(), Ordering::SeqCst);
    }

    /// How many wait, about.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Wakes up to that many.
    pub(crate) fn wake(&self, most: usize) {
        if self.len() == 0 {
            return;
        }
        let queue = self.queue.lock();
        let mut left = most;
        for waiter in queue.iter() {
            if left == 0 {
                break;
            }
            left -= usize::from(waiter.wake());
        }
    }

    /// Whether that member waits.
    pub(crate) fn has(&self, member: Member) -> bool {
        self.len() > 0 && self.queue.lock().iter().any(|waiter| waiter.member == member)
    }
}
