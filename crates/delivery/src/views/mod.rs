//! What an operator sees of deliveries: positions, pending counts, dead letters, and what retention may take.

pub(crate) mod groups;
mod lag;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use mesh_base::{BackendError, Stop, UnixMillis};
use mesh_frame::{ClientId, GroupName, Offset, PartitionId, TenantId, TopicName};
use mesh_state::shared::{DeadLetter, DeadLetterScope, DeadLetterStore, GroupKind};
use mesh_storage::{LogRecord, Partition, Retain, Topic};

use crate::{ReliableDispatcher, group::member_of};

/// How far a group is on a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PositionView {
    /// The tenant of the group.
    pub tenant: TenantId,
    /// The group.
    pub group: GroupName,
    /// Whether it is a group of one client.
    pub of_one_client: bool,
    /// The partition.
    pub partition: PartitionId,
    /// Everything below is done.
    pub floor: Offset,
    /// Everything below was handed out or skipped.
    pub next_to_read: Offset,
    /// One past the last event.
    pub end: Offset,
    /// Outstanding rows.
    pub outstanding: usize,
    /// Handed out and not finished.
    pub pending: usize,
}

/// A client with what it has pending on a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientView {
    /// The client.
    pub client: ClientId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Handed out to it last and not finished.
    pub pending: usize,
}

/// A dead letter with its body.
#[derive(Clone, Debug)]
pub struct DeadLetterView {
    /// The row.
    pub letter: DeadLetter,
    /// The body; `None` when the dead-letter topic no longer has it.
    pub body: Option<Arc<LogRecord>>,
}

/// How long dead letters are kept.
pub(crate) const DEAD_LETTERS_FOR: Duration = Duration::from_secs(14 * 86_400);

impl ReliableDispatcher {
    /// How far the groups of a topic are.
    pub fn positions(&self, topic: &TopicName) -> Vec<PositionView> {
        let groups = self.0.by_topic.of(topic);
        let mut views = Vec::new();
        for group in groups {
            let state = group.state.lock();
            for lane in &state.lanes {
                views.push(PositionView {
                    tenant: group.id.tenant.clone(),
                    group: group.id.name.clone(),
                    of_one_client: group.id.kind == GroupKind::Broadcast,
                    partition: lane.partition.id(),
                    floor: lane.lane.floor(),
                    next_to_read: lane.lane.next_to_read(),
                    end: lane.partition.end(),
                    outstanding: lane.lane.outstanding(),
                    pending: lane.lane.pending(),
                });
            }
        }
        views
    }

    /// The clients of a topic with what they have pending.
    pub fn clients(&self, topic: &TopicName) -> Vec<ClientView> {
        let groups = self.0.by_topic.of(topic);
        let mut pending: BTreeMap<(TenantId, ClientId), usize> = BTreeMap::new();
        for group in groups {
            let state = group.state.lock();
            for client in state.members.keys() {
                let member = member_of(&group.id.tenant, client);
                let held: usize = state.lanes.iter().map(|lane| lane.lane.pending_of(member)).sum();
                *pending.entry((group.id.tenant.clone(), client.clone())).or_default() += held;
            }
        }
        pending
            .into_iter()
            .map(|((tenant, client), pending)| ClientView { client, tenant, pending })
            .collect()
    }

    /// The dead letters of a topic, oldest position first, at most `max`.
    ///
    /// # Errors
    /// When Meta or the log cannot be read.
    pub async fn dead_letters(
        &self,
        topic: &TopicName,
        max: usize,
    ) -> Result<Vec<DeadLetterView>, BackendError> {
        let page = self.0.dead_letters.browse(&DeadLetterScope::Topic(topic.clone()), None, max).await?;
        let mut views = Vec::with_capacity(page.rows.len());
        for row in page.rows {
            let place = &row.record.body;
            let topic =
                self.0.storage.topic(&place.topic).filter(|topic| topic.incarnation() == place.incarnation);
            let body = match topic.and_then(|topic| topic.partition(place.partition)) {
                None => None,
                Some(partition) => self.0.storage.record(&partition, place.offset).await?,
            };
            views.push(DeadLetterView { letter: row.record.clone(), body });
        }
        Ok(views)
    }

    /// Drops what retention allows, every `period`, until it is told to stop.
    pub async fn retain(self, period: Duration, stop: Stop) {
        for round in 0u64.. {
            tokio::select! {
                () = stop.wait() => return,
                () = tokio::time::sleep(period) => {}
            }
            for topic in self.0.storage.topics() {
                if stop.is_signalled() {
                    return;
                }
                // Reading every row of the ledger is dear and nothing hurries: every twentieth time.
                if round % 20 == 0
                    && let Some(of) = topic.name().of_dead_letters()
                    && let Err(error) = self.letters().retain(&of).await
                {
                    tracing::warn!(topic = %of, error = %error.chain(), "retention of dead letters failed; tried again later");
                }
                if let Err(error) = self.retain_topic(&topic).await {
                    tracing::warn!(topic = %topic.name(), error = %error.chain(), "retention failed; tried again later");
                }
            }
        }
    }

    /// Drops what the rules of a topic allow.
    ///
    /// # Errors
    /// When the log cannot be read or written.
    pub async fn retain_topic(&self, topic: &Arc<Topic>) -> Result<(), BackendError> {
        let now = self.0.clock.now();
        let floors = self.floors(topic.name());
        let partitions = topic.partitions();
        let each = |bytes: u64| bytes / partitions.len().max(1) as u64;
        let rules = self.0.storage.rules(topic);
        for partition in partitions.iter() {
            if partition.start() == partition.end() {
                continue;
            }
            let retain = if topic.name().is_dead_letter() {
                Retain {
                    done_below: None,
                    done_before: Some(now.minus(DEAD_LETTERS_FOR)),
                    done_bytes: None,
                    backlog_before: None,
                    backlog_bytes: None,
                }
            } else {
                Retain {
                    done_below: floors.get(&partition.id()).copied(),
                    done_before: Some(now.minus(rules.max_age)),
                    done_bytes: rules.max_bytes.map(each),
                    backlog_before: rules.backlog_max_age.map(|age| now.minus(age)),
                    backlog_bytes: rules.backlog_max_bytes.map(each),
                }
            };
            let old = partition.start();
            let retained = self.0.storage.retain(partition, retain).await?;
            if retained.dropped_backlog > 0 {
                tracing::warn!(
                    topic = %topic.name(),
                    partition = partition.id().0,
                    from = old.0,
                    to = retained.start.0,
                    dropped = retained.dropped_backlog,
                    "backlog limits dropped events that some group was not done with"
                );
                self.0.signals.drop_by("dropped_backlog", retained.dropped_backlog);
            }
            if let Some(floor) = floors.get(&partition.id()) {
                self.warn_of_backlog(partition, *floor, &retain).await?;
            }
        }
        Ok(())
    }

    /// Warns, once, when what some group has not done is half as old, or as large, as it may become.
    async fn warn_of_backlog(
        &self,
        partition: &Arc<Partition>,
        floor: Offset,
        retain: &Retain,
    ) -> Result<(), BackendError> {
        let storage = &self.0.storage;
        let from = floor.max(partition.start());
        let is_old = match retain.backlog_before {
            _ if from >= partition.end() => false,
            None => false,
            Some(before) => {
                let half = before.plus(self.0.clock.now().since(before) / 2);
                storage.offset_at(partition, half).await? > from
            }
        };
        // What is done with goes first: before there is none of that left, the rest is no danger.
        let is_large = match retain.backlog_bytes {
            Some(bytes) if from < partition.end() && floor <= partition.start() => {
                storage.bytes(partition).await? > bytes / 2
            }
            _ => false,
        };
        let mut warned = self.0.warned.lock();
        if !is_old && !is_large {
            warned.remove(&partition.key());
        } else if warned.insert(partition.key()) {
            tracing::warn!(
                topic = %partition.topic(),
                partition = partition.id().0,
                is_old,
                is_large,
                "the backlog is half as old or as large as it may be; what passes the limit is dropped"
            );
        }
        Ok(())
    }

    /// The lowest floor of any group, by partition; partitions nobody reads are absent.
    fn floors(&self, topic: &TopicName) -> BTreeMap<PartitionId, Offset> {
        let groups = self.0.by_topic.of(topic);
        let mut floors: BTreeMap<PartitionId, Offset> = BTreeMap::new();
        for group in groups {
            let mut state = group.state.lock();
            for partition in self.0.polled(&group) {
                // A lane that is not read yet may be anywhere.
                let of_group = state.lane(partition.id()).map_or(Offset(0), |lane| lane.floor());
                let floor = floors.entry(partition.id()).or_insert(of_group);
                *floor = (*floor).min(of_group);
            }
        }
        floors
    }

    /// The time of this dispatcher's clock.
    pub fn now(&self) -> UnixMillis {
        self.0.clock.now()
    }
}
