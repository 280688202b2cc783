//! Groups and members: subscribe, and who is subscribed.
//!
//! A group that is made: positions, then the membership, then the group's record, which decides it. A further
//! member: its record decides it. A change of settings: a compare-and-set of the group's record decides it.

use std::{collections::BTreeMap, sync::Arc};

use mesh_base::{BackendError, UnixMillis};
use mesh_frame::{ClientId, Filter, GroupName, Offset, PartitionId, SubscriptionId, TenantId, TopicName};
use mesh_rocks::Durability;
use mesh_state::{
    positions::{Cursor, PositionBatch},
    shared::{
        self, ClusterSubscriptionStore, Created, GroupId, GroupRecord, IdentityStore, Replaced, StoredGroup,
        SubscriptionRecord, SubscriptionStore,
    },
};
use mesh_storage::{Topic, TopicError};

use super::{StillBusy, Tell, Unable, Undecided, places::Places};
use crate::{
    AskedSettings, Mode, ReliableDispatcher, Settings,
    dispatcher::{Inner, LedgerUnavailable},
    group::settings::DEFAULT_MAX_IN_FLIGHT,
    group::{Group, Membership, kind_of},
    lane::AckMode,
};

/// Where a new group starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StartAt {
    /// After everything that is stored now.
    #[default]
    Latest,
    /// With the oldest that is stored.
    Earliest,
    /// With the first that was accepted at or after this time.
    Time(UnixMillis),
    /// At these offsets; partitions left out start at the latest.
    Offsets(BTreeMap<PartitionId, Offset>),
    /// At this offset of the only partition.
    Offset(Offset),
}

/// A request to subscribe.
#[derive(Clone, Debug)]
pub struct Subscribe {
    /// Whose it is.
    pub tenant: TenantId,
    /// Who.
    pub client: ClientId,
    /// To what.
    pub topic: TopicName,
    /// How events are shared.
    pub mode: Mode,
    /// The group's name; only with a mode that shares.
    pub group: Option<GroupName>,
    /// What is asked of the group's settings.
    pub asked: AskedSettings,
    /// What the member may have in flight.
    pub max_in_flight: Option<u32>,
    /// Where the group starts when it is made.
    pub start: StartAt,
    /// Who authenticated, if anybody.
    pub principal: Option<String>,
    /// Whether it may use a client that is another principal's.
    pub over_others: bool,
    /// How many subscriptions the tenant may have; `None`: any number.
    pub most_of_tenant: Option<u64>,
}

/// The answer to a subscribe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribed {
    /// The id of this membership.
    pub subscription: SubscriptionId,
    /// The group's name.
    pub group: GroupName,
    /// How it shares.
    pub mode: Mode,
    /// Where every partition starts; for a group that was there, how far it is.
    pub start: BTreeMap<PartitionId, Offset>,
    /// Whether the group was made now.
    pub created: bool,
}

/// Why a subscribe or an unsubscribe did not happen.
#[derive(Debug, thiserror::Error)]
pub enum SubscribeError {
    /// The topic is not there and cannot be made.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The client has as many subscriptions as it may.
    #[error("a client may have {0} subscriptions")]
    TooManySubscriptions(usize),
    /// The tenant has as many subscriptions as it may.
    #[error("the tenant may have {0} subscriptions")]
    TenantFull(u64),
    /// The client is somebody else's.
    #[error("the client is another principal's")]
    NotYours,
    /// The group has another value of a setting, and other members.
    #[error("the group has another value of {setting} and other members")]
    GroupConflict {
        /// The setting.
        setting: &'static str,
    },
    /// The group has another mode.
    #[error("the group has another mode")]
    ModeConflict,
    /// `ack` cannot change while deliveries are outstanding.
    #[error("ack cannot change while deliveries are outstanding")]
    AckConflict,
    /// The start is not one of this topic.
    #[error("{0}")]
    BadStart(String),
    /// The ledger cannot write.
    #[error(transparent)]
    Ledger(#[from] LedgerUnavailable),
    /// Meta cannot write.
    #[error("{}", .0.chain())]
    Meta(BackendError),
    /// The log cannot be read.
    #[error("{}", .0.chain())]
    Storage(BackendError),
    /// Somebody else changed the group at the same time.
    #[error("the group was changed at the same time; try again")]
    Changed,
    /// Nothing is begun now, or the process ends before it is known how it ended.
    #[error(transparent)]
    Unable(#[from] Unable),
}

impl From<StillBusy> for SubscribeError {
    fn from(busy: StillBusy) -> Self {
        Self::Unable(busy.into())
    }
}

/// A member as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// The id of the membership.
    pub subscription: SubscriptionId,
    /// The client.
    pub client: ClientId,
    /// Its tenant.
    pub tenant: TenantId,
    /// The topic.
    pub topic: TopicName,
    /// How the group shares.
    pub mode: String,
    /// The group.
    pub group: GroupName,
    /// The instance it subscribed at.
    pub instance: String,
}

/// The groups of this instance; cheap to clone.
#[derive(Clone)]
pub struct Groups {
    pub(crate) dispatcher: ReliableDispatcher,
    pub(crate) store: Arc<ClusterSubscriptionStore>,
    pub(crate) identities: IdentityStore,
    places: Places,
    pub(crate) auto_create: bool,
}

impl Groups {
    /// The groups that a dispatcher serves, kept in a store, with numbers from `identities`. `auto_create`: topics are made by the first subscribe.
    pub fn new(
        dispatcher: ReliableDispatcher,
        store: Arc<ClusterSubscriptionStore>,
        identities: IdentityStore,
        auto_create: bool,
    ) -> Self {
        Self { dispatcher, store, identities, places: Places::default(), auto_create }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.dispatcher.0
    }

    /// Makes a client a member of a group, and the group when there is none. Durable when it returns;
    /// events appended after that are not missed. Again with the same arguments it changes nothing.
    ///
    /// # Errors
    /// See [`SubscribeError`]. When Meta failed it may be done all the same, and asking again finds out.
    pub async fn subscribe(&self, request: Subscribe) -> Result<Subscribed, SubscribeError> {
        let operations = &self.inner().operations;
        operations.ready()?;
        if let Some(suspension) = self.dispatcher.suspension() {
            return Err(LedgerUnavailable::from(suspension).into());
        }
        let settings = Settings::new(request.mode);
        let name = match (&request.group, request.mode.is_shared()) {
            (Some(group), true) => group.clone(),
            (None, true) => GroupName::new("default").expect("a legal name"),
            (_, false) => GroupName::new(request.client.as_str()).expect("client ids are legal group names"),
        };
        let id = GroupId {
            tenant: request.tenant.clone(),
            topic: request.topic.clone(),
            kind: kind_of(&settings),
            name,
        };
        // A topic is not deleted between here and the group.
        let topic = operations.topics.shared(&id.topic).await?;
        let client = operations.clients.alone(&(request.tenant.clone(), request.client.clone())).await?;
        let groups = self.clone();
        operations
            .own("subscribe", |asker| async move {
                let subscribed = groups.subscribe_client(&id, settings, &request, &asker).await;
                drop((topic, client));
                subscribed
            })
            .await
    }

    /// The caller has the locks of the topic and the client.
    async fn subscribe_client(
        &self,
        id: &GroupId,
        settings: Settings,
        request: &Subscribe,
        asker: &dyn Tell,
    ) -> Result<Subscribed, SubscribeError> {
        let inner = self.inner();
        let owner = inner.clients.owner(&request.tenant, &request.client);
        if !request.over_others && owner.is_some() && owner.as_deref() != request.principal.as_deref() {
            return Err(SubscribeError::NotYours);
        }
        if owner.is_none()
            && let Some(principal) = &request.principal
        {
            self.adopt_all(&request.tenant, &request.client, principal, asker).await?;
        }
        let _alone = inner.operations.groups.alone(id).await?;
        let there = inner.groups.read().by_id.get(id).cloned();
        let is_member =
            there.as_ref().is_some_and(|group| group.state.lock().members.contains_key(&request.client));
        let mut place = None;
        if !is_member {
            let limit = inner.limits.subscriptions_per_client;
            let has = inner.groups_of(&request.tenant, &request.client).map_or(0, |groups| groups.len());
            if has >= limit {
                return Err(SubscribeError::TooManySubscriptions(limit));
            }
            if let Some(most) = request.most_of_tenant {
                let used = || self.used_by(&request.tenant, there.as_ref());
                place = Some(self.places.take(&request.tenant, most, used)?);
            }
        }
        let topic = inner.storage.ensure_topic(&id.topic, self.auto_create, None).await?;
        // What Meta holds counts, whatever an operation before this one came to.
        let held = self.store.read_group(id).await.map_err(SubscribeError::Meta)?;
        let there = self.serve_what_is_held(id, there, held.as_ref(), &topic).await?;
        let (group, membership, created) = match (there, held) {
            (Some(group), Some(held)) => {
                self.adjust(&group, held, request, asker).await?;
                let membership = self.join(&group, request, asker).await?;
                (group, membership, false)
            }
            _ => {
                let settings = settings.with(&request.asked);
                let (group, membership) = self.create(id, &topic, settings, request, asker).await?;
                (group, membership, true)
            }
        };
        drop(place);
        let start = {
            let state = group.state.lock();
            state.lanes.iter().map(|lane| (lane.partition.id(), lane.lane.next_to_read())).collect()
        };
        inner.after(&group);
        Ok(Subscribed {
            subscription: membership.subscription,
            group: id.name.clone(),
            mode: request.mode,
            start,
            created,
        })
    }

    /// Makes memory serve the group that Meta holds: takes out one that is another, brings in one that is not there.
    pub(crate) async fn serve_what_is_held(
        &self,
        id: &GroupId,
        there: Option<Arc<Group>>,
        held: Option<&StoredGroup>,
        topic: &Arc<Topic>,
    ) -> Result<Option<Arc<Group>>, SubscribeError> {
        let is_held = |group: &Arc<Group>| {
            held.is_some_and(|held| {
                (held.record.id, held.record.generation) == (group.number, group.generation)
            })
        };
        if there.as_ref().is_some_and(is_held) {
            return Ok(there);
        }
        if let Some(other) = there {
            tracing::warn!(group = %id, "Meta holds another group than is served: what Meta holds is served now");
            self.take_out(&other);
        }
        match held {
            Some(held) => Ok(self.bring_back(id, held, topic).await?),
            None => Ok(None),
        }
    }

    /// What a tenant uses of the subscriptions it may have: memberships, and groups that wait without members, but
    /// for the one that is joined now.
    fn used_by(&self, tenant: &TenantId, joined: Option<&Arc<Group>>) -> u64 {
        let inner = self.inner();
        let waits = |group: &&Arc<Group>| {
            group.id.tenant == *tenant
                && joined.is_none_or(|joined| !Arc::ptr_eq(joined, group))
                && group.state.lock().members.is_empty()
        };
        let waiting = inner.all_groups().iter().filter(waits).count();
        (inner.clients.subscriptions(tenant) + waiting) as u64
    }

    /// Checks what a further subscribe asks against the group, and changes what a sole member may change.
    async fn adjust(
        &self,
        group: &Arc<Group>,
        mut held: StoredGroup,
        request: &Subscribe,
        asker: &dyn Tell,
    ) -> Result<(), SubscribeError> {
        let inner = self.inner();
        inner.ensure_lanes(group).await?;
        loop {
            let old = read_settings(&held.record).ok_or(SubscribeError::Changed)?;
            let (sole, outstanding) = {
                let mut state = group.state.lock();
                // They are what Meta holds, also when an answer about them was lost.
                if state.settings != old {
                    state.terms = old.terms(inner.limits.outstanding, inner.epoch, &inner.chance);
                    state.settings = old.clone();
                }
                let others = state.members.keys().any(|client| *client != request.client);
                (!others, state.outstanding() > 0)
            };
            if old.mode != request.mode {
                return Err(SubscribeError::ModeConflict);
            }
            let wanted = old.with(&request.asked);
            let Some(setting) = old.difference(&wanted) else { return Ok(()) };
            if !sole {
                return Err(SubscribeError::GroupConflict { setting });
            }
            if old.ack != wanted.ack && outstanding {
                return Err(SubscribeError::AckConflict);
            }
            let mut record = held.record.clone();
            record.settings = stored_settings(&wanted, record.settings.from.clone());
            let update = || self.store.update_group(&group.id, &held, record.clone());
            match inner.operations.decide(asker, update).await? {
                Replaced::Replaced(now) => held = now,
                Replaced::Stale(Some(now)) if now.record.id == group.number => held = now,
                Replaced::Stale(_) => return Err(SubscribeError::Changed),
            }
        }
    }

    /// Makes a group with its first member. The record of the group is written last: it decides.
    async fn create(
        &self,
        id: &GroupId,
        topic: &Arc<Topic>,
        settings: Settings,
        request: &Subscribe,
        asker: &dyn Tell,
    ) -> Result<(Arc<Group>, Membership), SubscribeError> {
        let inner = self.inner();
        // First: a start that is not one reserves no number.
        let starts = self.resolve(topic, &request.start).await?;
        let number = self.identities.new_group_number(id).await.map_err(SubscribeError::Meta)?;
        let terms = settings.terms(inner.limits.outstanding, inner.epoch, &inner.chance);
        let group = Group::new(id.clone(), number, 0, topic.clone(), settings.clone(), terms);
        let mut batch = PositionBatch::new();
        for (partition, offset) in starts {
            let partition = topic.partition(partition).expect("resolved from this topic");
            let cursor = Cursor { next_to_read: offset, incarnation: topic.incarnation() };
            batch.put_cursor(group.lane_key(&partition), cursor);
        }
        let log = inner.positions.log();
        let committed = log.committed(log.commit(log.epoch(), batch, Durability::Synced)).await;
        let prepared = match committed {
            Ok(()) => self.membership(id, None, request).await,
            Err(error) => Err(LedgerUnavailable::from(error).into()),
        };
        let (record, membership) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                self.forget_number(&group).await;
                return Err(error);
            }
        };
        let member = || self.store.put_member(id, record.clone());
        let member = match inner.operations.decide(asker, member).await {
            Ok(member) => member,
            Err(undecided) => {
                self.forget_number(&group).await;
                return Err(undecided.into());
            }
        };
        let record = GroupRecord {
            id: number,
            generation: 0,
            incarnation: topic.incarnation(),
            mode: settings.mode.as_str().to_owned(),
            settings: stored_settings(&settings, serde_json::Value::Null),
            home: inner.instance.clone(),
            unknown: shared::Unknown::default(),
        };
        let made = || self.store.create_group(id, record.clone());
        let made = match inner.operations.decide(asker, made).await {
            Ok(Created::Written(_)) => Ok(()),
            // Ours, of a try whose answer was lost.
            Ok(Created::AlreadyThere(there)) if there.record.id == number => Ok(()),
            Ok(Created::AlreadyThere(_)) => Err(SubscribeError::Changed),
            Err(Undecided::Refused(error)) => Err(SubscribeError::Meta(error)),
            Err(Undecided::Stopping) => return Err(Unable::Stopping.into()),
        };
        if let Err(refused) = made {
            self.forget_number(&group).await;
            self.end_membership(id, &member, asker).await?;
            return Err(refused);
        }
        // It is there now, whether or not its lanes can be read this moment.
        if let Err(error) = inner.ensure_lanes(&group).await {
            tracing::warn!(group = %id, %error, "the group is read once the ledger can be");
        }
        inner.groups.write().add(&group);
        self.admit(&group, request, &membership);
        Ok((group, membership))
    }

    /// The start offset of every partition.
    pub(crate) async fn resolve(
        &self,
        topic: &Arc<Topic>,
        start: &StartAt,
    ) -> Result<Vec<(PartitionId, Offset)>, SubscribeError> {
        let partitions = topic.partitions();
        let bad = |text: String| Err(SubscribeError::BadStart(text));
        if let StartAt::Offsets(offsets) = start
            && let Some(other) = offsets.keys().find(|id| id.0 as usize >= partitions.len())
        {
            return bad(format!(
                "from names partition {other}, topic {} has {}",
                topic.name(),
                partitions.len()
            ));
        }
        if matches!(start, StartAt::Offset(_)) && partitions.len() != 1 {
            return bad(format!(
                "a bare offset needs a topic with one partition, topic {} has {}",
                topic.name(),
                partitions.len()
            ));
        }
        let mut resolved = Vec::with_capacity(partitions.len());
        for partition in partitions.iter() {
            let (first, end) = (partition.start(), partition.end());
            let offset = match start {
                StartAt::Latest => end,
                StartAt::Earliest => first,
                StartAt::Time(at) => {
                    self.inner().storage.offset_at(partition, *at).await.map_err(SubscribeError::Storage)?
                }
                StartAt::Offsets(offsets) => offsets.get(&partition.id()).copied().unwrap_or(end),
                StartAt::Offset(offset) => *offset,
            };
            if offset > end {
                return bad(format!(
                    "offset {offset} of partition {} lies behind its end, {end}",
                    partition.id()
                ));
            }
            resolved.push((partition.id(), offset.max(first)));
        }
        Ok(resolved)
    }

    /// Takes back the number and the positions of a group that was not made. What fails is left to the next start.
    async fn forget_number(&self, group: &Arc<Group>) {
        self.inner().forget_positions(group);
        if let Err(error) = self.identities.release_group_number(group.number, &group.id).await {
            tracing::debug!(group = %group.id, error = %error.chain(), "its number stays reserved until the next start");
        }
    }

    /// Makes the client a member, or changes what it already is.
    async fn join(
        &self,
        group: &Arc<Group>,
        request: &Subscribe,
        asker: &dyn Tell,
    ) -> Result<Membership, SubscribeError> {
        let old = group.state.lock().members.get(&request.client).cloned();
        let (record, membership) = self.membership(&group.id, old.as_ref(), request).await?;
        if let Some(old) = old.filter(|old| old.max_in_flight == membership.max_in_flight) {
            return Ok(old);
        }
        let member = || self.store.put_member(&group.id, record.clone());
        self.inner().operations.decide(asker, member).await?;
        self.admit(group, request, &membership);
        Ok(membership)
    }

    /// The membership that a request asks for, as Meta keeps it and as the group does. One that Meta has keeps its id.
    async fn membership(
        &self,
        id: &GroupId,
        old: Option<&Membership>,
        request: &Subscribe,
    ) -> Result<(SubscriptionRecord, Membership), SubscribeError> {
        let inner = self.inner();
        let asked = request.max_in_flight;
        let max_in_flight =
            asked.unwrap_or_else(|| old.map_or(DEFAULT_MAX_IN_FLIGHT, |old| old.max_in_flight));
        let known = match old {
            Some(old) => Some(old.subscription.clone()),
            None => {
                let held = self.store.read_member(id, &request.client).await.map_err(SubscribeError::Meta)?;
                held.map(|held| held.record.subscription_id.clone())
            }
        };
        let subscription = known.unwrap_or_else(new_subscription);
        // A client has one owner, whoever of those who may uses it.
        let owner = inner.clients.owner(&request.tenant, &request.client);
        let owner = owner.or_else(|| request.principal.as_deref().map(Into::into));
        let record = SubscriptionRecord {
            subscription_id: subscription.clone(),
            client: request.client.clone(),
            max_in_flight,
            instance: inner.instance.clone(),
            principal: owner.as_deref().map(str::to_owned),
            created_at_ms: inner.clock.now().0,
            unknown: shared::Unknown::default(),
        };
        Ok((record, Membership { subscription, max_in_flight }))
    }

    /// A membership that Meta holds, in memory: from now on the client is given something.
    fn admit(&self, group: &Arc<Group>, request: &Subscribe, membership: &Membership) {
        let (inner, tenant, client) = (self.inner(), &request.tenant, &request.client);
        let owner = inner.clients.owner(tenant, client);
        let owner = owner.or_else(|| request.principal.as_deref().map(Into::into));
        group.state.lock().admit(tenant, client, membership.clone());
        inner.clients.joined(tenant, client, group, owner.as_ref());
        inner.look_again(tenant, client);
        inner.joined_with_stream(tenant, client, group);
    }

    /// The members of every group, of all instances; of one topic when one is named.
    pub fn members(&self, topic: Option<&TopicName>) -> Vec<MemberView> {
        let modes: std::collections::HashMap<GroupId, String> =
            self.store.groups().into_iter().map(|(id, stored)| (id, stored.record.mode.clone())).collect();
        self.store
            .all_members()
            .into_iter()
            .filter(|(id, _)| topic.is_none_or(|topic| id.topic == *topic))
            // One without a group is being made or being ended: it is not a member.
            .filter_map(|(id, stored)| Some((modes.get(&id)?.clone(), id, stored)))
            .map(|(mode, id, stored)| MemberView {
                subscription: stored.record.subscription_id.clone(),
                client: stored.record.client.clone(),
                tenant: id.tenant.clone(),
                topic: id.topic.clone(),
                mode,
                group: id.name.clone(),
                instance: stored.record.instance.as_str().to_owned(),
            })
            .collect()
    }

    /// How many clients this instance has.
    pub fn client_count(&self) -> usize {
        self.inner().clients.count()
    }
}

fn new_subscription() -> SubscriptionId {
    SubscriptionId::new(&uuid::Uuid::new_v4().to_string()).expect("a UUID is a legal id")
}

/// Settings as Meta keeps them.
pub(crate) fn stored_settings(settings: &Settings, from: serde_json::Value) -> shared::GroupSettings {
    shared::GroupSettings {
        filters: settings.filters.iter().map(Filter::to_json).collect(),
        from,
        ack: match settings.ack {
            AckMode::Explicit => shared::AckMode::Explicit,
            AckMode::Auto => shared::AckMode::Auto,
        },
        ack_timeout_ms: settings.ack_timeout_ms,
        max_attempts: settings.max_attempts,
        backoff_ms: settings.backoff_ms,
        max_backoff_ms: settings.max_backoff_ms,
        unknown: shared::Unknown::default(),
    }
}

/// Settings as Meta kept them; `None` when this release does not understand them.
pub(crate) fn read_settings(record: &GroupRecord) -> Option<Settings> {
    let stored = &record.settings;
    let filters =
        stored.filters.iter().map(|filter| Filter::parse(filter).ok()).collect::<Option<Vec<_>>>()?;
    Some(Settings {
        mode: Mode::read(&record.mode)?,
        filters,
        ack: match stored.ack {
            shared::AckMode::Explicit => AckMode::Explicit,
            shared::AckMode::Auto => AckMode::Auto,
        },
        ack_timeout_ms: stored.ack_timeout_ms,
        max_attempts: stored.max_attempts,
        backoff_ms: stored.backoff_ms,
        max_backoff_ms: stored.max_backoff_ms,
    })
}
