//! How a subscriber is reached once something is for it.
//!
//! [`Waiters`] are the long polls of a group that found nothing, and a wake-up tells one of them to look again.
//! A [`Mailbox`] is what is ready for one stream. Nothing here knows offsets, retries or routes.

mod mailbox;
mod waiters;

pub use mailbox::{Mailbox, Overflow, Room, Waiting};
pub use waiters::{Waiter, Waiters};
