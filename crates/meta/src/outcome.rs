//! What the primitives answer: a lost race is an outcome to match on, never an error.

use std::fmt;

use bytes::Bytes;

/// A number the whole store shares that rises with every change of any key, removals included. Of two
/// changes the later one has the higher revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A value and the change that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The value, byte for byte as it was written.
    pub value: Bytes,
    /// The change that wrote it.
    pub revision: Revision,
}

/// How a first-write-wins write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the change may not have been made"]
pub enum PutIfAbsent {
    /// The key was free and now holds the value.
    Written(Revision),
    /// The key holds this; nothing was changed.
    AlreadyThere(Versioned),
}

/// How a compare-and-set ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the change may not have been made"]
pub enum Swap {
    /// The key held the expected value and now holds the new one.
    Swapped(Revision),
    /// The key holds this, or nothing; nothing was changed.
    Stale(Option<Versioned>),
}

/// How a conditional removal ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the change may not have been made"]
pub enum Remove {
    /// The key held the expected value and is free now.
    Removed(Revision),
    /// The key holds this, or nothing; nothing was changed.
    Stale(Option<Versioned>),
}

/// How an unconditional removal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delete {
    /// The key held something and is free now.
    Deleted(Revision),
    /// The key was free.
    Absent,
}

/// Which part of a listing is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Only keys above this one. It need not exist.
    pub after: Option<String>,
    /// At most so many entries; at least 1.
    pub max: usize,
}

impl Page {
    /// The first `max` entries.
    pub fn first(max: usize) -> Self {
        Self { after: None, max }
    }

    /// The `max` entries above `key`.
    pub fn after(key: impl Into<String>, max: usize) -> Self {
        Self { after: Some(key.into()), max }
    }
}

/// A key with what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its value and the change that wrote it.
    pub current: Versioned,
}

/// One page of a listing, in the byte order of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The page shows at least every change up to this one: a key that was last written at or before it
    /// and is missing from the listing has been removed.
    pub revision: Revision,
    /// The entries.
    pub entries: Vec<Entry>,
    /// Whether there are entries above the last one. A page may be shorter than asked for and still have more.
    pub more: bool,
}
