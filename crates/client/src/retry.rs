//! When a request is sent again, and after how long.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::Error;

/// Whether a publish is sent again when it failed.
///
/// A publish whose answer was lost may have been stored: sending it again may store the event twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryPublish {
    /// The first failure is the caller's to judge.
    #[default]
    Never,
    /// It is retried like everything else; consumers tell repeats apart by `source` and `id`.
    Always,
}

/// How requests are retried: 429, 503 and failures of the connection, with growing waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// The wait before the first retry; it doubles with each. 100 ms.
    pub first_delay: Duration,
    /// The longest wait, unless the server asks for a longer one. 5 s.
    pub longest_delay: Duration,
    /// The part of a wait that is left to chance, 0.0 to 1.0, so that clients do not come back together. 0.5.
    pub jitter: f64,
    /// How many times one call is sent again at most. No limit but the deadline.
    pub most_retries: u32,
    /// How long one call may take with all its retries and waits. A wait that would end later is not begun:
    /// the call ends with its last error. A poll may take its own waiting time longer. 30 s.
    pub deadline: Duration,
    /// Whether publishing is retried.
    pub publish: RetryPublish,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            first_delay: Duration::from_millis(100),
            longest_delay: Duration::from_secs(5),
            jitter: 0.5,
            most_retries: u32::MAX,
            deadline: Duration::from_secs(30),
            publish: RetryPublish::Never,
        }
    }
}

impl RetryPolicy {
    /// Nothing is retried.
    pub fn never() -> Self {
        Self { most_retries: 0, ..Self::default() }
    }

    /// The wait before the retry that follows failure number `failures`, from 1: never shorter than the server
    /// asked for. `chance` is from 0.0 to 1.0.
    pub(crate) fn delay(&self, failures: u32, asked: Option<Duration>, chance: f64) -> Duration {
        let (first, longest) = (bounded(self.first_delay), bounded(self.longest_delay));
        let doubled = 2_u32
            .checked_pow(failures.saturating_sub(1))
            .map_or(longest, |factor| first.saturating_mul(factor).min(longest));
        let jitter = if self.jitter.is_finite() { self.jitter.clamp(0.0, 1.0) } else { 0.0 };
        let chance = jitter * chance.clamp(0.0, 1.0);
        match asked {
            // What the server asked for is a lower bound; the own wait on top of it spreads the clients.
            Some(asked) => bounded(asked) + first.mul_f64(chance),
            None => doubled.mul_f64(1.0 - chance),
        }
    }
}

/// Any part of a jitter, from 0.0 up to 1.0.
#[expect(clippy::disallowed_methods, reason = "the one place of this library that draws from the system")]
pub(crate) fn chance() -> f64 {
    rand::random()
}

/// A time that can be added to any instant: at most a year, which is as good as for ever.
pub(crate) fn bounded(time: Duration) -> Duration {
    time.min(Duration::from_secs(365 * 24 * 3_600))
}

/// The retries of one call.
pub(crate) struct Retries {
    policy: RetryPolicy,
    end: Instant,
    failures: u32,
}

impl Retries {
    /// Retries from now on; `extra` is time that the call takes even when all is well.
    pub(crate) fn new(policy: RetryPolicy, extra: Duration) -> Self {
        let time = bounded(policy.deadline.saturating_add(extra));
        Self { policy, end: Instant::now() + time, failures: 0 }
    }

    /// What is left of the call's time.
    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Waits until it is time to try again.
    ///
    /// # Errors
    /// Gives `error` back when trying again does not help or there is no time left.
    pub(crate) async fn wait(&mut self, error: Error) -> Result<(), Error> {
        if !error.is_transient() || self.failures >= self.policy.most_retries {
            return Err(error);
        }
        self.failures = self.failures.saturating_add(1);
        let delay = self.policy.delay(self.failures, error.retry_after(), chance());
        if delay >= self.left() {
            return Err(error);
        }
        sleep(delay).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_never_undercut_the_server() {
        let policy = RetryPolicy { jitter: 0.5, ..RetryPolicy::default() };
        let ms = Duration::from_millis;
        let table = [
            (1, None, 0.0, ms(100)),
            (2, None, 0.0, ms(200)),
            (2, None, 1.0, ms(100)),
            (7, None, 0.0, ms(5_000)),
            (99, None, 0.0, ms(5_000)),
            (1, Some(ms(7_000)), 0.0, ms(7_000)),
            (1, Some(ms(7_000)), 1.0, ms(7_050)),
        ];
        for (failures, asked, chance, expected) in table {
            assert_eq!(policy.delay(failures, asked, chance), expected, "{failures} {asked:?} {chance}");
        }
    }

    #[test]
    fn no_setting_makes_a_wait_that_cannot_be_waited() {
        let (most, year) = (Duration::MAX, bounded(Duration::MAX));
        for jitter in [f64::NAN, f64::INFINITY, -1.0, 2.0] {
            let policy =
                RetryPolicy { first_delay: most, longest_delay: most, jitter, ..RetryPolicy::default() };
            for asked in [None, Some(most)] {
                assert!(policy.delay(3, asked, 1.0) <= year * 2, "{jitter} {asked:?}");
            }
        }
    }
}
