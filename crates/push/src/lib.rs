//! How a subscriber is reached once something is for it.
//!
//! Today that is the long poll: [`Waiters`] are the polls of a group that found nothing, and a wake-up tells
//! one of them to look again. Nothing here knows offsets, retries or routes.

mod waiters;

pub use waiters::{Waiter, Waiters};
