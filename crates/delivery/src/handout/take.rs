//! One member's take over the lanes of a group: the same for a poll and for a stream.

use std::{cell::OnceCell, sync::Arc};

use mesh_base::{SortedMap, UnixMillis};
use mesh_frame::{Offset, PartitionId};
use mesh_push::Waiters;
use mesh_state::positions::PositionBatch;
use mesh_storage::Partition;

use crate::{
    group::{Core, Group, GroupState, PartitionSource, streams::GroupStreams, verdict},
    lane::{Demand, Judge, LOOK, Member, Taken, Terms, delivery_bytes},
};

/// What a member got.
#[derive(Debug, Default)]
pub(crate) struct Took {
    /// By lane; a lane that was not looked at is absent.
    pub(crate) taken: Vec<(PartitionId, Taken)>,
    /// The first record that is not in memory.
    pub(crate) cold: Option<(Arc<Partition>, Offset)>,
    /// There may be more at once.
    pub(crate) more: bool,
    /// There is one hand-out, and nothing may be beside it.
    pub(crate) alone: bool,
    /// It left one that goes alone, which this member cannot have now.
    pub(crate) left_alone: bool,
}

/// Who waits for something right now and may have it.
pub(crate) struct Present<'a> {
    limits: &'a SortedMap<Member, u32>,
    full: &'a [Member],
    waiters: &'a Waiters,
    waiting: OnceCell<Vec<u64>>,
    streams: &'a GroupStreams,
}

impl Present<'_> {
    fn has_demand(&self, member: Member) -> bool {
        self.limits.contains_key(&member)
            && !self.full.contains(&member)
            && (self.streams.has_plenty(member)
                || self.waiting.get_or_init(|| self.waiters.members()).contains(&member.0))
    }
}

/// A group's state as one look sees it.
pub(crate) struct Looking<'a> {
    now: UnixMillis,
    pub(crate) state: &'a mut GroupState,
    group: &'a Group,
    batch: &'a mut PositionBatch,
    /// Those who could be given nothing when this look began.
    full: Vec<Member>,
    /// What this look may still spend.
    work: usize,
}

impl<'a> Looking<'a> {
    /// A look at a group whose lanes were brought to now.
    pub(crate) fn new(
        now: UnixMillis,
        state: &'a mut GroupState,
        group: &'a Group,
        batch: &'a mut PositionBatch,
    ) -> Self {
        let mut full = state.windows.full(&state.limits);
        // Nor may anything wait for a stream that is given nothing of this topic now.
        let barred = state.streams.all().filter(|stream| !stream.receiver.may_receive(&group.id.topic));
        full.extend(barred.map(|stream| stream.member));
        // Nor for one that has an event which goes alone.
        if state.has_suspects() {
            let alone = state.streams.all().filter(|stream| state.is_alone(stream.member));
            full.extend(alone.map(|stream| stream.member));
        }
        Self { now, state, group, batch, full, work: LOOK }
    }
}

/// Takes for a member, lane by lane, and stages it. The demand holds for all lanes together, and what the look
/// may spend for all its members.
pub(crate) fn take(core: &Core, looking: &mut Looking<'_>, demand: Demand) -> Took {
    let Looking { now, state, group, batch, full, work } = looking;
    let (now, waiters) = (*now, &*group.waiters);
    let GroupState { settings, terms, limits, windows, lanes, streams, turn, .. } = &mut **state;
    let present = Present { limits, full, waiters, waiting: OnceCell::new(), streams };
    let judge = Judge {
        verdict: &|record| verdict((&group.id, group.number), settings, record, now),
        cost: 1 + settings.filter_cost(),
        has_demand: &|other| present.has_demand(other),
    };
    let mut took = Took::default();
    let mut left = demand;
    let number = lanes.len();
    *turn = turn.wrapping_add(1);
    let has_suspects = lanes.iter().any(|lane| lane.lane.has_suspects());
    if has_suspects {
        left.holds |= lanes.iter().any(|lane| lane.lane.is_alone_with(left.member, false));
        // What goes alone comes first, while nothing is there yet.
        let suspect = lanes.iter().position(|lane| lane.lane.suspect_for(left.member).is_some());
        if let Some(place) = suspect.filter(|_| !left.holds) {
            *turn = place;
        }
    }
    for place in 0..number {
        if left.most == 0 {
            break;
        }
        if *work == 0 {
            took.more = true;
            break;
        }
        left.work = *work;
        let lane = &mut lanes[(*turn + place) % number];
        let mut source = PartitionSource(&lane.partition);
        let before = lane.lane.outstanding();
        let terms =
            Terms { max_outstanding: core.room(group, &lane.lane, terms.max_outstanding), ..terms.clone() };
        let mut taken = lane.lane.take(&left, now, &terms, windows, &mut source, &judge);
        let added = lane.lane.outstanding().saturating_sub(before);
        core.ledger.outstanding.added(added);
        if let Some(backlog) = group.backlog.get() {
            backlog.added_rows(added);
        }
        *work = taken.work;
        batch.extend(std::mem::take(&mut taken.batch));
        left.most -= taken.hand_outs.len();
        let used: usize = taken.hand_outs.iter().map(|given| delivery_bytes(&given.record)).sum();
        left.bytes = left.bytes.saturating_sub(used);
        // A stream has room for one large event, not for one of every partition.
        left.at_least_one &= used == 0 || !left.by_stream;
        took.more |= taken.more;
        took.alone |= taken.alone;
        took.left_alone |= taken.left_alone;
        left.holds |= !taken.hand_outs.is_empty();
        if taken.alone {
            left.most = 0;
        }
        if let Some(offset) = taken.cold {
            took.cold = took.cold.or_else(|| Some((lane.partition.clone(), offset)));
        }
        took.taken.push((lane.partition.id(), taken));
        if used > 0 && left.bytes == 0 {
            break;
        }
    }
    took
}
