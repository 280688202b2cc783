//! The one source of chance that is not secret: for jitter, for fairness, and for ids that only have to differ.
//!
//! In production it is the system's; a test seeds it, and the same seed gives the same run. Keys, tickets and whatever
//! else nobody may guess are never drawn from it.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

/// A source of random numbers; cheap to clone. Clones draw from the same row.
#[derive(Clone)]
pub struct Chance(Source);

#[derive(Clone)]
enum Source {
    System,
    Seeded(Arc<Mutex<StdRng>>),
}

impl Chance {
    /// The system's.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// The row of numbers that belongs to a seed: the same in every run.
    pub fn seeded(seed: u64) -> Self {
        Self(Source::Seeded(Arc::new(Mutex::new(StdRng::seed_from_u64(seed)))))
    }

    /// Any number.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that draws from the system")]
    pub fn number(&self) -> u64 {
        match &self.0 {
            Source::System => rand::random(),
            Source::Seeded(row) => row.lock().next_u64(),
        }
    }

    /// A number from 0 up to but without 1, all of them alike likely.
    pub fn share(&self) -> f64 {
        // The 53 bits that an `f64` has.
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Fills bytes, for ids that have to differ and may be guessed.
    pub fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.number().to_be_bytes()[..chunk.len()]);
        }
    }
}

impl fmt::Debug for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::System => "Chance(system)",
            Source::Seeded(_) => "Chance(seeded)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_row_and_clones_go_on_with_it() {
        let draw = |chance: &Chance| -> Vec<u64> { (0..4).map(|_| chance.number()).collect() };
        let (one, same, other) = (Chance::seeded(7), Chance::seeded(7), Chance::seeded(8));
        let first = draw(&one);
        assert_eq!(first, draw(&same));
        assert_ne!(first, draw(&other));
        assert_eq!(draw(&one.clone()), draw(&same), "the clone goes on, it does not begin again");
        assert_ne!(draw(&Chance::system()), draw(&Chance::system()));
    }

    #[test]
    fn shares_are_spread_over_the_whole_range() {
        let chance = Chance::seeded(1);
        let shares: Vec<f64> = (0..10_000).map(|_| chance.share()).collect();
        assert!(shares.iter().all(|share| (0.0..1.0).contains(share)));
        let mean = shares.iter().sum::<f64>() / 10_000.0;
        assert!((0.48..0.52).contains(&mean), "{mean}");
        let mut bytes = [0; 11];
        chance.fill(&mut bytes);
        assert!(bytes[8..].iter().any(|byte| *byte != 0), "{bytes:?}");
    }
}
