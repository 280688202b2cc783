//! The open streams by client, and the fan of every topic that has some.
//!
//! Opening, replacing, closing, joining and leaving are one step each, under one short mutex: a stream that ends
//! and one that takes its place never see half of each other. Order of locks: this one, then a group's.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

use mesh_base::Tasks;
use mesh_frame::{ClientId, TenantId, TopicName};
use mesh_push::Mailbox;
use mesh_state::positions::PositionBatch;
use parking_lot::Mutex;

use super::hand_outs::{HandOuts, PollError};
use crate::{
    group::{
        Group, GroupState, member_of,
        receiver::Receiver,
        streams::{Fan, Parcel, Stream},
    },
    lane::Member,
};

/// Deliveries that wait for one client to read.
const MAILBOX_ITEMS: usize = 64;
/// And their bytes.
const MAILBOX_BYTES: usize = 256 << 10;

/// What others have not read yet is given out again when a stream joins them, so much of it at most.
const SHARED: usize = 16 * MAILBOX_ITEMS;

/// Why a stream ended, where that was not its client's doing.
pub(super) const SERVER_STOPS: &str = "the server is stopping";
const CREDENTIAL_ENDED: &str = "the credential has ended";

/// Streams and fans of the process.
pub(crate) struct Streams {
    pub(super) hand_outs: Arc<HandOuts>,
    registry: Mutex<Registry>,
    tasks: Tasks,
}

#[derive(Debug, Default)]
struct Registry {
    open: HashMap<(TenantId, ClientId), Open>,
    fans: HashMap<TopicName, Crew>,
}

/// An open stream with the groups it has a seat in.
#[derive(Debug)]
struct Open {
    stream: Arc<Stream>,
    groups: Vec<Arc<Group>>,
}

/// A topic's fan with how many streams its groups have, each counted once a group.
#[derive(Debug, Default)]
struct Crew {
    fan: Arc<Fan>,
    streams: usize,
}

fn is_among(groups: &[Arc<Group>], group: &Arc<Group>) -> bool {
    groups.iter().any(|other| Arc::ptr_eq(other, group))
}

/// Takes out of the mailboxes of a group's other members what was not written yet: it is given out again, to one more.
fn not_written(state: &GroupState, other_than: Member) -> Vec<Parcel> {
    let group = state.streams.group();
    let its = |parcel: &Parcel| parcel.group == group && !parcel.auto;
    let mut parcels = Vec::new();
    for stream in state.streams.all().filter(|stream| stream.member != other_than) {
        parcels.extend(stream.mailbox.remove_if(its));
        if parcels.len() >= SHARED {
            break;
        }
    }
    parcels
}

impl Streams {
    pub(crate) fn new(hand_outs: Arc<HandOuts>, tasks: Tasks) -> Self {
        Self { hand_outs, registry: Mutex::default(), tasks }
    }

    pub(super) fn open(
        self: &Arc<Self>,
        receiver: &Receiver,
        client: &ClientId,
    ) -> Result<Arc<Stream>, PollError> {
        let mut registry = self.registry.lock();
        let groups = self.hand_outs.groups_for(receiver, client)?;
        let tenant = receiver.tenant();
        let stream = Arc::new(Stream {
            tenant: tenant.clone(),
            client: client.clone(),
            member: member_of(tenant, client),
            receiver: receiver.clone(),
            owner: self.hand_outs.ids.owner_tag(receiver.principal()),
            mailbox: Mailbox::new(MAILBOX_ITEMS, MAILBOX_BYTES),
        });
        let opened = Open { stream: stream.clone(), groups: groups.clone() };
        let old = registry.open.insert((tenant.clone(), client.clone()), opened);
        let (unwritten, had) = match &old {
            Some(old) => {
                (old.stream.mailbox.close("another stream of this client took over"), &old.groups[..])
            }
            None => (Vec::new(), &[][..]),
        };
        for group in had.iter().filter(|group| !is_among(&groups, group)) {
            self.unseat(&mut registry, group, stream.member, &unwritten, true);
        }
        for group in &groups {
            self.seat(&mut registry, group, &stream, &unwritten);
        }
        self.count_streams(&registry);
        Ok(stream)
    }

    /// Whether a client has an open stream.
    pub(crate) fn is_open(&self, tenant: &TenantId, client: &ClientId) -> bool {
        self.registry.lock().open.contains_key(&(tenant.clone(), client.clone()))
    }

    /// Ends a stream. What it was told first as the reason stands.
    pub(super) fn close(&self, stream: &Arc<Stream>, reason: &'static str) {
        let core = &self.hand_outs.core;
        core.activity.heard(stream.member, core.clock.now());
        let mut registry = self.registry.lock();
        let unwritten = stream.mailbox.close(reason);
        let by_client = ![SERVER_STOPS, CREDENTIAL_ENDED].contains(&reason);
        let key = (stream.tenant.clone(), stream.client.clone());
        // A stream that was replaced has nothing left: the one that replaced it took it over.
        if registry.open.get(&key).is_some_and(|open| Arc::ptr_eq(&open.stream, stream))
            && let Some(open) = registry.open.remove(&key)
        {
            for group in &open.groups {
                self.unseat(&mut registry, group, stream.member, &unwritten, by_client);
            }
            self.count_streams(&registry);
        }
    }

    /// Ends the streams whose clients have left lie what is for them for too long: over HTTP/2 a connection
    /// goes on while one of its streams stands still. And those whose credential has ended.
    pub(crate) fn close_stalled(&self) {
        let now = self.hand_outs.core.clock.now().0;
        let patience =
            u64::try_from(self.hand_outs.core.limits.stream_unread.as_millis()).unwrap_or(u64::MAX);
        let open: Vec<Arc<Stream>> =
            self.registry.lock().open.values().map(|open| open.stream.clone()).collect();
        for stream in open {
            if stream.receiver.has_ended() {
                self.close(&stream, CREDENTIAL_ENDED);
                continue;
            }
            if stream.mailbox.unread_for_ms(now) <= patience {
                continue;
            }
            tracing::info!(client = %stream.client, "a stream was not read for too long; closed");
            self.close(&stream, "the client did not read");
        }
    }

    /// A client joined a group: its stream is for that one too.
    pub(crate) fn joined(self: &Arc<Self>, tenant: &TenantId, client: &ClientId, group: &Arc<Group>) {
        let mut registry = self.registry.lock();
        let Some(open) = registry.open.get_mut(&(tenant.clone(), client.clone())) else { return };
        if !is_among(&open.groups, group) {
            open.groups.push(group.clone());
            let stream = open.stream.clone();
            self.seat(&mut registry, group, &stream, &[]);
        }
    }

    /// A client left a group. With the last one its stream ends.
    pub(crate) fn left(&self, tenant: &TenantId, client: &ClientId, group: &Arc<Group>) {
        let mut registry = self.registry.lock();
        let key = (tenant.clone(), client.clone());
        let Some(open) = registry.open.get_mut(&key).filter(|open| is_among(&open.groups, group)) else {
            return;
        };
        open.groups.retain(|other| !Arc::ptr_eq(other, group));
        let (stream, was_last) = (open.stream.clone(), open.groups.is_empty());
        let unwritten = stream.mailbox.remove_if(|parcel| group.is_of(parcel));
        self.unseat(&mut registry, group, stream.member, &unwritten, false);
        if was_last {
            registry.open.remove(&key);
            stream.mailbox.close("the client has no subscription any more");
            self.count_streams(&registry);
        }
    }

    /// A group was sought: the streams of its members go on with its follower. What lay in their mailboxes for
    /// the old generation is void.
    pub(crate) fn followed(
        self: &Arc<Self>,
        tenant: &TenantId,
        client: &ClientId,
        old: &Arc<Group>,
        next: &Arc<Group>,
    ) {
        self.joined(tenant, client, next);
        self.left(tenant, client, old);
    }

    /// A stream whose mailbox was full, or held something, was read from: its groups are looked at again.
    pub(super) fn has_room(&self, stream: &Stream) {
        for group in
            self.hand_outs.core.directory.of_client(&stream.tenant, &stream.client).unwrap_or_default()
        {
            group.state.lock().streams.wake();
        }
    }

    fn count_streams(&self, registry: &Registry) {
        self.hand_outs.core.signals.streams.set(i64::try_from(registry.open.len()).unwrap_or(i64::MAX));
    }

    /// Makes a stream its member's in a group, in place of the one that was.
    fn seat(
        self: &Arc<Self>,
        registry: &mut Registry,
        group: &Arc<Group>,
        stream: &Arc<Stream>,
        unwritten: &[Parcel],
    ) {
        let crew = registry.fans.entry(group.id.topic.clone()).or_insert_with(|| {
            let crew = Crew::default();
            let stop = self.tasks.stop();
            let hand_outs = self.hand_outs.clone();
            self.tasks.spawn("stream fan-out", hand_outs.fan_out(crew.fan.clone(), stop));
            crew
        });
        let fan = crew.fan.clone();
        let is_new = self.change(group, stream.member, unwritten, Some((stream, &fan)), true);
        crew.streams += usize::from(is_new);
    }

    /// Takes a member's stream out of a group.
    fn unseat(
        &self,
        registry: &mut Registry,
        group: &Arc<Group>,
        member: Member,
        unwritten: &[Parcel],
        by_client: bool,
    ) {
        let was_new = self.change(group, member, unwritten, None, by_client);
        let Some(crew) = registry.fans.get_mut(&group.id.topic).filter(|_| !was_new) else { return };
        crew.streams -= 1;
        if crew.streams == 0 {
            crew.fan.stop.signal();
            registry.fans.remove(&group.id.topic);
        }
    }

    /// Changes a member's stream in a group, with what that does to its deliveries. `true`: it had none.
    fn change(
        &self,
        group: &Arc<Group>,
        member: Member,
        unwritten: &[Parcel],
        new: Option<(&Arc<Stream>, &Arc<Fan>)>,
        by_client: bool,
    ) -> bool {
        let core = &self.hand_outs.core;
        let now = core.clock.now();
        let epoch = core.ledger.epoch();
        let mut batch = PositionBatch::new();
        let (had_none, dead) = {
            let mut guard = core.enter(group, now);
            let state = &mut *guard;
            let old = match new {
                Some((stream, fan)) => state.streams.insert(stream, fan),
                None => state.streams.remove(member),
            };
            group.streams.store(state.streams.len(), Ordering::SeqCst);
            if old.is_none() && new.is_some() && state.epoch == Some(epoch) {
                let shared = not_written(state, member);
                core.signals.returned.inc_by(shared.len() as u64);
                state.give_back(&shared, now, &mut batch);
            }
            // Lanes of an older view are read again, which does the same.
            if old.is_some() && state.epoch == Some(epoch) {
                for parcel in unwritten.iter().filter(|parcel| group.is_of(parcel)) {
                    core.signals.returned.inc();
                    state.give_back(std::slice::from_ref(parcel), now, &mut batch);
                }
                let GroupState { lanes, terms, windows, .. } = &mut *state;
                for lane in lanes {
                    lane.lane.stream_closed(member, by_client, now, terms, windows, &mut batch);
                }
            }
            if state.epoch == Some(epoch) {
                core.ledger.commit_later(epoch, batch);
            }
            state.streams.wake();
            (old.is_none(), state.has_dead())
        };
        if dead {
            core.attention.make_dead(group);
        }
        core.after(group);
        had_none
    }
}
