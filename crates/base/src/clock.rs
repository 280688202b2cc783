//! The one source of time: milliseconds since 1970 that never step.
//!
//! A [`Clock`] reads the wall clock once, when it is made, and from then on adds the monotonic time
//! that has passed. A step of the system's clock therefore moves no deadline of a running process;
//! after a restart the new reading holds. It stands on tokio's clock, so that a test with paused time
//! has one time for sleeps and for stored deadlines.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A point in time, in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// This point plus a duration, saturating.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// This point minus a duration, not below 1970.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this is; zero when it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The process's clock; cheap to clone.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall_at_start: UnixMillis,
    start: tokio::time::Instant,
}

impl Clock {
    /// The system's clock, read now.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the system's clock")]
    pub fn system() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::starting_at(UnixMillis(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)))
    }

    /// A clock that shows `wall` now and goes on from there.
    pub fn starting_at(wall: UnixMillis) -> Self {
        Self { wall_at_start: wall, start: tokio::time::Instant::now() }
    }

    /// Now.
    pub fn now(&self) -> UnixMillis {
        self.wall_at_start.plus(self.start.elapsed())
    }

    /// Monotonic time since this clock was made, with full resolution: for measuring.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits until the clock shows `when`.
    pub async fn sleep_until(&self, when: UnixMillis) {
        tokio::time::sleep_until(self.start + when.since(self.wall_at_start)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sleeping_until_a_point_ends_at_that_point() {
        let clock = Clock::starting_at(UnixMillis(5_000));
        clock.sleep_until(UnixMillis(7_500)).await;
        assert_eq!(clock.now(), UnixMillis(7_500));
        clock.sleep_until(UnixMillis(100)).await;
        assert_eq!(clock.now(), UnixMillis(7_500));
    }
}
