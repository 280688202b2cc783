//! The fan-out of a topic: takes for all members with an open stream and room, one commit a group, then the
//! mailboxes, with one wake-up each.
//!
//! Groups are served side by side, each by one at a time, so that a group which waits for a disk holds up no
//! other and a partition's events reach a stream in order. While the ledger cannot write, the streams stay
//! open and are told so.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::{
    FutureExt,
    stream::{FuturesUnordered, StreamExt},
};
use mesh_base::Stop;
use mesh_frame::Offset;
use mesh_push::Room;
use mesh_rocks::Durability;
use mesh_state::positions::PositionBatch;
use mesh_storage::Partition;

use super::{
    hand_outs::{HandOuts, TakenByLane},
    poll::HELD,
    take::{Looking, take},
};
use crate::{
    group::{
        Committing, Group,
        streams::{Fan, Stream},
    },
    lane::{AckMode, Demand, LOOK, Member},
    ledger::LedgerUnavailable,
};

/// How long a group is left alone whose ledger or log cannot be used now.
const PAUSE: Duration = Duration::from_millis(500);

/// What one look at a group gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    /// Something: there may be more.
    Something,
    /// All that there was.
    Everything,
    /// Nothing, but something was left to a member that was looked at before.
    LeftOver,
    /// Nothing more, because the tenant has as much in flight as it may.
    Held,
    Nothing,
}

impl Served {
    /// Whether there is nothing to look at again, after what the look before gave.
    fn is_last(self, before: Self) -> bool {
        match self {
            Self::Nothing | Self::Everything => true,
            Self::LeftOver => before == Self::LeftOver,
            Self::Something | Self::Held => false,
        }
    }
}

/// What one look took, under the group's lock.
enum Look {
    Stale,
    Nothing,
    Held,
    Took(TookForStreams),
}

struct TookForStreams {
    taken: Arc<TakenByLane>,
    commit: Option<Committing>,
    cold: Option<(Arc<Partition>, Offset)>,
    more: bool,
}

/// What came of a take.
#[derive(Default)]
struct Given {
    /// Deliveries.
    count: usize,
    /// Nothing that could be taken was left when they were in the mailboxes.
    is_all: bool,
}

impl HandOuts {
    /// Serves a topic's groups until none of them has a stream any more, or everything stops.
    pub(crate) async fn fan_out(self: Arc<Self>, fan: Arc<Fan>, stop: Stop) {
        let mut serving = FuturesUnordered::new();
        loop {
            serving.extend(fan.take_due().into_iter().map(|group| self.keep_serving(group)));
            let is_ending = fan.stop.is_signalled();
            if is_ending && serving.is_empty() {
                return;
            }
            tokio::select! {
                () = stop.wait() => return,
                () = fan.stop.wait(), if !is_ending => {}
                () = fan.something_due() => {}
                Some(()) = serving.next(), if !serving.is_empty() => {}
            }
        }
    }

    /// Serves a group; a defect that shows there does not end the other groups' streams.
    async fn keep_serving(self: &Arc<Self>, group: u64) {
        while AssertUnwindSafe(self.serve(group)).catch_unwind().await.is_err() {
            tracing::error!(group, "serving the streams of a group panicked; it is served again");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Serves a group until there is nothing for its streams.
    async fn serve(self: &Arc<Self>, number: u64) {
        let Some(group) = self.core.directory.group(number) else { return };
        let seat = group.state.lock().streams.seat();
        seat.start();
        let mut last = Served::Something;
        let mut told = false;
        loop {
            match self.serve_once(&group).await {
                // What was left over is looked at once more, for those who come first next time.
                Ok(served) if served.is_last(last) => {
                    if seat.finish() {
                        return;
                    }
                    told &= served != Served::Everything;
                    last = Served::Something;
                }
                Ok(Served::Held) => {
                    last = Served::Held;
                    tokio::time::sleep(HELD).await;
                }
                Ok(served) => {
                    last = served;
                    told = false;
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    if !told {
                        tracing::warn!(group = %group.id, %error, "streams wait: deliveries cannot be recorded");
                        for stream in group.state.lock().streams.all() {
                            stream
                                .mailbox
                                .say("deliveries cannot be recorded now; the stream goes on when they can");
                        }
                    }
                    told = true;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn serve_once(self: &Arc<Self>, group: &Arc<Group>) -> Result<Served, LedgerUnavailable> {
        if group.is_closed() || group.state.lock().streams.is_empty() {
            return Ok(Served::Nothing);
        }
        self.core.ensure_lanes(group).await?;
        let turn = self.filter_turn(group).await;
        let look = self.look_for_streams(group);
        drop(turn);
        let took = match look {
            Look::Stale => return Ok(Served::Something),
            Look::Nothing => return Ok(Served::Nothing),
            Look::Held => return Ok(Served::Held),
            Look::Took(took) => took,
        };
        let TookForStreams { taken, commit, cold, more } = took;
        let changed = commit.is_some();
        let left_to: Vec<Member> = taken.iter().flat_map(|(_, took)| took.left_to.clone()).collect();
        let Given { count, is_all } = self.deliver(group, &taken, commit).await?;
        if changed {
            self.core.after(group);
        }
        if let Some((partition, offset)) = cold {
            self.core.storage.warm(&partition, offset).await?;
            return Ok(Served::Something);
        }
        if count > 0 || more {
            // Most looks are for one event that all have then: a second one would find nothing.
            return Ok(if is_all && !more { Served::Everything } else { Served::Something });
        }
        // What is left to a poll is for that one; a stream it is left to has its turn at the next look.
        let state = group.state.lock();
        let mut served = Served::Nothing;
        for member in left_to {
            if state.streams.has(member) {
                served = Served::LeftOver;
            } else {
                group.waiters.wake(1, |other| other == member.0);
            }
        }
        Ok(served)
    }

    /// Takes for every stream with room, and hands the batch in before it lets go.
    fn look_for_streams(self: &Arc<Self>, group: &Arc<Group>) -> Look {
        let core = &self.core;
        let now = core.clock.now();
        let mut guard = core.enter(group, now);
        let state = &mut *guard;
        let epoch = core.ledger.epoch();
        if state.epoch != Some(epoch) {
            return Look::Stale;
        }
        let mut batch = PositionBatch::new();
        core.signals.returned.inc_by(state.advance(now, &mut batch));
        let mut ready: Vec<(Arc<Stream>, Room, usize)> = Vec::new();
        let mut limit = None;
        // An event that may be what ends its consumers goes to a stream alone: one is emptied for it.
        let has_suspects = state.has_suspects();
        let may = |stream: &&Arc<Stream>| stream.receiver.may_receive(&group.id.topic);
        let emptied = if has_suspects {
            state.emptied(state.streams.all().filter(may).map(|stream| stream.member))
        } else {
            None
        };
        for stream in state.streams.all().filter(may) {
            if has_suspects && (emptied == Some(stream.member) || state.is_alone(stream.member)) {
                continue;
            }
            let window = state.window(stream.member);
            let room = if window > 0 { stream.mailbox.room() } else { continue };
            if room.items > 0 && room.bytes > 0 {
                limit = limit.or_else(|| stream.receiver.backlog_limit());
                ready.push((stream.clone(), room, room.items.min(window)));
            }
        }
        if ready.is_empty() {
            core.ledger.commit_later(epoch, batch);
            return Look::Nothing;
        }
        // What is done when it is handed out is never in flight.
        let limit = limit.filter(|_| state.terms.ack == AckMode::Explicit);
        let wanted = ready.iter().map(|(_, _, credit)| *credit).sum();
        let reserved = group.reserve_backlog(wanted, limit);
        if reserved == 0 {
            let held = state.has_work();
            core.ledger.commit_later(epoch, batch);
            return if held { Look::Held } else { Look::Nothing };
        }
        // Every take has a turn too: one more, so that another stream is first each time.
        state.turn = state.turn.wrapping_add(1);
        let first = state.turn % ready.len();
        ready.rotate_left(first);
        let share = state.available().div_ceil(ready.len() + group.waiters.len()).max(1);
        let (mut taken, mut to, mut cold, mut more) = (TakenByLane::new(), Vec::new(), None, false);
        let mut looking = Looking::new(now, state, group, &mut batch);
        let mut left = reserved;
        for (stream, room, credit) in ready {
            let demand = Demand {
                member: stream.member,
                most: credit.min(share).min(left),
                bytes: room.bytes,
                at_least_one: room.is_empty,
                holds: looking.state.windows.of(stream.member) > 0,
                work: LOOK,
                by_stream: true,
            };
            let its = take(core, &mut looking, demand);
            left -= its.taken.iter().map(|(_, taken)| taken.hand_outs.len()).sum::<usize>();
            to.extend(its.taken.iter().map(|_| stream.clone()));
            taken.extend(its.taken);
            cold = cold.or(its.cold);
            more |= its.more;
            if looking.state.available() == 0 || left == 0 {
                break;
            }
        }
        group.end_reservation(looking.state, reserved, limit);
        let taken = Arc::new(taken);
        let commit = (!batch.is_empty()).then(|| {
            let completes = taken.clone();
            core.commit(group, state, batch, Durability::Logged, |staged| {
                staged.taken = Some(completes);
                staged.to = to;
            })
        });
        Look::Took(TookForStreams { taken, commit, cold, more })
    }

    /// Waits for the commit of a take; what stands then is put into the mailboxes when the group is entered.
    async fn deliver(
        &self,
        group: &Arc<Group>,
        taken: &TakenByLane,
        commit: Option<Committing>,
    ) -> Result<Given, LedgerUnavailable> {
        self.count_dropped(group, taken);
        let Some(commit) = commit else { return Ok(Given::default()) };
        commit.done().await?;
        let state = self.core.enter(group, self.core.clock.now());
        let count = taken.iter().map(|(_, took)| took.hand_outs.len()).sum();
        Ok(Given { count, is_all: state.available() == 0 })
    }
}
