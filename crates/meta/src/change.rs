//! What each change does to what a key holds, for the drivers that live in this process.
//!
//! Each function gives the rule of one change: from what the key holds and the revision the change would
//! have, what happens to the key and what the caller is told.

use bytes::Bytes;

use crate::{Delete, PutIfAbsent, Remove, Revision, Swap, Versioned, WatchEvent};

/// What happens to the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    Put(Bytes),
    Delete,
}

impl Effect {
    /// What watchers are told of it.
    pub(crate) fn event(self, key: String, revision: Revision) -> Option<WatchEvent> {
        match self {
            Self::Nothing => None,
            Self::Put(value) => Some(WatchEvent::Put { key, value, revision }),
            Self::Delete => Some(WatchEvent::Delete { key, revision }),
        }
    }
}

pub(crate) fn put_if_absent(
    value: Bytes,
) -> impl FnOnce(Option<&Versioned>, Revision) -> (Effect, PutIfAbsent) + Send + 'static {
    move |current, next| match current {
        Some(current) => (Effect::Nothing, PutIfAbsent::AlreadyThere(current.clone())),
        None => (Effect::Put(value), PutIfAbsent::Written(next)),
    }
}

pub(crate) fn try_acquire(
    expected: Bytes,
    new: Bytes,
) -> impl FnOnce(Option<&Versioned>, Revision) -> (Effect, Swap) + Send + 'static {
    move |current, next| match current {
        Some(current) if current.value == expected => (Effect::Put(new), Swap::Swapped(next)),
        other => (Effect::Nothing, Swap::Stale(other.cloned())),
    }
}

pub(crate) fn try_remove(
    expected: Bytes,
) -> impl FnOnce(Option<&Versioned>, Revision) -> (Effect, Remove) + Send + 'static {
    move |current, next| match current {
        Some(current) if current.value == expected => (Effect::Delete, Remove::Removed(next)),
        other => (Effect::Nothing, Remove::Stale(other.cloned())),
    }
}

pub(crate) fn put(
    value: Bytes,
) -> impl FnOnce(Option<&Versioned>, Revision) -> (Effect, Revision) + Send + 'static {
    move |_, next| (Effect::Put(value), next)
}

pub(crate) fn delete() -> impl FnOnce(Option<&Versioned>, Revision) -> (Effect, Delete) + Send + 'static {
    move |current, next| match current {
        Some(_) => (Effect::Delete, Delete::Deleted(next)),
        None => (Effect::Nothing, Delete::Absent),
    }
}
