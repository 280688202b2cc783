//! When members were heard of last, for those that silence ends.

use std::{collections::HashMap, time::Duration};

use mesh_base::UnixMillis;
use parking_lot::Mutex;

use crate::lane::Member;

/// When each member polled, opened or closed a stream, or settled something last. Nothing is kept where silence ends nothing.
#[derive(Debug)]
pub(crate) struct Activity {
    timeout: Option<Duration>,
    heard: Mutex<HashMap<Member, UnixMillis>>,
}

impl Activity {
    pub(crate) fn new(timeout: Option<Duration>) -> Self {
        Self { timeout, heard: Mutex::default() }
    }

    /// After how long a silence a member is removed.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// A member is there.
    pub(crate) fn heard(&self, member: Member, now: UnixMillis) {
        if self.timeout.is_some() {
            self.heard.lock().insert(member, now);
        }
    }

    /// Whether nothing was heard of a member for too long. One that was never heard of counts from now on.
    pub(crate) fn is_silent(&self, member: Member, now: UnixMillis) -> bool {
        let Some(timeout) = self.timeout else { return false };
        let last = *self.heard.lock().entry(member).or_insert(now);
        now.since(last) >= timeout
    }

    /// Forgets those that are none of these any more.
    pub(crate) fn keep(&self, members: impl Fn(Member) -> bool) {
        self.heard.lock().retain(|member, _| members(*member));
    }
}
