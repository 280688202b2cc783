//! How many polls each client has under way: a bound, so that one client cannot fill the server with waiters.

use std::{collections::HashMap, sync::Arc};

use mesh_frame::{ClientId, TenantId};
use parking_lot::Mutex;

/// A client of a tenant.
type Who = (TenantId, ClientId);

/// Polls under way, by client; clients without one are not listed.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitingPolls(Arc<Mutex<HashMap<Who, usize>>>);

/// A poll under way; dropping it ends it.
#[derive(Debug)]
pub(super) struct WaitingPoll {
    polls: WaitingPolls,
    who: Who,
}

impl WaitingPolls {
    /// One more poll of a client, unless it has `most` already.
    pub(super) fn enter(&self, tenant: &TenantId, client: &ClientId, most: usize) -> Option<WaitingPoll> {
        let who = (tenant.clone(), client.clone());
        let mut polls = self.0.lock();
        let count = polls.entry(who.clone()).or_insert(0);
        if *count >= most {
            return None;
        }
        *count += 1;
        drop(polls);
        Some(WaitingPoll { polls: self.clone(), who })
    }
}

impl Drop for WaitingPoll {
    fn drop(&mut self) {
        let mut polls = self.polls.0.lock();
        if let Some(count) = polls.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                polls.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_no_more_polls_than_it_may_and_ended_ones_do_not_count() {
        // covers: U179
        let polls = WaitingPolls::default();
        let tenant = TenantId::new("default").expect("legal");
        let client = |name| ClientId::new(name).expect("legal");
        let first = polls.enter(&tenant, &client("a"), 2).expect("room");
        let second = polls.enter(&tenant, &client("a"), 2).expect("room");
        assert!(polls.enter(&tenant, &client("a"), 2).is_none());
        assert!(polls.enter(&tenant, &client("b"), 2).is_some());
        drop(first);
        assert!(polls.enter(&tenant, &client("a"), 2).is_some());
        drop(second);
        assert!(polls.0.lock().is_empty());
    }
}
