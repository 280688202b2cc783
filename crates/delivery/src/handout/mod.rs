//! Who gets what now: by long poll, and by stream.
//!
//! Both take from the same lanes in the same way ([`take`]); a poll waits in its own task, streams are filled by one
//! task a topic.

pub(crate) mod poll;
pub(crate) mod stream;
pub(crate) mod take;
