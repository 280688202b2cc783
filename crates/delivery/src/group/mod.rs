//! A group: its settings, its members, its lanes, and who waits.
//!
//! One short mutex guards it, never held over an await. Batches are handed to the position log under that
//! mutex, so that they are committed in the order they were made.

pub(crate) mod backlog;
pub(crate) mod client;
pub(crate) mod marked;
pub(crate) mod receiver;
pub mod settings;
mod start_at;
pub(crate) mod topic_groups;

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use mesh_base::{BackendError, UnixMillis};
use mesh_frame::{ClientId, Offset, SubscriptionId, TenantId, TopicName};
use mesh_push::Waiters;
use mesh_state::{
    positions::{Cursor, LaneKey, LedgerEpoch, PositionBatch, Positions},
    shared::{GroupId, GroupKind},
};
use mesh_storage::{Cached, LogRecord, Partition, Topic};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    dead_letters::{ReplayTag, replay_verdict},
    group::backlog::Backlog,
    group::settings::Settings,
    handout::stream::{GroupStreams, Parcel, Stream},
    lane::{AckMode, Lane, Member, Source, Terms, Verdict, Windows},
};

/// A member as its group knows it.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The id its subscribe was answered with.
    pub subscription: SubscriptionId,
    /// What may be handed out to it and not settled.
    pub max_in_flight: u32,
}

/// A group of a topic.
#[derive(Debug)]
pub struct Group {
    pub(crate) id: GroupId,
    /// Its number: for ever its own.
    pub(crate) number: u64,
    pub(crate) generation: u32,
    pub(crate) topic: Arc<Topic>,
    pub(crate) state: Mutex<GroupState>,
    /// Shared with the group that follows it when it is sought.
    pub(crate) waiters: Arc<Waiters>,
    /// How many streams its members have open.
    pub(crate) streams: AtomicUsize,
    pub(crate) loading: tokio::sync::Mutex<()>,
    /// When the ticker looks at it next, in milliseconds; `u64::MAX`: not at all.
    pub(crate) scheduled: AtomicU64,
    /// Whether filters dropped something since the last progress.
    pub(crate) dirty: AtomicBool,
    /// Whether it waits among those that something was appended for while they were busy.
    pub(crate) marked: AtomicBool,
    /// Whether it was removed.
    pub(crate) closed: AtomicBool,
    /// The count of its tenant, once it is among the groups.
    pub(crate) backlog: OnceLock<Arc<Backlog>>,
    /// What it last told that count; changed under its lock.
    told_backlog: AtomicU64,
}

/// What the mutex guards.
#[derive(Debug)]
pub(crate) struct GroupState {
    /// What a replayed copy says that is for this group.
    pub(crate) replay_tag: ReplayTag,
    pub(crate) settings: Settings,
    pub(crate) terms: Terms,
    pub(crate) members: HashMap<ClientId, Membership>,
    /// What each member may have in flight.
    pub(crate) limits: HashMap<Member, u32>,
    pub(crate) windows: Windows,
    pub(crate) lanes: Vec<PartitionLane>,
    /// The view of the database the lanes are of; `None`: not loaded.
    pub(crate) epoch: Option<LedgerEpoch>,
    pub(crate) turn: usize,
    /// The streams of its members.
    pub(crate) streams: GroupStreams,
}

/// A lane with its partition.
#[derive(Debug)]
pub(crate) struct PartitionLane {
    pub(crate) partition: Arc<Partition>,
    pub(crate) lane: Lane,
}

impl Group {
    pub(crate) fn new(
        id: GroupId,
        number: u64,
        generation: u32,
        topic: Arc<Topic>,
        settings: Settings,
        terms: Terms,
    ) -> Arc<Self> {
        let replay_tag = ReplayTag::of(&id, number);
        Arc::new(Self {
            id,
            number,
            generation,
            topic,
            state: Mutex::new(GroupState {
                replay_tag,
                settings,
                terms,
                members: HashMap::new(),
                limits: HashMap::new(),
                windows: Windows::default(),
                lanes: Vec::new(),
                epoch: None,
                turn: 0,
                streams: GroupStreams::new(number),
            }),
            waiters: Arc::default(),
            streams: AtomicUsize::new(0),
            loading: tokio::sync::Mutex::new(()),
            scheduled: AtomicU64::new(u64::MAX),
            dirty: AtomicBool::new(false),
            marked: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            backlog: OnceLock::new(),
            told_backlog: AtomicU64::new(0),
        })
    }

    /// The group that takes this one's place: the same number, members and waiters, its lanes yet to be read.
    pub(crate) fn followed_by(
        &self,
        generation: u32,
        settings: Settings,
        terms: Terms,
        members: HashMap<ClientId, Membership>,
        limits: HashMap<Member, u32>,
    ) -> Arc<Self> {
        let id = self.id.clone();
        let mut next = Self::new(id, self.number, generation, self.topic.clone(), settings, terms);
        let group = Arc::get_mut(&mut next).expect("nobody else has it yet");
        group.waiters = self.waiters.clone();
        let state = group.state.get_mut();
        (state.members, state.limits) = (members, limits);
        next
    }

    /// Tells its tenant's count how many of its deliveries are handed out and locked. Under its lock.
    pub(crate) fn tell_backlog(&self, state: &GroupState) {
        self.tell_backlog_for(state, 0);
    }

    /// The same, where some of them were reserved: they do not count twice, not for a moment.
    fn tell_backlog_for(&self, state: &GroupState, reserved: u64) {
        let Some(backlog) = self.backlog.get() else { return };
        let now = if self.is_closed() { 0 } else { state.windows.sum() };
        let before = self.told_backlog.swap(now, Ordering::AcqRel) + reserved;
        if before != now {
            backlog.changed(before, now);
        }
    }

    /// How many of `wanted` deliveries may be handed out, by what the tenant may have in flight. They are
    /// reserved until [`Self::end_reservation`].
    pub(crate) fn reserve_backlog(&self, wanted: usize, limit: Option<u64>) -> usize {
        match (limit, self.backlog.get()) {
            (Some(limit), Some(backlog)) => backlog.reserve(wanted, limit),
            _ => wanted,
        }
    }

    /// Ends a reservation after the hand-out, under its lock: what was taken counts by itself now.
    pub(crate) fn end_reservation(&self, state: &GroupState, reserved: usize, limit: Option<u64>) {
        if limit.is_some() {
            self.tell_backlog_for(state, reserved as u64);
        }
    }

    /// Tenant, topic, kind and name.
    pub fn id(&self) -> &GroupId {
        &self.id
    }

    /// The settings it has now.
    pub fn settings(&self) -> Settings {
        self.state.lock().settings.clone()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn lane_key(&self, partition: &Partition) -> LaneKey {
        LaneKey { group: self.number, generation: self.generation, partition: partition.id() }
    }

    /// Reads its lanes from the database. Blocks; nothing may be committed for the group meanwhile.
    pub(crate) fn read_lanes(
        &self,
        positions: &Positions,
        partitions: &[Arc<Partition>],
        now: UnixMillis,
    ) -> Result<(Vec<PartitionLane>, Windows), BackendError> {
        let terms = self.state.lock().terms.clone();
        let (offsets, deliveries) = (positions.offsets(), positions.deliveries());
        let mut windows = Windows::default();
        let mut lanes = Vec::with_capacity(partitions.len());
        for partition in partitions {
            let key = self.lane_key(partition);
            // A partition added after the group was made: the group starts at its beginning.
            let cursor = offsets
                .cursor(key)?
                .unwrap_or(Cursor { next_to_read: Offset(0), incarnation: self.topic.incarnation() });
            let rows = deliveries.rows(key)?;
            let lane = Lane::load(key, cursor, rows, &terms, &mut windows, now);
            lanes.push(PartitionLane { partition: partition.clone(), lane });
        }
        Ok((lanes, windows))
    }
}

impl GroupState {
    pub(crate) fn lane(&mut self, partition: mesh_frame::PartitionId) -> Option<&mut Lane> {
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

    pub(crate) fn next_timer(&self) -> Option<UnixMillis> {
        self.lanes.iter().filter_map(|lane| lane.lane.next_timer()).min()
    }

    pub(crate) fn pending(&self) -> usize {
        self.lanes.iter().map(|lane| lane.lane.pending()).sum()
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.lanes.iter().map(|lane| lane.lane.outstanding()).sum()
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

/// The member that a client is.
pub(crate) fn member_of(tenant: &TenantId, client: &ClientId) -> Member {
    let mut bytes = Vec::with_capacity(tenant.as_str().len() + client.as_str().len() + 1);
    bytes.extend_from_slice(tenant.as_str().as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(client.as_str().as_bytes());
    // 0 is "nobody" in a row.
    Member(xxh3_64(&bytes).max(1))
}

/// The kind of group a mode makes.
pub(crate) fn kind_of(settings: &Settings) -> GroupKind {
    if settings.mode.is_shared() { GroupKind::LoadBalance } else { GroupKind::Broadcast }
}

/// Whether a group wants a record now.
pub(crate) fn verdict(
    replay_tag: &ReplayTag,
    settings: &Settings,
    record: &LogRecord,
    now: UnixMillis,
) -> Verdict {
    let stored = record.record();
    let wanted = || settings.filters.iter().all(|filter| filter.matches(&stored.event));
    if let Some(verdict) = replay_verdict(replay_tag, record, now) {
        if verdict == Verdict::Deliver && !wanted() { Verdict::Filtered } else { verdict }
    } else if stored.event.expires_at_ms(stored.accepted_at_ms).is_some_and(|at| at <= now.0) {
        Verdict::Expired
    } else if wanted() {
        Verdict::Deliver
    } else {
        Verdict::Filtered
    }
}

/// A partition's caches as a lane's source.
pub(crate) struct PartitionSource<'a>(pub(crate) &'a Partition);

impl Source for PartitionSource<'_> {
    fn records(&mut self, from: Offset, most: usize, out: &mut Vec<Arc<LogRecord>>) -> Cached {
        self.0.cached(from, most, out)
    }
}
