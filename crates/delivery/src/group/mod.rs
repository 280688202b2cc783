//! What a group is: its settings, its members, its lanes, who waits, and where to find it.
//!
//! One short mutex guards a group, never held over an await. Batches are handed to the ledger under that mutex, so
//! that they are committed in the order they were made. [`Core`] is what every later room stands on.

pub(crate) mod activity;
mod attention;
mod backlog;
mod client;
mod core;
mod directory;
mod marked;
mod member;
pub(crate) mod receiver;
pub(crate) mod replay_copy;
mod schedule;
pub mod settings;
pub(crate) mod start_at;
mod state;
pub(crate) mod stored_settings;
pub(crate) mod streams;
mod topic_groups;
mod verdict;

use std::{
    collections::VecDeque,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use mesh_base::{BackendError, SortedMap, UnixMillis};
use mesh_frame::{ClientId, Offset};
use mesh_push::Waiters;
use mesh_state::{
    positions::{Cursor, LaneKey, Positions},
    shared::GroupId,
};
use mesh_storage::{Partition, Topic};
use parking_lot::Mutex;

pub(crate) use self::core::{Committing, Core};
pub use member::Membership;
pub(crate) use member::member_of;
pub(crate) use state::{GroupState, PartitionLane, PartitionSource, Staged};
pub(crate) use verdict::verdict;

use crate::lane::{Lane, Member, Terms, Windows};
use backlog::Backlog;
use settings::Settings;
use streams::{GroupStreams, Parcel};

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

impl Group {
    pub(crate) fn new(
        id: GroupId,
        number: u64,
        generation: u32,
        topic: Arc<Topic>,
        settings: Settings,
        terms: Terms,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            number,
            generation,
            topic,
            state: Mutex::new(GroupState {
                settings,
                terms,
                members: SortedMap::default(),
                limits: SortedMap::default(),
                windows: Windows::default(),
                lanes: Vec::new(),
                epoch: None,
                turn: 0,
                streams: GroupStreams::new((number, generation)),
                staged: VecDeque::new(),
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
        members: SortedMap<ClientId, Membership>,
        limits: SortedMap<Member, u32>,
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

    /// Reads one of its lanes from the database. Blocks; nothing may be committed for the lane meanwhile. What is in
    /// flight is counted in `windows`.
    pub(crate) fn read_lane(
        &self,
        positions: &Positions,
        partition: &Arc<Partition>,
        terms: &Terms,
        windows: &mut Windows,
        now: UnixMillis,
    ) -> Result<PartitionLane, BackendError> {
        let key = self.lane_key(partition);
        // A partition added after the group was made: the group starts at its beginning.
        let cursor = positions.offsets().cursor(key)?.unwrap_or_else(|| self.beginning());
        let rows = positions.deliveries().rows(key)?;
        let lane = Lane::load(key, cursor, rows, terms, windows, now);
        Ok(PartitionLane { partition: partition.clone(), lane })
    }

    /// The cursor of a partition that the group reads from its beginning.
    pub(crate) fn beginning(&self) -> Cursor {
        Cursor { next_to_read: Offset(0), incarnation: self.topic.incarnation() }
    }

    /// Whether a delivery on its way to a stream is of this group as it is now.
    pub(crate) fn is_of(&self, parcel: &Parcel) -> bool {
        parcel.group == (self.number, self.generation)
    }
}
