//! Who gets what now: by long poll, and by stream.
//!
//! Both take from the same lanes in the same way ([`take`]) and learn in the same way what stands of it
//! ([`hand_outs`]); a poll waits in its own task, streams are filled by one task a topic. Where filters cost much they take
//! turns ([`filter_turns`]).

pub(crate) mod delivery_id;
mod fan_out;
pub(crate) mod filter_turns;
pub(crate) mod hand_outs;
pub(crate) mod poll;
pub(crate) mod stream;
pub(crate) mod streams;
mod take;
