//! `ReliableDispatcher`: the face of delivery. It holds one handle of each room and forwards.
//!
//! A delivery is told to a client only after its row is in the write-ahead log, an ack only after its row is gone from
//! it. While the ledger cannot write, everything answers [`crate::LedgerUnavailable`] and stays as it is.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use mesh_base::{BackendError, Chance, Clock, Signals, Stop, Tasks, UnixMillis};
use mesh_frame::{ClientId, Epoch, InstanceId, TenantId, TopicName};
use mesh_state::{
    positions::{CommitError, Positions},
    shared::MetaBackedDeadLetterStore,
};
use mesh_storage::{Storage, Topic};

use crate::{
    dead_letters::DeadLetters,
    group::{Core, activity::Activity, member_of, receiver::Receiver},
    handout::{
        delivery_id::DeliveryIds,
        filter_turns::FilterTurns,
        hand_outs::{HandOuts, PollError},
        poll::Answer,
        stream::ClientStream,
        streams::Streams,
    },
    ledger::Ledger,
    limits::DeliveryLimits,
    operations::{GroupStores, Groups},
    owned::Owned,
    retention::{OfThisInstance, Retention},
    settle::{DeadLettered, Deliveries, SettleOutcome, Settler},
    signals::DeliverySignals,
    ticker::Ticker,
    topology::Polled,
    views::{self, ClientView, DeadLetterView, PositionView},
};

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
    /// Which partitions this instance polls.
    pub polled: Polled,
    /// The name of this instance.
    pub instance: InstanceId,
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
    /// The principal it belongs to; `None`: none yet.
    pub owner: Option<Arc<str>>,
    /// What it is subscribed to.
    pub topics: Vec<TopicName>,
}

/// The dispatcher; cheap to clone.
#[derive(Clone)]
pub struct ReliableDispatcher(Arc<Rooms>);

struct Rooms {
    core: Arc<Core>,
    hand_outs: Arc<HandOuts>,
    streams: Arc<Streams>,
    settler: Settler,
    letters: DeadLetters,
    ticker: Ticker,
    retention: Retention,
    instance: InstanceId,
}

impl ReliableDispatcher {
    /// A dispatcher without groups; [`Groups::recover`] brings them.
    pub fn new(on: Foundations) -> Self {
        let ids = DeliveryIds::new(&on.delivery_id_key, on.instance.as_str());
        let core = Arc::new(Core {
            clock: on.clock,
            chance: on.chance,
            storage: on.storage,
            ledger: Ledger::new(on.positions, on.limits.outstanding_total),
            polled: on.polled,
            epoch: on.epoch,
            directory: Default::default(),
            attention: Default::default(),
            activity: Activity::new(on.limits.idle_timeout),
            owned: Owned::new(),
            limits: on.limits,
            signals: on.signals,
        });
        let hand_outs =
            Arc::new(HandOuts { core: core.clone(), ids: ids.clone(), turns: FilterTurns::new() });
        let streams = Arc::new(Streams::new(hand_outs.clone(), on.stream_tasks));
        let dead_lettered = Arc::new(DeadLettered::default());
        let settler = Settler { core: core.clone(), ids, dead_lettered: dead_lettered.clone() };
        let letters = DeadLetters::new(core.clone(), on.dead_letters, on.instance.clone(), dead_lettered);
        let ticker = Ticker { core: core.clone(), streams: streams.clone() };
        let floors = Arc::new(OfThisInstance(core.clone()));
        let retention = Retention::new(core.clone(), letters.clone(), floors);
        let instance = on.instance;
        Self(Arc::new(Rooms { core, hand_outs, streams, settler, letters, ticker, retention, instance }))
    }

    /// The handle on this dispatcher's groups, which are kept in these stores.
    pub fn groups(&self, stores: GroupStores) -> Groups {
        let Rooms { core, streams, letters, instance, .. } = &*self.0;
        Groups::new(core.clone(), streams.clone(), letters.clone(), instance.clone(), stores)
    }

    /// The handle on the dead letters of this dispatcher's groups.
    pub fn letters(&self) -> DeadLetters {
        self.0.letters.clone()
    }

    /// Told of every append, from the thread that made it, which waits for nobody.
    pub fn appended(&self, topic: &TopicName, records: usize) {
        self.0.core.appended(topic, records);
    }

    /// Looks at groups that were busy when something was appended for them, and at those whose commit nobody waits
    /// for any more, until it is told to stop.
    pub async fn attend(self, stop: Stop) {
        self.0.core.attend(stop).await;
    }

    /// Runs every group's timers until it is told to stop.
    pub async fn tick(self, stop: Stop) {
        self.0.ticker.tick(stop).await;
    }

    /// Stages, once a second, the progress that no hand-out carries, and ends streams that stand still.
    pub async fn keep_progress(self, stop: Stop) {
        self.0.ticker.keep_progress(stop).await;
    }

    /// Writes dead letters until it is told to stop.
    pub async fn write_dead_letters(self, stop: Stop) {
        self.letters().write(stop).await;
    }

    /// Applies the retention rules to every topic, once a `period`, until it is told to stop.
    pub async fn retain(self, period: Duration, stop: Stop) {
        self.0.retention.run(period, stop).await;
    }

    /// Applies the retention rules to one topic now.
    ///
    /// # Errors
    /// When the log cannot be read or written.
    pub async fn retain_topic(&self, topic: &Arc<Topic>) -> Result<(), BackendError> {
        self.0.retention.retain_topic(topic).await
    }

    /// Stages the progress of every group now, for a planned stop. What was begun for a request is finished first.
    pub async fn flush(&self) {
        self.0.ticker.flush().await;
    }

    /// Up to `most` deliveries for a client, over all its groups; waits up to `timeout` when there is
    /// nothing, and not a moment once there is something.
    ///
    /// # Errors
    /// See [`PollError`].
    pub async fn poll(
        &self,
        receiver: &Receiver,
        client: &ClientId,
        most: usize,
        timeout: Duration,
    ) -> Result<Answer, PollError> {
        self.0.hand_outs.poll(receiver, client, most, timeout).await
    }

    /// Opens a stream over all groups of a client, also those it joins later. One that the client had open
    /// is told so and ends.
    ///
    /// # Errors
    /// When the client has no subscription, or one that was ended for it, or belongs to another principal.
    pub fn stream(&self, receiver: &Receiver, client: &ClientId) -> Result<ClientStream, PollError> {
        self.0.streams.stream(receiver, client)
    }

    /// What delivery ids stand for, as far as they are of this tenant. Pure: nothing is read but the ids.
    pub fn resolve(&self, tenant: &TenantId, ids: &[String]) -> Deliveries {
        self.0.settler.resolve(tenant, ids)
    }

    /// The places of deliveries that were handed out to another principal than this.
    pub fn of_others(&self, deliveries: &Deliveries, principal: Option<&str>) -> Vec<usize> {
        self.0.settler.of_others(deliveries, principal)
    }

    /// Acknowledges deliveries: they are done. Takes any id of a live delivery. One commit a group; answers in
    /// the order of the ids.
    pub async fn ack(&self, deliveries: &Deliveries) -> Vec<SettleOutcome> {
        self.0.settler.ack(deliveries).await
    }

    /// Gives deliveries back for another attempt, due after `delay`, or after the backoff of their attempt.
    /// The last attempt makes it a dead letter at once, which has the `reason`. Takes the newest id only.
    pub async fn nack(
        &self,
        deliveries: &Deliveries,
        delay: Option<Duration>,
        reason: Option<&str>,
    ) -> Vec<SettleOutcome> {
        self.0.settler.nack(deliveries, delay, reason).await
    }

    /// Locks deliveries until `by` from now. Takes the newest id only, also after the lock ran out while
    /// nobody else was given the delivery; where the tenant has `backlog` of them in flight already that is too
    /// late.
    pub async fn extend(
        &self,
        deliveries: &Deliveries,
        by: Duration,
        backlog: Option<u64>,
    ) -> Vec<SettleOutcome> {
        self.0.settler.extend(deliveries, by, backlog).await
    }

    /// Makes deliveries dead letters now, with the `reason`. Takes any id of a live delivery. Answers once the dead
    /// letters are stored; where that takes more than five seconds the outcome is `Unavailable`, and it is done later.
    /// Of an event that the log has dropped there can be none: the delivery ends, and the outcome is `Unknown`.
    pub async fn reject(&self, deliveries: &Deliveries, reason: Option<&str>) -> Vec<SettleOutcome> {
        self.0.settler.reject(deliveries, reason).await
    }

    /// Deliveries handed out and not finished, over all groups.
    pub fn pending_count(&self) -> usize {
        self.0.core.directory.pending()
    }

    /// Whose a client is, and which topics it is subscribed to; `None`: there is no such client.
    pub fn client(&self, tenant: &TenantId, client: &ClientId) -> Option<ClientHolding> {
        let directory = &self.0.core.directory;
        let groups = directory.of_client(tenant, client)?;
        let mut topics: Vec<TopicName> = groups.iter().map(|group| group.id.topic.clone()).collect();
        topics.sort_unstable();
        topics.dedup();
        Some(ClientHolding { owner: directory.clients.owner(tenant, client), topics })
    }

    /// Whether a client has a stream open: what is for the client goes there, and its polls find nothing.
    pub fn has_stream(&self, tenant: &TenantId, client: &ClientId) -> bool {
        let member = member_of(tenant, client);
        let groups = self.0.core.directory.of_client(tenant, client).into_iter().flatten();
        let mut with_streams = groups.filter(|group| group.streams.load(Ordering::Acquire) > 0);
        with_streams.any(|group| group.state.lock().streams.has(member))
    }

    /// How many subscriptions a tenant has.
    pub fn subscriptions(&self, tenant: &TenantId) -> usize {
        self.0.core.directory.clients.subscriptions(tenant)
    }

    /// How many deliveries of a tenant are handed out and not finished.
    pub fn backlog(&self, tenant: &TenantId) -> u64 {
        self.0.core.directory.in_flight(tenant)
    }

    /// Wakes everybody who waits or has a stream open: what they may be given has changed.
    pub fn terms_changed(&self) {
        for group in self.0.core.directory.all() {
            group.waiters.wake(usize::MAX, |_| true);
            group.state.lock().streams.wake();
        }
    }

    /// Why the ledger cannot write now, when it cannot.
    pub fn suspension(&self) -> Option<CommitError> {
        self.0.core.ledger.suspension()
    }

    /// The epoch of this instance, as deliveries show it.
    pub fn epoch(&self) -> Epoch {
        self.0.core.epoch
    }

    /// The time by the dispatcher's clock.
    pub fn now(&self) -> UnixMillis {
        self.0.core.clock.now()
    }

    /// How far every group of a topic is, partition by partition.
    pub fn positions(&self, topic: &TopicName) -> Vec<PositionView> {
        views::positions(&self.0.core, topic)
    }

    /// The clients of a topic with what they have, each once.
    pub fn clients(&self, topic: &TopicName) -> Vec<ClientView> {
        views::clients(&self.0.core, topic)
    }

    /// Up to `max` dead letters of a topic, oldest position first.
    ///
    /// # Errors
    /// When the ledger or the log cannot be read.
    pub async fn dead_letters(
        &self,
        topic: &TopicName,
        max: usize,
    ) -> Result<Vec<DeadLetterView>, BackendError> {
        let found = self.0.letters.browse(topic, max).await?;
        Ok(found.into_iter().map(|(letter, body)| DeadLetterView { letter, body }).collect())
    }

    /// Shows the lag of groups among the metrics.
    pub fn show_lag(&self, signals: &Signals) {
        views::lag::show(&self.0.core, signals);
    }
}

#[cfg(test)]
mod tests;
