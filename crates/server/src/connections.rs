//! Every open connection of a server, so that all of them can be told to end, and those that never said who they are
//! give way to new ones.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use mesh_base::Gauge;
use parking_lot::Mutex;

use crate::watch::Watch;

/// So long a connection has to say who it is before it gives way.
const FIRST_WORD: Duration = Duration::from_secs(1);
/// How many connections are listed in the order of their age before those are struck off that are known or gone.
const MANY: usize = 1_024;

/// The open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Watch>>>,
    gauge: Gauge,
    /// How many of them are not known.
    strangers: Arc<AtomicUsize>,
    /// They, the oldest first, and others.
    by_age: Mutex<VecDeque<Weak<Watch>>>,
}

/// A connection on the list; dropping it takes it off.
#[derive(Debug)]
pub(crate) struct Listed {
    connections: Arc<Connections>,
    number: u64,
}

impl Connections {
    pub(crate) fn new(gauge: Gauge) -> Arc<Self> {
        Arc::new(Self {
            next: AtomicU64::new(0),
            open: Mutex::default(),
            gauge,
            strangers: Arc::default(),
            by_age: Mutex::default(),
        })
    }

    /// What counts the connections that are not known.
    pub(crate) fn strangers(&self) -> &Arc<AtomicUsize> {
        &self.strangers
    }

    /// Ends the oldest connection that had its time to say who it is, and did not.
    pub(crate) fn give_way(&self) {
        let mut by_age = self.by_age.lock();
        while let Some(oldest) = by_age.front() {
            if let Some(watch) = oldest.upgrade().filter(|watch| !watch.is_known() && !watch.is_ending()) {
                if watch.age() < FIRST_WORD {
                    return;
                }
                tracing::debug!("a connection that never said who it is gave way to another");
                watch.end(true);
                by_age.pop_front();
                return;
            }
            by_age.pop_front();
        }
    }

    /// Lists a connection.
    pub(crate) fn add(self: &Arc<Self>, watch: &Arc<Watch>) -> Listed {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(number, watch.clone());
        let mut by_age = self.by_age.lock();
        if by_age.len() >= MANY.max(2 * self.strangers.load(Ordering::Relaxed)) {
            by_age.retain(|watch| watch.upgrade().is_some_and(|watch| !watch.is_known()));
        }
        by_age.push_back(Arc::downgrade(watch));
        drop(by_age);
        self.gauge.inc();
        Listed { connections: self.clone(), number }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.open.lock().len()
    }

    /// Tells all of them to end: after what they are answering, or now.
    pub(crate) fn end_all(&self, now: bool) {
        let open: Vec<Arc<Watch>> = self.open.lock().values().cloned().collect();
        for watch in open {
            watch.end(now);
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.connections.open.lock().remove(&self.number);
        self.connections.gauge.dec();
    }
}

#[cfg(test)]
mod tests {
    use mesh_base::{Clock, Signals};

    use super::*;
    use crate::watch::Patience;

    fn connections() -> Arc<Connections> {
        Connections::new(Signals::new().gauge("connections", "Open connections"))
    }

    fn opened(connections: &Connections) -> Arc<Watch> {
        let patience = Patience { head: FIRST_WORD * 10, idle: FIRST_WORD * 60, write: FIRST_WORD * 30 };
        Watch::new(Clock::system(), patience, connections.strangers().clone())
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_that_never_said_who_it_is_gives_way() {
        let connections = connections();
        let watches: Vec<Arc<Watch>> = (0..4).map(|_| opened(&connections)).collect();
        let listed: Vec<Listed> = watches.iter().map(|watch| connections.add(watch)).collect();
        watches[0].make_known();
        connections.give_way();
        assert!(watches.iter().all(|watch| !watch.is_ending()), "all of them have a second");
        tokio::time::advance(FIRST_WORD).await;
        connections.give_way();
        connections.give_way();
        let ending: Vec<bool> = watches.iter().map(|watch| watch.is_ending()).collect();
        assert_eq!(ending, [false, true, true, false]);
        assert_eq!(connections.strangers().load(Ordering::Relaxed), 3);
        drop((watches, listed));
        assert_eq!((connections.strangers().load(Ordering::Relaxed), connections.count()), (0, 0));
        connections.give_way();
    }

    #[tokio::test]
    async fn what_is_known_or_gone_is_not_kept_in_the_list() {
        let connections = connections();
        for _ in 0..3 * MANY {
            let watch = opened(&connections);
            let listed = connections.add(&watch);
            watch.make_known();
            drop(listed);
        }
        assert!(connections.by_age.lock().len() <= MANY + 1);
    }
}
