//! What the caches can say.

use mesh_frame::Offset;

/// What the caches know from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cached {
    /// Everything up to this offset was given; it may be the end.
    UpTo(Offset),
    /// Nothing from the asked offset to this one is there any more: go on from here.
    GoneTo(Offset),
    /// The record is in the log but not in memory: [`crate::Storage::warm`] it.
    Cold,
}
