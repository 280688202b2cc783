//! Chance that can be replayed: a seed from the environment or a new one, always printed.

use rand::{SeedableRng, rngs::StdRng};

/// The seed of one run of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// The seed in the environment variable `name`, else a new one. It is printed either way; the test runner
    /// shows what was printed when the test fails.
    ///
    /// # Panics
    /// When the variable is set and is no number.
    pub fn from_environment(name: &str) -> Self {
        let seed = match std::env::var(name) {
            Ok(text) => {
                text.trim().parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}"))
            }
            #[expect(clippy::disallowed_methods, reason = "this is where a test without a seed gets one")]
            Err(_) => rand::random(),
        };
        println!("replay with {name}={seed}");
        Self(seed)
    }

    /// The generator of one part of the run: parts do not disturb each other's draws.
    pub fn generator(self, part: u64) -> StdRng {
        StdRng::seed_from_u64(self.0 ^ part.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
}

/// How many rounds a suite runs: the number in the environment variable `name`, else `usual`.
///
/// # Panics
/// When the variable is set and is no number.
pub fn rounds(name: &str, usual: u32) -> u32 {
    match std::env::var(name) {
        Ok(text) => text.trim().parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")),
        Err(_) => usual,
    }
}
