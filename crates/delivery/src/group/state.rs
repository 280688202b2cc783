//! What the lock of a group guards: its settings, members, lanes, streams, and what its commits are about to complete.
//!
//! A commit's completion stands here, in the order of the commits: the next holder of the lock carries it out, so that
//! it depends on no request.

use std::{collections::VecDeque, sync::Arc};

use mesh_base::{SortedMap, UnixMillis};
use mesh_frame::{ClientId, Offset, PartitionId, TenantId, TopicName};
use mesh_push::{Overflow, Waiters};
use mesh_state::positions::{Commit, Decision, LedgerEpoch, PositionBatch};
use mesh_storage::{Cached, LogRecord, Partition};

use super::{
    member::{Membership, member_of},
    settings::Settings,
    streams::{GroupStreams, Parcel, Stream},
};
use crate::lane::{AckMode, Lane, Member, Source, Taken, Terms, Windows, delivery_bytes};

/// What the mutex guards.
#[derive(Debug)]
pub(crate) struct GroupState {
    pub(crate) settings: Settings,
    pub(crate) terms: Terms,
    pub(crate) members: SortedMap<ClientId, Membership>,
    /// What each member may have in flight.
    pub(crate) limits: SortedMap<Member, u32>,
    pub(crate) windows: Windows,
    pub(crate) lanes: Vec<PartitionLane>,
    /// The view of the database the lanes are of; `None`: not loaded.
    pub(crate) epoch: Option<LedgerEpoch>,
    pub(crate) turn: usize,
    /// The streams of its members.
    pub(crate) streams: GroupStreams,
    /// What commits under way complete, in the order they were handed in.
    pub(crate) staged: VecDeque<Staged>,
}

/// What a commit completes in the lanes of its group.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) decision: Decision,
    /// The view of the database it was made from.
    pub(crate) epoch: LedgerEpoch,
    /// Hand-outs, with what ended on the way.
    pub(crate) taken: Option<Arc<Vec<(PartitionId, Taken)>>>,
    /// For which stream, beside each of them; empty when they are for a poll.
    pub(crate) to: Vec<Arc<Stream>>,
    /// Deliveries that end with it.
    pub(crate) ends: Vec<(PartitionId, Offset)>,
    /// How many of these were acknowledged.
    pub(crate) acked: u64,
    /// Progress that no hand-out carries.
    pub(crate) progress: Vec<(PartitionId, Offset)>,
    /// Whether deliveries wait for their dead letters with it.
    pub(crate) dead: bool,
}

/// What completing commits came to.
#[derive(Debug, Default)]
pub(crate) struct Completed {
    /// Deliveries wait for their dead letters since.
    pub(crate) dead: bool,
    /// Deliveries that no mailbox took.
    pub(crate) returned: u64,
    /// Deliveries that were acknowledged.
    pub(crate) acked: u64,
}

impl Staged {
    /// A commit that completes nothing yet.
    pub(crate) fn new(commit: &Commit, epoch: LedgerEpoch) -> Self {
        Self {
            decision: commit.decision(),
            epoch,
            taken: None,
            to: Vec::new(),
            ends: Vec::new(),
            acked: 0,
            progress: Vec::new(),
            dead: false,
        }
    }
}

/// A lane with its partition.
#[derive(Debug)]
pub(crate) struct PartitionLane {
    pub(crate) partition: Arc<Partition>,
    pub(crate) lane: Lane,
}

impl GroupState {
    /// Completes what was committed since, in the order of the commits. What that changes in turn is staged into
    /// `batch`.
    pub(crate) fn complete(&mut self, now: UnixMillis, batch: &mut PositionBatch) -> Completed {
        let mut completed = Completed::default();
        while let Some(answer) = self.staged.front().and_then(|staged| staged.decision.answer()) {
            let Some(staged) = self.staged.pop_front() else { break };
            // After a failure the lanes are read again, and say themselves what holds.
            if answer.is_err() || self.epoch != Some(staged.epoch) {
                continue;
            }
            completed.dead |= staged.dead;
            completed.acked += staged.acked;
            for (partition, taken) in staged.taken.iter().flat_map(|taken| taken.iter()) {
                if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.partition.id() == *partition) {
                    lane.lane.handed(taken);
                    lane.lane.ended(&taken.ends, &mut self.windows, now);
                }
            }
            for (partition, offset) in &staged.ends {
                if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.partition.id() == *partition) {
                    lane.lane.ended(&[*offset], &mut self.windows, now);
                }
            }
            for (partition, next) in &staged.progress {
                if let Some(lane) = self.lane(*partition) {
                    lane.progressed(*next);
                }
            }
            if !staged.to.is_empty() {
                completed.returned += self.put_into_mailboxes(&staged, now, batch);
            }
        }
        if self.staged.is_empty() {
            // Most groups are idle most of the time, and keep no room for what they had under way.
            self.staged = VecDeque::new();
        }
        completed
    }

    /// Puts what was taken for streams into their mailboxes, in the same step as it is confirmed: a stream that ends
    /// finds each delivery either in its mailbox or written. What cannot be put goes back; how many did.
    fn put_into_mailboxes(&mut self, staged: &Staged, now: UnixMillis, batch: &mut PositionBatch) -> u64 {
        let (auto, group) = (self.terms.ack == AckMode::Auto, self.streams.group());
        let overflow = if auto { Overflow::Keep } else { Overflow::Refuse };
        let mut returned = 0;
        let taken = staged.taken.iter().flat_map(|taken| taken.iter());
        let mut all = taken.zip(&staged.to).peekable();
        while let Some(stream) = all.peek().map(|(_, stream)| *stream) {
            let mut parcels: Vec<(usize, Parcel)> = Vec::new();
            while let Some(((partition, taken), _)) = all.next_if(|(_, other)| Arc::ptr_eq(other, stream)) {
                let Some(lane) = self.lane(*partition) else { continue };
                parcels.extend(taken.standing(lane).map(|hand_out| {
                    let parcel = Parcel { group, partition: *partition, hand_out: hand_out.clone(), auto };
                    (delivery_bytes(&hand_out.record), parcel)
                }));
            }
            // A stream that was replaced or closed since gets nothing more.
            let back = if self.streams.is_open(stream) {
                stream.mailbox.put(parcels, overflow, now.0)
            } else {
                parcels.into_iter().map(|(_, parcel)| parcel).collect()
            };
            returned += back.len() as u64;
            self.give_back(&back, now, batch);
        }
        returned
    }

    pub(crate) fn lane(&mut self, partition: PartitionId) -> Option<&mut Lane> {
        self.lanes.iter_mut().find(|lane| lane.partition.id() == partition).map(|lane| &mut lane.lane)
    }

    /// Up to how many deliveries a member could take, cheaply and about.
    pub(crate) fn available(&self) -> usize {
        self.lanes
            .iter()
            .map(|lane| {
                let unseen = lane.partition.end().0.saturating_sub(lane.lane.scanned().0);
                lane.lane.waiting() + usize::try_from(unseen).unwrap_or(usize::MAX / 4_096)
            })
            .sum()
    }

    /// Whether an event of the group may be what ends its consumers.
    pub(crate) fn has_suspects(&self) -> bool {
        self.lanes.iter().any(|lane| lane.lane.has_suspects())
    }

    /// Whether the stream of a member has such an event, and gets nothing else.
    pub(crate) fn is_alone(&self, member: Member) -> bool {
        self.lanes.iter().any(|lane| lane.lane.is_alone_with(member, true))
    }

    /// Whether a member has such an event in any way, and gets no second one.
    pub(crate) fn has_suspect(&self, member: Member) -> bool {
        self.lanes.iter().any(|lane| lane.lane.is_alone_with(member, false))
    }

    /// Of the streams of these members the one that is given nothing more until it has nothing, so that it can be given
    /// what goes alone: the one with the least in flight.
    pub(crate) fn emptied(&self, streams: impl Iterator<Item = Member>) -> Option<Member> {
        let could = |member: &Member| {
            !self.has_suspect(*member)
                && self.lanes.iter().any(|lane| lane.lane.suspect_for(*member).is_some())
        };
        let least = streams.filter(could).min_by_key(|member| (self.windows.of(*member), *member))?;
        (self.windows.of(least) > 0).then_some(least)
    }

    pub(crate) fn next_timer(&self) -> Option<UnixMillis> {
        self.lanes.iter().filter_map(|lane| lane.lane.next_timer()).min()
    }

    pub(crate) fn pending(&self) -> usize {
        self.lanes.iter().map(|lane| lane.lane.pending()).sum()
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.lanes.iter().map(|lane| lane.lane.outstanding()).sum()
    }

    /// Whether deliveries wait for their dead letters.
    pub(crate) fn has_dead(&self) -> bool {
        self.lanes.iter().any(|lane| lane.lane.dead().next().is_some())
    }

    /// Makes a client a member, or changes what it may have.
    pub(crate) fn admit(&mut self, tenant: &TenantId, client: &ClientId, membership: Membership) {
        self.limits.insert(member_of(tenant, client), membership.max_in_flight);
        self.members.insert(client.clone(), membership);
    }

    /// Ends a membership.
    pub(crate) fn dismiss(&mut self, tenant: &TenantId, client: &ClientId) {
        self.limits.remove(&member_of(tenant, client));
        self.members.remove(client);
    }

    /// Whether a member's window has room.
    pub(crate) fn has_room(&self, member: Member) -> bool {
        self.window(member) > 0
    }

    /// Brings every lane to now. What waits in a mailbox with its lock run out goes back before that; how
    /// many did.
    pub(crate) fn advance(&mut self, now: UnixMillis, batch: &mut PositionBatch) -> u64 {
        let is_due = self.next_timer().is_some_and(|at| at <= now);
        let late = if is_due { self.streams.take_late(now) } else { Vec::new() };
        self.give_back(&late, now, batch);
        for lane in &mut self.lanes {
            lane.lane.advance(now, &self.terms, &mut self.windows, batch);
        }
        late.len() as u64
    }

    /// Stages the return of what never was written to a stream.
    pub(crate) fn give_back(&mut self, parcels: &[Parcel], now: UnixMillis, batch: &mut PositionBatch) {
        for Parcel { partition, hand_out, .. } in parcels {
            if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.partition.id() == *partition) {
                let offset = hand_out.record.offset();
                lane.lane.give_back(offset, hand_out.serial, now, &mut self.windows, batch);
                if let Some(gap) = &hand_out.gap {
                    lane.lane.tell_again(gap);
                }
            }
        }
    }

    /// What a member's window has left.
    pub(crate) fn window(&self, member: Member) -> usize {
        match self.terms.ack {
            AckMode::Auto => usize::MAX,
            AckMode::Explicit => {
                let most = self.limits.get(&member).copied().unwrap_or(0);
                most.saturating_sub(self.windows.of(member)) as usize
            }
        }
    }

    /// How many streams of other members could take something of the topic, which is the group's.
    pub(crate) fn streams_with_room(&self, other_than: Member, topic: &TopicName) -> usize {
        let others = self.streams.all().filter(|stream| stream.member != other_than);
        let could = |stream: &&Arc<Stream>| {
            self.window(stream.member) > 0
                && stream.mailbox.has_plenty()
                && stream.receiver.may_receive(topic)
        };
        others.filter(could).count()
    }

    /// Wakes those who wait and could be given something: any for what is free, and the members that alone
    /// may go on with a key.
    pub(crate) fn wake(&self, waiters: &Waiters) {
        if waiters.is_empty() && self.streams.is_empty() {
            return;
        }
        if self.has_work() {
            waiters.wake(self.available(), |member| self.has_room(Member(member)));
            self.streams.wake();
        }
        for runner in self.lanes.iter().flat_map(|lane| lane.lane.runners()) {
            self.wake_member(waiters, runner);
        }
    }

    /// Wakes those who may be given something of `records` that were appended.
    pub(crate) fn wake_for(&self, waiters: &Waiters, records: usize) {
        waiters.wake(records, |member| self.has_room(Member(member)));
        self.streams.wake();
    }

    /// Wakes one poll of a member that has room, and its stream.
    pub(crate) fn wake_member(&self, waiters: &Waiters, member: Member) {
        if self.has_room(member) {
            waiters.wake(1, |other| other == member.0);
            if self.streams.has(member) {
                self.streams.wake();
            }
        }
    }

    /// Whether anybody could be given something now.
    pub(crate) fn has_work(&self) -> bool {
        self.lanes.iter().any(|lane| {
            lane.lane.ready() > 0
                || (lane.lane.scanned() < lane.partition.end()
                    && lane.lane.outstanding() < self.terms.max_outstanding)
        })
    }
}

/// A partition's caches as a lane's source.
pub(crate) struct PartitionSource<'a>(pub(crate) &'a Partition);

impl Source for PartitionSource<'_> {
    fn records(&mut self, from: Offset, most: usize, out: &mut Vec<Arc<LogRecord>>) -> Cached {
        self.0.cached(from, most, out)
    }
}
