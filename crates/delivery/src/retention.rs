//! What the log may drop: how far the groups of a partition are, held against the rules of its topic.
//!
//! How far they are is asked through [`Floors`]: no instance drops what a group of another one has not read.

use std::{collections::HashSet, sync::Arc, time::Duration};

use mesh_base::{BackendError, Stop};
use mesh_frame::{Offset, PartitionId, TopicName};
use mesh_storage::{Partition, Retain, Topic};
use parking_lot::Mutex;

use crate::{
    dead_letters::{DeadLetters, KEPT_FOR},
    group::Core,
};

/// How far those are who read a partition, on whichever instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// No group reads it.
    NobodyReads,
    /// Every group is done with everything below.
    Below(Offset),
    /// A group reads it, and how far it is cannot be told now: nothing is dropped.
    Unknown,
}

/// What knows how far the groups of a partition are.
pub trait Floors: Send + Sync {
    /// How far those are who read a partition of a topic. Asked at each look of retention: quick, and does not block.
    fn floor(&self, topic: &TopicName, partition: PartitionId) -> Floor;
}

/// The groups of this instance, which are all there are as long as it alone writes its log.
pub(crate) struct OfThisInstance(pub(crate) Arc<Core>);

impl Floors for OfThisInstance {
    fn floor(&self, topic: &TopicName, partition: PartitionId) -> Floor {
        let floors = self.0.directory.of_topic(topic).into_iter().map(|group| {
            // A lane that is not loaded may be anywhere.
            group.state.lock().lane(partition).map(|lane| lane.floor())
        });
        let mut lowest = Floor::NobodyReads;
        for floor in floors {
            lowest = match (lowest, floor) {
                (Floor::Unknown, _) | (_, None) => Floor::Unknown,
                (Floor::NobodyReads, Some(floor)) => Floor::Below(floor),
                (Floor::Below(lowest), Some(floor)) => Floor::Below(lowest.min(floor)),
            };
        }
        lowest
    }
}

/// Applies the retention rules.
pub(crate) struct Retention {
    core: Arc<Core>,
    letters: DeadLetters,
    floors: Arc<dyn Floors>,
    /// Partitions, by their key in the log, whose backlog was warned about.
    warned: Mutex<HashSet<u32>>,
}

impl Retention {
    pub(crate) fn new(core: Arc<Core>, letters: DeadLetters, floors: Arc<dyn Floors>) -> Self {
        Self { core, letters, floors, warned: Mutex::default() }
    }

    /// Applies the rules to every topic, once a `period`, until it is told to stop.
    pub(crate) async fn run(&self, period: Duration, stop: Stop) {
        for round in 0u64.. {
            tokio::select! {
                () = stop.wait() => return,
                () = tokio::time::sleep(period) => {}
            }
            for topic in self.core.storage.topics() {
                if stop.is_signalled() {
                    return;
                }
                if round % 20 == 0
                    && let Some(of) = topic.name().of_dead_letters()
                    && let Err(error) = self.letters.retain(&of).await
                {
                    tracing::warn!(topic = %of, error = %error.chain(), "retention of dead letters failed; tried again later");
                }
                if let Err(error) = self.retain_topic(&topic).await
                    && self.is_there(&topic)
                {
                    tracing::warn!(topic = %topic.name(), error = %error.chain(), "retention failed; tried again later");
                }
            }
        }
    }

    /// Applies the rules to one topic now.
    ///
    /// # Errors
    /// When the log cannot be read or written.
    pub(crate) async fn retain_topic(&self, topic: &Arc<Topic>) -> Result<(), BackendError> {
        let now = self.core.clock.now();
        let partitions = topic.partitions();
        // What a topic may have is shared out evenly.
        let each = |bytes: u64| bytes / partitions.len().max(1) as u64;
        let rules = self.core.storage.rules(topic);
        for partition in partitions.iter() {
            if partition.start() == partition.end() {
                continue;
            }
            let is_of_dead_letters = topic.name().is_dead_letter();
            let floor = match self.floors.floor(topic.name(), partition.id()) {
                _ if is_of_dead_letters => None,
                Floor::NobodyReads => None,
                Floor::Below(floor) => Some(floor),
                // Only what passes the limits of the backlog goes.
                Floor::Unknown => Some(partition.start()),
            };
            let retain = if is_of_dead_letters {
                Retain {
                    done_below: None,
                    done_before: Some(now.minus(KEPT_FOR)),
                    done_bytes: None,
                    backlog_before: None,
                    backlog_bytes: None,
                }
            } else {
                Retain {
                    done_below: floor,
                    done_before: Some(now.minus(rules.max_age)),
                    done_bytes: rules.max_bytes.map(each),
                    backlog_before: rules.backlog_max_age.map(|age| now.minus(age)),
                    backlog_bytes: rules.backlog_max_bytes.map(each),
                }
            };
            let old = partition.start();
            let retained = self.core.storage.retain(partition, retain).await?;
            // Deleted while this looked: whatever went, no limit dropped it.
            if !self.is_there(topic) {
                return Ok(());
            }
            if retained.dropped_backlog > 0 {
                tracing::warn!(
                    topic = %topic.name(),
                    partition = partition.id().0,
                    from = old.0,
                    to = retained.start.0,
                    dropped = retained.dropped_backlog,
                    "backlog limits dropped events that some group was not done with"
                );
                self.core.signals.drop_by("dropped_backlog", retained.dropped_backlog);
                for group in self.core.directory.of_topic(topic.name()) {
                    if let Some(lane) = group.state.lock().lane(partition.id()) {
                        lane.backlog_dropped(old, retained.start);
                    }
                }
            }
            if let Some(floor) = floor {
                self.warn_of_backlog(partition, floor, &retain).await?;
            }
        }
        Ok(())
    }

    /// Whether a topic is the one of its name: it was not deleted.
    fn is_there(&self, topic: &Arc<Topic>) -> bool {
        self.core.storage.topic(topic.name()).is_some_and(|there| Arc::ptr_eq(&there, topic))
    }

    /// Warns once while a backlog is half as old or half as large as it may be.
    async fn warn_of_backlog(
        &self,
        partition: &Arc<Partition>,
        floor: Offset,
        retain: &Retain,
    ) -> Result<(), BackendError> {
        let storage = &self.core.storage;
        let from = floor.max(partition.start());
        let is_old = match retain.backlog_before {
            _ if from >= partition.end() => false,
            None => false,
            Some(before) => {
                let half = before.plus(self.core.clock.now().since(before) / 2);
                storage.offset_at(partition, half).await? > from
            }
        };
        let is_large = match retain.backlog_bytes {
            Some(bytes) if from < partition.end() && floor <= partition.start() => {
                storage.bytes(partition).await? > bytes / 2
            }
            _ => false,
        };
        let mut warned = self.warned.lock();
        let is_there = storage.topic(partition.topic()).is_some_and(|topic| {
            topic.partition(partition.id()).is_some_and(|there| Arc::ptr_eq(&there, partition))
        });
        if !is_there || !is_old && !is_large {
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
}
