//! Waiting longer after each failure: doubling from a floor to a cap, with jitter.
//!
//! The exponent is clamped before the shift and the jitter is taken from the clamped value, so that no
//! attempt number, however large, gives a wait below the floor or a panic.

use std::time::Duration;

use crate::Chance;

/// A doubling wait between `first` and `max`, with a symmetric jitter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    jitter: f64,
}

impl Backoff {
    /// Waits `first`, then twice that, up to `max`; each ± `jitter` (a share, 0.2 = 20 %).
    pub fn new(first: Duration, max: Duration, jitter: f64) -> Self {
        Self { first, max: max.max(first), jitter: jitter.clamp(0.0, 1.0) }
    }

    /// The wait after failure number `attempt` (from 1), without jitter.
    pub fn base(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(32);
        self.first.saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(self.max)
    }

    /// The wait after failure number `attempt` (from 1); `chance` in 0..1 places it in the jitter's range.
    pub fn delay(&self, attempt: u32, chance: f64) -> Duration {
        let factor = 1.0 + self.jitter * (2.0 * chance.clamp(0.0, 1.0) - 1.0);
        self.base(attempt).mul_f64(factor)
    }

    /// [`Backoff::delay`] with a place in the range that is left to chance.
    pub fn random_delay(&self, attempt: u32, chance: &Chance) -> Duration {
        self.delay(attempt, chance.share())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_the_cap_within_the_jitter() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(16), 0.2);
        let bases: Vec<u64> = (1..=7).map(|n| backoff.base(n).as_secs()).collect();
        assert_eq!(bases, [1, 2, 4, 8, 16, 16, 16]);
        assert_eq!(backoff.delay(1, 0.0), Duration::from_millis(800));
        assert_eq!(backoff.delay(5, 1.0), Duration::from_millis(19_200));
    }

    // covers: U49
    #[test]
    fn never_falls_below_the_floor_at_any_attempt() {
        let backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(50), 0.2);
        for attempt in (0..1_000).chain([u32::MAX - 1, u32::MAX]) {
            for chance in [0.0, 0.5, 1.0, f64::NAN] {
                let delay = backoff.delay(attempt, if chance.is_nan() { 0.3 } else { chance });
                assert!(delay >= Duration::from_millis(4), "attempt {attempt}: {delay:?}");
                assert!(delay <= Duration::from_millis(60), "attempt {attempt}: {delay:?}");
            }
        }
    }
}
