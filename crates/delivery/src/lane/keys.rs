//! The order of keys in a lane: which events of a key wait, which are with a member, and who may go on.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::member::Member;

/// How many keys a lane remembers the last member of.
const REMEMBERED: usize = 4_096;

#[derive(Debug, Default)]
struct KeyState {
    /// With a member, or staged to one: always the same member.
    flying: BTreeSet<u64>,
    waiting: BTreeSet<u64>,
    /// Staged to end, or waiting for their dead letter: whatever is behind them waits for that.
    settling: BTreeSet<u64>,
    owner: Option<Member>,
    /// What flies was handed out before a restart: its member may never have seen it, so nothing goes on
    /// before it is settled.
    stalled: bool,
    placed: Option<(u64, Option<Member>)>,
}

impl KeyState {
    /// Takes an event out of wherever it is; `true`: it was waiting.
    fn leave(&mut self, offset: u64) -> bool {
        let waited = self.waiting.remove(&offset);
        self.flying.remove(&offset);
        self.settling.remove(&offset);
        if self.flying.is_empty() {
            self.owner = None;
            self.stalled = false;
        }
        waited
    }
}

/// The keys that have something outstanding, and who had the others last.
///
/// There is one for each group and partition, and most have nothing: it is small then.
#[derive(Debug, Default)]
pub(super) struct Keys {
    outstanding: BTreeMap<u64, KeyState>,
    waiting: usize,
    last: Option<Box<Last>>,
}

/// Who had a key last, the oldest forgotten first.
#[derive(Debug, Default)]
struct Last {
    members: HashMap<u64, Member>,
    order: VecDeque<u64>,
}

impl Last {
    fn remember(&mut self, key: u64, member: Member) {
        if self.members.insert(key, member).is_none() {
            self.order.push_back(key);
            if self.order.len() > REMEMBERED
                && let Some(oldest) = self.order.pop_front()
            {
                self.members.remove(&oldest);
            }
        }
    }
}

impl Keys {
    /// Whether something of the key is outstanding.
    pub(super) fn is_outstanding(&self, key: u64) -> bool {
        self.outstanding.contains_key(&key)
    }

    /// Whether a member may be given a new event of the key, one behind everything outstanding.
    pub(super) fn admits_new(&self, key: u64, member: Member) -> bool {
        match self.outstanding.get(&key) {
            None => true,
            Some(state) => {
                state.waiting.is_empty()
                    && state.settling.is_empty()
                    && !state.stalled
                    && state.owner == Some(member)
            }
        }
    }

    pub(super) fn waits(&mut self, key: u64, offset: u64) {
        let state = self.outstanding.entry(key).or_default();
        let waited = state.leave(offset);
        state.waiting.insert(offset);
        self.waiting += usize::from(!waited);
    }

    pub(super) fn settles(&mut self, key: u64, offset: u64) {
        let state = self.outstanding.entry(key).or_default();
        self.waiting -= usize::from(state.leave(offset));
        state.settling.insert(offset);
    }

    pub(super) fn flies(&mut self, key: u64, offset: u64, member: Member) {
        let state = self.outstanding.entry(key).or_default();
        self.waiting -= usize::from(state.leave(offset));
        state.flying.insert(offset);
        state.owner = Some(member);
        self.last.get_or_insert_default().remember(key, member);
    }

    /// What flies of a key was handed out before a restart.
    pub(super) fn stall(&mut self, key: u64) {
        if let Some(state) = self.outstanding.get_mut(&key) {
            state.stalled = !state.flying.is_empty();
        }
    }

    pub(super) fn ends(&mut self, key: u64, offset: u64) {
        let Some(state) = self.outstanding.get_mut(&key) else { return };
        self.waiting -= usize::from(state.leave(offset));
        if state.flying.is_empty() && state.waiting.is_empty() && state.settling.is_empty() {
            self.outstanding.remove(&key);
        }
    }

    /// Nothing is outstanding: gives back what that took.
    pub(super) fn keep_no_nodes(&mut self) {
        debug_assert!(self.outstanding.is_empty(), "a key without an entry");
        self.outstanding = BTreeMap::new();
    }

    /// The first waiting event of a key, and who alone may take it (`None`: anybody).
    pub(super) fn head(&self, key: u64) -> Option<(u64, Option<Member>)> {
        let state = self.outstanding.get(&key)?;
        let head = *state.waiting.first()?;
        if state.stalled || state.settling.first().is_some_and(|settling| *settling < head) {
            return None;
        }
        Some((head, state.owner))
    }

    /// What is with a member and lies behind an event of the key.
    pub(super) fn flying_behind(&self, key: u64, offset: u64) -> Vec<u64> {
        self.outstanding
            .get(&key)
            .map(|state| state.flying.range(offset + 1..).copied().collect())
            .unwrap_or_default()
    }

    pub(super) fn take_placed(&mut self, key: u64) -> Option<(u64, Option<Member>)> {
        self.outstanding.get_mut(&key)?.placed.take()
    }

    pub(super) fn set_placed(&mut self, key: u64, offset: u64, owner: Option<Member>) {
        if let Some(state) = self.outstanding.get_mut(&key) {
            state.placed = Some((offset, owner));
        }
    }

    /// The keys of which something waits in front of something that is with a member.
    pub(super) fn out_of_order(&self) -> Vec<(u64, u64)> {
        self.outstanding
            .iter()
            .filter_map(|(key, state)| {
                let head = *state.waiting.first()?;
                state.flying.last().is_some_and(|last| *last > head).then_some((*key, head))
            })
            .collect()
    }

    /// How many events wait, of all keys.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The member that had the key last.
    pub(super) fn last_member(&self, key: u64) -> Option<Member> {
        self.last.as_ref()?.members.get(&key).copied()
    }

    pub(super) fn busiest(&self) -> Option<(u64, usize)> {
        self.outstanding
            .iter()
            .map(|(key, state)| (*key, state.flying.len() + state.waiting.len() + state.settling.len()))
            .max_by_key(|(_, outstanding)| *outstanding)
    }
}
