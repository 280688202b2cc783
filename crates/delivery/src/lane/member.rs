//! A member as lanes know it, and what each has in flight.

use mesh_base::SortedMap;

/// A member of a group, by a hash of its client id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member(pub u64);

/// What is in flight per member, over all lanes of a group.
#[derive(Debug, Default)]
pub struct Windows(SortedMap<Member, u32>);

impl Windows {
    /// How many deliveries a member has in flight.
    pub fn of(&self, member: Member) -> u32 {
        self.0.get(&member).copied().unwrap_or(0)
    }

    /// How many deliveries all members have in flight.
    pub(crate) fn sum(&self) -> u64 {
        self.0.values().map(|held| u64::from(*held)).sum()
    }

    /// The members that have as much in flight as they may.
    pub(crate) fn full(&self, limits: &SortedMap<Member, u32>) -> Vec<Member> {
        let is_full = |member: &Member, held: u32| limits.get(member).is_none_or(|most| held >= *most);
        self.0.iter().filter(|(member, held)| is_full(member, **held)).map(|(member, _)| *member).collect()
    }

    pub(crate) fn add(&mut self, member: Member) {
        *self.0.or_default(member) += 1;
    }

    /// Adds what others have in flight too.
    pub(crate) fn add_all(&mut self, others: &Self) {
        for (member, held) in others.0.iter() {
            *self.0.or_default(*member) += held;
        }
    }

    pub(crate) fn remove(&mut self, member: Member) {
        if let Some(count) = self.0.get_mut(&member) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.0.remove(&member);
            }
        }
    }
}
