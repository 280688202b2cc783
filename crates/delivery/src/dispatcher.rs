//! `ReliableDispatcher`: hands out, settles, and counts what is pending, for every group of the process.
//!
//! The poller's own task takes and commits; nothing is buffered for a group. A delivery is told to a client
//! only after its row is in the write-ahead log, an ack only after its row is gone from it. While the ledger
//! cannot write, everything answers [`LedgerUnavailable`] and stays as it is.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mesh_base::{BackendError, Chance, Clock, Stop, Tasks, UnixMillis};
use mesh_frame::{ClientId, Epoch, TenantId, TopicName};
use mesh_rocks::Durability;
use mesh_state::{
    positions::{CommitError, LedgerEpoch, PositionBatch, Positions},
    shared::{GroupId, MetaBackedDeadLetterStore},
};
use mesh_storage::{Partition, Storage};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::{
    DeliverySignals, DeliveryTopology, PollError, Receiver,
    dead_letters::burials::Unburied,
    dead_letters::{Desk, TimeIndex},
    group::backlog::Backlog,
    group::client::Clients,
    group::marked::Marked,
    group::topic_groups::GroupsByTopic,
    group::{Group, PartitionLane, member_of},
    handout::stream::Streams,
    operations::Operations,
    schedule::Schedule,
    settle::delivery_id::DeliveryIds,
};

/// The ledger cannot write or be read now: the same request can be tried again.
#[derive(Debug, thiserror::Error)]
pub enum LedgerUnavailable {
    /// A commit did not happen.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The position database or the log could not be read.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl LedgerUnavailable {
    /// What happened, with every cause, in one line.
    pub fn chain(&self) -> String {
        match self {
            Self::Commit(error) => error.to_string(),
            Self::Backend(error) => error.chain(),
        }
    }

    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Commit(error) => *error == CommitError::Full,
            Self::Backend(error) => error.kind() == mesh_base::BackendErrorKind::Full,
        }
    }
}

/// Bounds of the dispatcher.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryLimits {
    /// Outstanding rows a group may have on a partition.
    pub outstanding: usize,
    /// Outstanding rows of the process.
    pub outstanding_total: usize,
    /// Subscriptions a client may have.
    pub subscriptions_per_client: usize,
    /// Bytes an answer to a poll may have.
    pub answer_bytes: usize,
    /// How long a client may leave lie what its stream has for it.
    pub stream_unread: Duration,
    /// How long an append of a dead letter may take.
    pub publish_timeout: Duration,
}

/// What the dispatcher stands on.
pub struct Foundations {
    /// Time.
    pub clock: Clock,
    /// Chance.
    pub chance: Chance,
    /// The log.
    pub storage: Storage,
    /// Cursors and ledger.
    pub positions: Arc<Positions>,
    /// The ledger of dead letters.
    pub dead_letters: MetaBackedDeadLetterStore,
    /// Which partitions to poll.
    pub topology: DeliveryTopology,
    /// The name of this instance.
    pub instance: mesh_frame::InstanceId,
    /// The key of the MAC of delivery ids.
    pub delivery_id_key: [u8; 32],
    /// The count of this boot of the instance.
    pub epoch: Epoch,
    /// Bounds.
    pub limits: DeliveryLimits,
    /// Metrics.
    pub signals: DeliverySignals,
    /// Whose tasks serve streams. To be shut down after the last stream is closed.
    pub stream_tasks: Tasks,
}

/// A client as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHolding {
    /// Whose it is; `None`: nobody's yet.
    pub owner: Option<Arc<str>>,
    /// What it is subscribed to.
    pub topics: Vec<TopicName>,
}

/// One tenant alone has four fifths of the rows of the process, two have four ninths each.
const SHARE: usize = 4;

/// The dispatcher; cheap to clone.
#[derive(Clone)]
pub struct ReliableDispatcher(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,
    pub(crate) storage: Storage,
    pub(crate) positions: Arc<Positions>,
    pub(crate) dead_letters: MetaBackedDeadLetterStore,
    pub(crate) topology: DeliveryTopology,
    pub(crate) instance: mesh_frame::InstanceId,
    pub(crate) limits: DeliveryLimits,
    pub(crate) signals: DeliverySignals,
    pub(crate) ids: DeliveryIds,
    pub(crate) epoch: Epoch,
    pub(crate) groups: RwLock<Directory>,
    pub(crate) by_topic: Arc<GroupsByTopic>,
    pub(crate) clients: Clients,
    pub(crate) schedule: Schedule,
    /// Groups that were busy when something was appended for them.
    pub(crate) marked: Marked,
    /// Outstanding rows at the last count, and those added since: never fewer than there are.
    pub(crate) outstanding: AtomicUsize,
    /// Groups with something condemned.
    pub(crate) condemned: Mutex<Vec<u64>>,
    /// Partitions, by their key in the log, whose backlog was warned about.
    pub(crate) warned: Mutex<HashSet<u32>>,
    pub(crate) condemned_signal: Notify,
    pub(crate) buried_signal: Notify,
    pub(crate) unburied: Unburied,
    pub(crate) streams: Streams,
    /// Replays and discards of dead letters.
    pub(crate) letters: Desk,
    /// When they died.
    pub(crate) letter_times: TimeIndex,
    /// Changes of groups and topics that are under way.
    pub(crate) operations: Operations,
}

/// Every group, by number, by id and by topic.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) by_number: HashMap<u64, Arc<Group>>,
    pub(crate) by_id: HashMap<GroupId, Arc<Group>>,
    by_topic: Arc<GroupsByTopic>,
    /// What every tenant with groups has in flight, with how many groups it has.
    backlogs: HashMap<TenantId, (usize, Arc<Backlog>)>,
}

impl Directory {
    pub(crate) fn add(&mut self, group: &Arc<Group>) {
        self.by_topic.add(group);
        self.enter(group);
    }

    /// Puts a group in the place of the one that it follows, which is closed.
    pub(crate) fn replace(&mut self, old: &Arc<Group>, next: &Arc<Group>) {
        self.by_topic.replace(old, next);
        self.leave(old);
        self.enter(next);
    }

    /// Takes out a group that is closed.
    pub(crate) fn remove(&mut self, group: &Arc<Group>) {
        self.by_topic.remove(group);
        self.leave(group);
    }

    fn enter(&mut self, group: &Arc<Group>) {
        self.by_number.insert(group.number, group.clone());
        self.by_id.insert(group.id.clone(), group.clone());
        let (groups, backlog) = self.backlogs.entry(group.id.tenant.clone()).or_default();
        *groups += 1;
        group.backlog.get_or_init(|| backlog.clone());
        group.tell_backlog(&group.state.lock());
    }

    fn leave(&mut self, group: &Arc<Group>) {
        self.by_number.remove(&group.number);
        self.by_id.remove(&group.id);
        group.tell_backlog(&group.state.lock());
        if let Some((groups, _)) = self.backlogs.get_mut(&group.id.tenant) {
            *groups -= 1;
            if *groups == 0 {
                self.backlogs.remove(&group.id.tenant);
            }
        }
    }
}

impl ReliableDispatcher {
    /// A dispatcher without groups; [`crate::Groups::recover`] brings them.
    pub fn new(on: Foundations) -> Self {
        let ids = DeliveryIds::new(&on.delivery_id_key, on.instance.as_str());
        let by_topic = Arc::new(GroupsByTopic::default());
        Self(Arc::new(Inner {
            clock: on.clock,
            operations: Operations::new(on.chance.clone()),
            chance: on.chance,
            storage: on.storage,
            positions: on.positions,
            dead_letters: on.dead_letters,
            topology: on.topology,
            instance: on.instance,
            limits: on.limits,
            signals: on.signals,
            ids,
            epoch: on.epoch,
            groups: RwLock::new(Directory { by_topic: by_topic.clone(), ..Directory::default() }),
            by_topic,
            clients: Clients::default(),
            schedule: Schedule::default(),
            marked: Marked::default(),
            outstanding: AtomicUsize::new(0),
            condemned: Mutex::default(),
            warned: Mutex::default(),
            condemned_signal: Notify::new(),
            buried_signal: Notify::new(),
            unburied: Unburied::default(),
            streams: Streams::new(on.stream_tasks),
            letters: Desk::default(),
            letter_times: TimeIndex::default(),
        }))
    }

    /// Told of every append, from the thread that made it, which waits for nobody: a group that is busy is marked,
    /// and [`ReliableDispatcher::wake_marked`] wakes its members.
    pub fn appended(&self, topic: &TopicName, records: usize) {
        self.0.by_topic.each(topic, |group| {
            if !group.waiters.is_empty() || group.streams.load(Ordering::SeqCst) > 0 {
                match group.state.try_lock() {
                    Some(state) => state.wake_for(&group.waiters, records),
                    None => self.0.marked.mark(group),
                }
            }
        });
    }

    /// Wakes who waits at groups that were busy when something was appended for them, until it is told to stop.
    pub async fn wake_marked(self, stop: Stop) {
        loop {
            let marked = tokio::select! {
                () = stop.wait() => return,
                marked = self.0.marked.take() => marked,
            };
            for group in marked {
                // Whoever has the lock has it for a moment.
                group.state.lock().wake_for(&group.waiters, usize::MAX);
            }
        }
    }

    /// Deliveries handed out and not finished, over all groups.
    pub fn pending_count(&self) -> usize {
        self.0.all_groups().iter().map(|group| group.state.lock().pending()).sum()
    }

    /// Outstanding rows over all groups.
    pub fn outstanding_count(&self) -> usize {
        self.0.all_groups().iter().map(|group| group.state.lock().outstanding()).sum()
    }

    /// Whose a client is, and which topics it is subscribed to; `None`: there is no such client.
    pub fn client(&self, tenant: &TenantId, client: &ClientId) -> Option<ClientHolding> {
        let groups = self.0.groups_of(tenant, client)?;
        let mut topics: Vec<TopicName> = groups.iter().map(|group| group.id.topic.clone()).collect();
        topics.sort_unstable();
        topics.dedup();
        Some(ClientHolding { owner: self.0.clients.owner(tenant, client), topics })
    }

    /// Whether a client has a stream open: what is for the client goes there, and its polls find nothing.
    pub fn has_stream(&self, tenant: &TenantId, client: &ClientId) -> bool {
        let member = member_of(tenant, client);
        let groups = self.0.groups_of(tenant, client).into_iter().flatten();
        let mut with_streams = groups.filter(|group| group.streams.load(Ordering::Acquire) > 0);
        with_streams.any(|group| group.state.lock().streams.has(member))
    }

    /// How many subscriptions a tenant has.
    pub fn subscriptions(&self, tenant: &TenantId) -> usize {
        self.0.clients.subscriptions(tenant)
    }

    /// How many deliveries of a tenant are handed out and not finished.
    pub fn backlog(&self, tenant: &TenantId) -> u64 {
        self.0.groups.read().backlogs.get(tenant).map_or(0, |(_, backlog)| backlog.count())
    }

    /// Wakes everybody who waits or has a stream open: what they may be given has changed.
    pub fn terms_changed(&self) {
        for group in self.0.all_groups() {
            group.waiters.wake(usize::MAX, |_| true);
            group.state.lock().streams.wake();
        }
    }

    /// Why the ledger cannot write now, when it cannot.
    pub fn suspension(&self) -> Option<CommitError> {
        self.0.positions.log().suspension()
    }

    /// The epoch of this instance, as deliveries show it.
    pub fn epoch(&self) -> Epoch {
        self.0.epoch
    }
}

impl Inner {
    pub(crate) fn all_groups(&self) -> Vec<Arc<Group>> {
        self.groups.read().by_number.values().cloned().collect()
    }

    /// Counts the outstanding rows anew; hand-outs in between only make the count too high.
    pub(crate) fn recount(&self) {
        let mut by_tenant: HashMap<TenantId, usize> = HashMap::new();
        for group in self.all_groups() {
            *by_tenant.entry(group.id.tenant.clone()).or_default() += group.state.lock().outstanding();
        }
        self.outstanding.store(by_tenant.values().sum(), Ordering::Release);
        for (tenant, (_, backlog)) in &self.groups.read().backlogs {
            backlog.counted_rows(by_tenant.get(tenant).copied().unwrap_or(0));
        }
    }

    /// Rows a lane may have, by its own bound, by what the process has left, and by what its tenant may take of
    /// that: a tenant has at most [`SHARE`] times as many rows as are left, so that however many it parks, another
    /// one finds some.
    pub(crate) fn room(&self, group: &Group, lane: &crate::lane::Lane, own: usize) -> usize {
        let left = self.limits.outstanding_total.saturating_sub(self.outstanding.load(Ordering::Acquire));
        let its = group.backlog.get().map_or(0, |backlog| backlog.rows());
        let may = (SHARE * left).saturating_sub(its) / (SHARE + 1);
        own.min(lane.outstanding() + may)
    }

    pub(crate) fn group(&self, number: u64) -> Option<Arc<Group>> {
        self.groups.read().by_number.get(&number).cloned()
    }

    /// Makes sure that a group's lanes are of the ledger's present view: loads them when they are not. A closed
    /// group has none.
    pub(crate) async fn ensure_lanes(&self, group: &Arc<Group>) -> Result<LedgerEpoch, LedgerUnavailable> {
        loop {
            let epoch = self.positions.log().epoch();
            if group.state.lock().epoch == Some(epoch) || group.is_closed() {
                return Ok(epoch);
            }
            if let Some(suspension) = self.positions.log().suspension() {
                return Err(suspension.into());
            }
            let _single_flight = group.loading.lock().await;
            let epoch = self.positions.log().epoch();
            // A group that was removed or followed by another is never loaded again: its callers see that.
            if group.state.lock().epoch == Some(epoch) || group.is_closed() {
                return Ok(epoch);
            }
            let partitions = self.polled(group);
            let (positions, wanted, now) = (self.positions.clone(), group.clone(), self.clock.now());
            let read =
                tokio::task::spawn_blocking(move || wanted.read_lanes(&positions, &partitions, now)).await;
            let (lanes, windows) = read.map_err(|error| {
                BackendError::new(mesh_base::BackendErrorKind::Unavailable, "offset store", "loading a group")
                    .with_source(error)
            })??;
            // A suspension while it was read: what was read may be older than what is committed.
            if self.positions.log().epoch() == epoch && self.positions.log().is_open() {
                self.install_lanes(group, lanes, windows, epoch);
                return Ok(epoch);
            }
        }
    }

    pub(crate) fn install_lanes(
        &self,
        group: &Arc<Group>,
        lanes: Vec<PartitionLane>,
        windows: crate::lane::Windows,
        epoch: LedgerEpoch,
    ) {
        let mut state = group.state.lock();
        state.lanes = lanes;
        state.windows = windows;
        state.epoch = Some(epoch);
        group.tell_backlog(&state);
        let timer = state.next_timer();
        let condemned = state.lanes.iter().any(|lane| lane.lane.condemned().next().is_some());
        drop(state);
        if let Some(at) = timer {
            self.schedule.no_later_than(group, at);
        }
        if condemned {
            self.condemn(group);
        }
    }

    /// The partitions of a group's topic that this instance polls.
    pub(crate) fn polled(&self, group: &Group) -> Vec<Arc<Partition>> {
        self.topology
            .partitions(&group.topic)
            .into_iter()
            .filter_map(|id| group.topic.partition(id))
            .collect()
    }

    /// Commits without waiting; what fails shows as a suspension.
    pub(crate) fn commit_later(&self, epoch: LedgerEpoch, batch: PositionBatch) {
        if !batch.is_empty() {
            drop(self.positions.log().commit(epoch, batch, Durability::Logged));
        }
    }

    /// Tells the undertaker that a group has something for it.
    pub(crate) fn condemn(&self, group: &Group) {
        self.condemned.lock().push(group.number);
        self.condemned_signal.notify_one();
    }

    /// Wakes as many waiters as have something to look for, and sets the group's next timer.
    pub(crate) fn after(&self, group: &Arc<Group>) {
        let timer = {
            let state = group.state.lock();
            group.tell_backlog(&state);
            state.wake(&group.waiters);
            state.next_timer()
        };
        if let Some(at) = timer {
            self.schedule.no_later_than(group, at);
        }
    }

    /// Brings a group to now: locks that ran out, waits that ended. Called by the ticker.
    pub(crate) fn tick(&self, group: &Arc<Group>, now: UnixMillis) -> bool {
        group.scheduled.store(u64::MAX, Ordering::Release);
        let epoch = self.positions.log().epoch();
        let mut batch = PositionBatch::new();
        let condemned = {
            let mut guard = group.state.lock();
            let state = &mut *guard;
            if state.epoch != Some(epoch) {
                return false;
            }
            self.signals.returned.inc_by(state.advance(now, &mut batch));
            self.commit_later(epoch, batch);
            state.lanes.iter().any(|lane| lane.lane.condemned().next().is_some())
        };
        if condemned {
            self.condemn(group);
        }
        self.after(group);
        true
    }

    /// Wakes the waiting polls of a client: its groups have changed.
    pub(crate) fn look_again(&self, tenant: &TenantId, client: &ClientId) {
        let member = member_of(tenant, client);
        for group in self.groups_of(tenant, client).unwrap_or_default() {
            group.waiters.wake(usize::MAX, |other| other == member.0);
        }
    }

    /// The groups a client is a member of, where the receiver may use it.
    pub(crate) fn groups_for(
        &self,
        receiver: &Receiver,
        client: &ClientId,
    ) -> Result<Vec<Arc<Group>>, PollError> {
        let (tenant, owner) = (receiver.tenant(), self.clients.owner(receiver.tenant(), client));
        let Some(groups) = self.groups_of(tenant, client) else {
            return Err(self.no_client(receiver, client));
        };
        if receiver.may_use(owner.as_deref()) { Ok(groups) } else { Err(PollError::NotYours) }
    }

    /// The groups a client is a member of.
    pub(crate) fn groups_of(&self, tenant: &TenantId, client: &ClientId) -> Option<Vec<Arc<Group>>> {
        self.clients.groups(tenant, client)
    }
}
