//! Mechanisms without a domain noun: the clock, chance, named tasks, backoff, the one backend error, the
//! drop-guard lease, the nearest known word, the mask of secrets, the map for readers and the metric registry. An operator recognises none of these types; everything
//! in the project may use them and they use nothing of ours.

mod backend;
mod backoff;
mod chance;
mod clock;
mod lease;
mod masked;
mod nearest;
mod range;
mod read_map;
mod signals;
mod sorted_map;
mod tasks;

pub use backend::{BackendError, BackendErrorKind};
pub use backoff::Backoff;
pub use chance::Chance;
pub use clock::{Clock, UnixMillis};
pub use lease::Lease;
pub use masked::{MASK, without_url_secrets};
pub use nearest::nearest;
pub use range::Range;
pub use read_map::ReadMap;
pub use signals::{Counter, CounterFamily, Gauge, Signals};
pub use sorted_map::SortedMap;
pub use tasks::{Stop, Tasks};
