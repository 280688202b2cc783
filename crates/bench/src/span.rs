//! How long a load runs.

use clap::Args;

/// How long a load runs.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Span {
    /// Seconds that count
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// Seconds before them that do not
    #[arg(long, default_value_t = 1.0)]
    pub(crate) warmup: f64,
}
