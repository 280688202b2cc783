//! A token bucket, kept as the moment when it is full again.
//!
//! A cost is the time its tokens take to come back. A full bucket gives whatever is asked, also more than it
//! holds: what it gave too much is a debt, and nothing is given before it is worked off. So a batch larger than
//! the bucket gets through, and over time nobody gets more than the rate.

use std::time::Duration;

/// A length or a moment of time, in 2^-20 nanoseconds: fine enough for the price of a byte at any rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticks(u128);

const TICKS_IN_NANO: u128 = 1 << 20;
const TICKS_IN_SECOND: u128 = 1_000_000_000 * TICKS_IN_NANO;

impl Ticks {
    /// One second.
    pub(crate) const SECOND: Self = Self(TICKS_IN_SECOND);

    /// The time that so many tokens take at so many a second; `None` when they never come.
    pub(crate) fn of(tokens: u64, per_second: u64) -> Option<Self> {
        (u128::from(tokens) * TICKS_IN_SECOND).checked_div(per_second.into()).map(Self)
    }

    /// The time that one token takes; the rate is a positive number.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are positive and bounded"
    )]
    #[expect(clippy::cast_precision_loss, reason = "the number of ticks in a second is known to 16 digits")]
    pub(crate) fn of_one(per_second: f64) -> Self {
        Self((TICKS_IN_SECOND as f64 / per_second) as u128)
    }

    /// That many times as long.
    pub(crate) fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count.into()))
    }

    fn rounded_up(self) -> Duration {
        let nanos = self.0.div_ceil(TICKS_IN_NANO);
        u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
    }
}

impl From<Duration> for Ticks {
    fn from(duration: Duration) -> Self {
        Self(duration.as_nanos().saturating_mul(TICKS_IN_NANO))
    }
}

/// A bucket; a new one is full.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    full_at: Ticks,
}

impl Bucket {
    /// Whether something of that cost can be taken now from a bucket that holds `capacity`.
    ///
    /// # Errors
    /// How long to wait until it can, if nobody else takes anything.
    pub(crate) fn check(self, now: Ticks, cost: Ticks, capacity: Ticks) -> Result<(), Duration> {
        let missing = self.full_at.0.saturating_sub(now.0);
        let left_after = missing.saturating_add(cost.0);
        if missing == 0 || left_after <= capacity.0 {
            return Ok(());
        }
        // What is larger than the bucket waits until it is full.
        Err(Ticks(left_after.saturating_sub(capacity.0).min(missing)).rounded_up())
    }

    /// Takes it, whether or not it is there.
    pub(crate) fn take(&mut self, now: Ticks, cost: Ticks) {
        self.full_at = Ticks(self.full_at.0.max(now.0).saturating_add(cost.0));
    }

    /// Puts it back; what the bucket cannot hold is lost.
    pub(crate) fn give_back(&mut self, cost: Ticks) {
        self.full_at = Ticks(self.full_at.0.saturating_sub(cost.0));
    }

    /// Whether nothing is missing.
    pub(crate) fn is_full(self, now: Ticks) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn millis(millis: u64) -> Ticks {
        Duration::from_millis(millis).into()
    }

    #[test]
    fn a_batch_larger_than_the_bucket_passes_when_it_is_full_and_leaves_a_debt() {
        let mut bucket = Bucket::default();
        let cost = |tokens| Ticks::of(tokens, 10).expect("a rate");
        assert_eq!(bucket.check(millis(0), cost(25), Ticks::SECOND), Ok(()));
        bucket.take(millis(0), cost(25));
        assert_eq!(bucket.check(millis(0), cost(1), Ticks::SECOND), Err(Duration::from_millis(1_600)));
        assert_eq!(bucket.check(millis(1_600), cost(1), Ticks::SECOND), Ok(()));
        assert_eq!(bucket.check(millis(1_600), cost(11), Ticks::SECOND), Err(Duration::from_millis(900)));
        assert!(!bucket.is_full(millis(2_499)) && bucket.is_full(millis(2_500)));
        assert_eq!(Ticks::of(1, 0), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nobody_gets_more_than_the_rate_and_who_waits_as_told_gets_it(
            rate in 1u64..2_000_000_000_000,
            asked in prop::collection::vec((0u64..3_000_000_000_000, 0u64..2_000_000_000), 1..60),
        ) {
            let (mut bucket, mut now, mut taken) = (Bucket::default(), Duration::ZERO, 0u128);
            for (tokens, nanos) in asked {
                now += Duration::from_nanos(nanos);
                let cost = Ticks::of(tokens, rate).expect("a rate");
                if let Err(wait) = bucket.check(now.into(), cost, Ticks::SECOND) {
                    prop_assert!(wait > Duration::ZERO);
                    let just_before = now + wait.saturating_sub(Duration::from_nanos(2));
                    prop_assert!(wait.as_nanos() < 3
                        || bucket.check(just_before.into(), cost, Ticks::SECOND).is_err());
                    now += wait;
                    prop_assert_eq!(bucket.check(now.into(), cost, Ticks::SECOND), Ok(()));
                }
                // Before this one: never more than a bucket and what has come since, plus one debt.
                let come = u128::from(rate) + now.as_nanos() * u128::from(rate) / 1_000_000_000;
                prop_assert!(taken <= come + 60, "{taken} of {come}");
                bucket.take(now.into(), cost);
                taken += u128::from(tokens);
            }
        }
    }
}
