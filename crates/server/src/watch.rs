//! What the server knows about a connection while it lives: whether a request is being answered, since when
//! nothing moves, and whether it was told to end.
//!
//! Three waits are bounded here, with one timer a connection instead of one a request: for the head of a
//! request, for the next request, and for a client that does not read its answer. hyper's own timer for heads
//! is not used: it also runs while a kept connection is idle, and it is made anew for each request.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Poll, Waker},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use mesh_base::Clock;

/// How long a connection may keep the server waiting.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the head of a request, from its first byte on; for the first one, from the connection on.
    pub head: Duration,
    /// For the next request.
    pub idle: Duration,
    /// For room to write an answer into.
    pub write: Duration,
}

/// How often a connection that was told to end is looked at.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Never, as a time.
const NEVER: u64 = 0;

/// One connection.
#[derive(Debug)]
pub(crate) struct Watch {
    clock: Clock,
    patience: Patience,
    /// Requests whose answer has not been written whole.
    in_flight: AtomicU32,
    served: AtomicBool,
    /// A request of the connection was authenticated.
    known: AtomicBool,
    /// How many connections are not known, this one included.
    strangers: Arc<AtomicUsize>,
    multiplexed: AtomicBool,
    /// When the connection was made.
    opened: AtomicU64,
    /// When the last answer ended, or when the connection was made.
    idle_since: AtomicU64,
    /// When the first byte after that came.
    head_since: AtomicU64,
    /// Since when the socket takes nothing.
    blocked_since: AtomicU64,
    /// Told to end after what is in flight.
    finishing: AtomicBool,
    /// Told to end now.
    ending: AtomicBool,
    waker: AtomicWaker,
}

impl Watch {
    /// A connection that is made now, and counted among the `strangers` until it is known or gone.
    pub(crate) fn new(clock: Clock, patience: Patience, strangers: Arc<AtomicUsize>) -> Arc<Self> {
        strangers.fetch_add(1, Ordering::AcqRel);
        let watch = Self {
            clock,
            patience,
            strangers,
            in_flight: AtomicU32::new(0),
            served: AtomicBool::new(false),
            known: AtomicBool::new(false),
            opened: AtomicU64::new(NEVER),
            multiplexed: AtomicBool::new(false),
            idle_since: AtomicU64::new(NEVER),
            head_since: AtomicU64::new(NEVER),
            blocked_since: AtomicU64::new(NEVER),
            finishing: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        };
        watch.idle_since.store(watch.now(), Ordering::Relaxed);
        watch.opened.store(watch.now(), Ordering::Relaxed);
        Arc::new(watch)
    }

    /// Milliseconds of the process's clock, never 0.
    fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    /// A request came; it is in flight until the guard is dropped.
    pub(crate) fn request(self: &Arc<Self>, multiplexed: bool) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        self.head_since.store(NEVER, Ordering::Relaxed);
        if !self.served.load(Ordering::Relaxed) {
            self.multiplexed.store(multiplexed, Ordering::Relaxed);
            self.served.store(true, Ordering::Relaxed);
        }
        InFlight(self.clone())
    }

    /// A request of the connection was authenticated.
    pub(crate) fn make_known(&self) {
        if !self.known.load(Ordering::Relaxed) && !self.known.swap(true, Ordering::AcqRel) {
            self.strangers.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Since when the connection is there.
    pub(crate) fn age(&self) -> Duration {
        Duration::from_millis(self.now().saturating_sub(self.opened.load(Ordering::Relaxed)))
    }

    /// Whether a request of the connection was authenticated.
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// Bytes came.
    pub(crate) fn bytes_came(&self) {
        if self.in_flight.load(Ordering::Relaxed) == 0 && self.head_since.load(Ordering::Relaxed) == NEVER {
            self.head_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// The socket takes bytes, or it does not.
    pub(crate) fn writing(&self, blocked: bool) {
        let since = self.blocked_since.load(Ordering::Relaxed);
        if blocked && since == NEVER {
            self.blocked_since.store(self.now(), Ordering::Relaxed);
        } else if !blocked && since != NEVER {
            self.blocked_since.store(NEVER, Ordering::Relaxed);
        }
    }

    /// Tells the connection to end: after what is in flight, or now.
    pub(crate) fn end(&self, now: bool) {
        self.finishing.store(true, Ordering::Release);
        if now {
            self.ending.store(true, Ordering::Release);
        }
        self.waker.wake();
    }

    pub(crate) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Waits until the connection is told to end.
    pub(crate) async fn finishing(&self) {
        poll_fn(|cx| {
            self.register(cx.waker());
            if self.is_finishing() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    pub(crate) fn is_finishing(&self) -> bool {
        self.finishing.load(Ordering::Acquire)
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// How long nothing can run out; zero when something has.
    pub(crate) fn left(&self) -> Duration {
        let now = self.now();
        let left = |since: u64, bound: Duration| {
            bound.saturating_sub(Duration::from_millis(now.saturating_sub(since)))
        };
        let mut least = self.patience.idle.min(self.patience.head).min(self.patience.write);
        let blocked = self.blocked_since.load(Ordering::Relaxed);
        if blocked != NEVER {
            least = least.min(left(blocked, self.patience.write));
        }
        let finishing = self.is_finishing();
        if self.in_flight.load(Ordering::Acquire) > 0 {
            return if finishing { least.min(LOOK_AGAIN) } else { least };
        }
        // hyper ends an idle connection itself; what is left waits for the rest of a head.
        if finishing {
            return Duration::ZERO;
        }
        let idle_since = self.idle_since.load(Ordering::Relaxed);
        if !self.served.load(Ordering::Relaxed) {
            return least.min(left(idle_since, self.patience.head));
        }
        // Who never said who it is does not keep a connection for the next request.
        if !self.is_known() {
            least = least.min(left(self.opened.load(Ordering::Relaxed), self.patience.head));
        }
        let head = self.head_since.load(Ordering::Relaxed);
        // Over HTTP/2 bytes come without a request too.
        if head != NEVER && !self.multiplexed.load(Ordering::Relaxed) {
            least = least.min(left(head, self.patience.head));
        }
        least.min(left(idle_since, self.patience.idle))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.make_known();
    }
}

/// A request in flight on a connection.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Watch>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.idle_since.store(self.0.now(), Ordering::Relaxed);
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(60),
        write: Duration::from_secs(30),
    };

    async fn after(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_has_its_own_bound() {
        let watch = Watch::new(Clock::system(), PATIENCE, Arc::default());
        // covers: U176
        after(9).await;
        assert_eq!(watch.left(), Duration::from_secs(1), "the first head counts from the connection on");
        let request = watch.request(false);
        watch.make_known();
        after(100).await;
        assert!(watch.left() > Duration::ZERO, "a request that is being answered runs out by itself");
        watch.writing(true);
        after(31).await;
        assert_eq!(watch.left(), Duration::ZERO, "the client does not read");
        watch.writing(false);
        drop(request);
        after(55).await;
        assert_eq!(watch.left(), Duration::from_secs(5), "idle");
        watch.bytes_came();
        after(4).await;
        watch.bytes_came();
        assert_eq!(watch.left(), Duration::from_secs(1));
        after(1).await;
        assert_eq!(watch.left(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_not_known_has_the_time_of_one_head_for_all() {
        let watch = Watch::new(Clock::system(), PATIENCE, Arc::default());
        for multiplexed in [false, true] {
            after(3).await;
            drop(watch.request(multiplexed));
        }
        assert_eq!(watch.left(), Duration::from_secs(4), "refused requests give no more time");
        let request = watch.request(false);
        after(20).await;
        assert!(watch.left() > Duration::ZERO, "one that is being answered is not cut");
        drop(request);
        assert_eq!(watch.left(), Duration::ZERO);
        watch.make_known();
        assert_eq!(watch.left(), Duration::from_secs(10).min(PATIENCE.idle));
    }

    #[tokio::test(start_paused = true)]
    async fn told_to_end_it_waits_for_answers_and_for_nothing_else() {
        let watch = Watch::new(Clock::system(), PATIENCE, Arc::default());
        let request = watch.request(false);
        watch.end(false);
        assert_eq!(watch.left(), LOOK_AGAIN);
        drop(request);
        assert_eq!(watch.left(), Duration::ZERO);
    }
}
