//! Topics as an operator handles them: made, grown, shown, deleted.

use std::sync::Arc;

use mesh_base::BackendError;
use mesh_frame::{Incarnation, Offset, PartitionId, TopicName};
use mesh_state::shared::GroupId;
use mesh_storage::{Partition, SettingsChange, Topic, TopicError, TopicRules, TopicSettings};

use super::{
    begun::{Tell, Undone},
    errors::SubscribeError,
    groups::Groups,
};
use crate::{
    dead_letters::{Interrupted, LetterSelector},
    group::{Core, Group},
    ledger::LedgerUnavailable,
    owned::Unable,
};

/// A topic as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicView {
    /// Its name.
    pub name: TopicName,
    /// The random number of this log of that name.
    pub incarnation: Incarnation,
    /// Its partitions, in order.
    pub partitions: Vec<PartitionView>,
    /// The groups that read it, by name.
    pub groups: Vec<GroupId>,
    /// What holds for it.
    pub rules: TopicRules,
    /// What of that is set on it.
    pub own: TopicSettings,
}

/// A partition as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// Its number.
    pub partition: PartitionId,
    /// The lowest offset that may still be there.
    pub start: Offset,
    /// One past the last event.
    pub end: Offset,
    /// About how many bytes its records take; `None` when nobody asked for it.
    pub bytes: Option<u64>,
}

/// How making a topic ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicMade {
    /// It is new.
    Created,
    /// It was there, with as many partitions.
    AlreadyThere,
    /// It was there, and got this many partitions more.
    Grown(u32),
}

/// What the deletion of a topic took with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicDeleted {
    /// Groups.
    pub groups: usize,
    /// Dead letters.
    pub dead_letters: usize,
}

/// Why an operator's change of a topic did not happen.
#[derive(Debug, thiserror::Error)]
pub enum TopicsError {
    /// There is no such topic.
    #[error("there is no topic {0}")]
    Unknown(TopicName),
    /// The topic still has groups.
    #[error("the topic still has {0} groups; force=true removes them with their positions")]
    GroupsExist(usize),
    /// Partitions cannot be taken away.
    #[error("the topic has {has} partitions; they cannot be made fewer")]
    Fewer {
        /// How many it has.
        has: usize,
    },
    /// The topic could not be made.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// A group could not be removed, or positions could not be written.
    #[error(transparent)]
    Group(#[from] SubscribeError),
    /// Its dead letters could not be removed.
    #[error(transparent)]
    DeadLetters(#[from] Interrupted),
    /// The log could not be read or written.
    #[error("{}", .0.chain())]
    Storage(BackendError),
}

impl From<Undone> for TopicsError {
    fn from(undone: Undone) -> Self {
        Self::Group(undone.into())
    }
}

impl From<Unable> for TopicsError {
    fn from(unable: Unable) -> Self {
        Self::Group(unable.into())
    }
}

/// The handle on topics; cheap to clone.
#[derive(Clone)]
pub struct Topics {
    groups: Groups,
}

impl std::fmt::Debug for Topics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Topics").finish_non_exhaustive()
    }
}

impl Groups {
    /// The handle on the topics that these groups read.
    pub fn topics(&self) -> Topics {
        Topics { groups: self.clone() }
    }
}

impl Topics {
    fn core(&self) -> &Arc<Core> {
        &self.groups.core
    }

    /// Makes a topic, or changes settings of one that is there and gives it more partitions: its groups read the
    /// new ones from their beginning, and the events of a key may change their partition. Durable when it
    /// returns; cut short it may have done a part, and asked again it does the rest.
    ///
    /// # Errors
    /// See [`TopicsError`].
    pub async fn make(
        &self,
        name: &TopicName,
        partitions: Option<u32>,
        change: SettingsChange,
    ) -> Result<TopicMade, TopicsError> {
        let operations = &self.groups.operations;
        operations.ready()?;
        let alone = operations.topics.alone(name).await?;
        let (topics, name) = (self.clone(), name.clone());
        operations
            .own("make a topic", |_asker| async move {
                let made = topics.make_topic(&name, partitions, &change).await;
                drop(alone);
                made
            })
            .await
    }

    /// Every topic, by name, without sizes.
    pub fn list(&self) -> Vec<TopicView> {
        let mut topics = self.core().storage.topics();
        topics.sort_by(|one, other| one.name().cmp(other.name()));
        topics.iter().map(|topic| self.view(topic)).collect()
    }

    /// One topic, without sizes; `None`: there is none of that name.
    pub fn show(&self, name: &TopicName) -> Option<TopicView> {
        self.core().storage.topic(name).map(|topic| self.view(&topic))
    }

    /// One topic, with sizes; `None`: there is none of that name.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn describe(&self, name: &TopicName) -> Result<Option<TopicView>, BackendError> {
        let Some(topic) = self.core().storage.topic(name) else { return Ok(None) };
        let mut view = self.view(&topic);
        for partition in &mut view.partitions {
            if let Some(of) = topic.partition(partition.partition) {
                partition.bytes = Some(self.core().storage.bytes(&of).await?);
            }
        }
        Ok(Some(view))
    }

    fn view(&self, topic: &Arc<Topic>) -> TopicView {
        let groups = self.core().directory.of_topic(topic.name());
        let mut groups: Vec<GroupId> = groups.iter().map(|group| group.id.clone()).collect();
        groups.sort();
        let partition = |partition: &Arc<Partition>| PartitionView {
            partition: partition.id(),
            start: partition.start(),
            end: partition.end(),
            bytes: None,
        };
        TopicView {
            name: topic.name().clone(),
            incarnation: topic.incarnation(),
            partitions: topic.partitions().iter().map(partition).collect(),
            groups,
            rules: self.core().storage.rules(topic),
            own: topic.settings(),
        }
    }

    /// Deletes a topic. `force`: its groups and their positions go first; without it a topic with groups stays.
    /// Its dead letters stay for their own time unless `dead_letters` is set: they may be all that is left of an
    /// event. Cut short, it can be asked for again.
    ///
    /// # Errors
    /// See [`TopicsError`]; what went before stays gone.
    pub async fn delete(
        &self,
        name: &TopicName,
        force: bool,
        dead_letters: bool,
    ) -> Result<TopicDeleted, TopicsError> {
        let operations = &self.groups.operations;
        operations.ready()?;
        let alone = operations.topics.alone(name).await?;
        let (topics, name) = (self.clone(), name.clone());
        operations
            .own("delete a topic", |asker| async move {
                let deleted = topics.delete_alone(&name, force, dead_letters, &asker).await;
                drop(alone);
                deleted
            })
            .await
    }

    /// The caller has the topic's lock: no group is made meanwhile.
    async fn delete_alone(
        &self,
        name: &TopicName,
        force: bool,
        dead_letters: bool,
        asker: &dyn Tell,
    ) -> Result<TopicDeleted, TopicsError> {
        if self.core().storage.topic(name).is_none() {
            return Err(TopicsError::Unknown(name.clone()));
        }
        let mut deleted = TopicDeleted::default();
        let groups = self.core().directory.of_topic(name);
        if !groups.is_empty() && !force {
            return Err(TopicsError::GroupsExist(groups.len()));
        }
        for id in groups.iter().map(|group| &group.id) {
            let alone = self.groups.operations.groups.alone(id).await?;
            let there = self.core().directory.find(id);
            if let Some(group) = there {
                self.groups.evict_all(&group, asker).await?;
                deleted.groups += 1;
            }
            drop(alone);
        }
        if dead_letters {
            let which = LetterSelector::of(name.clone());
            deleted.dead_letters = self.groups.letters.discard(&which, usize::MAX).await?;
            self.core().storage.delete_topic(&name.dead_letter()).await.map_err(TopicsError::Storage)?;
        }
        self.core().storage.delete_topic(name).await.map_err(TopicsError::Storage)?;
        tracing::warn!(topic = %name, groups = deleted.groups, dead_letters = deleted.dead_letters, "a topic was deleted");
        Ok(deleted)
    }
}

impl Topics {
    async fn make_topic(
        &self,
        name: &TopicName,
        partitions: Option<u32>,
        change: &SettingsChange,
    ) -> Result<TopicMade, TopicsError> {
        let Some(topic) = self.core().storage.topic(name) else {
            let settings = TopicSettings::default().changed(change);
            self.core().storage.create_topic(name, partitions, settings).await?;
            // A publish may have made it in between, without them.
            self.core().storage.change_topic(name, change).await?;
            return Ok(TopicMade::Created);
        };
        let has = topic.partitions().len();
        if partitions.is_some_and(|wanted| (wanted as usize) < has) {
            return Err(TopicsError::Fewer { has });
        }
        self.core().storage.change_topic(name, change).await?;
        match partitions.filter(|wanted| *wanted as usize > has) {
            Some(wanted) => self.grow(name, has, wanted).await,
            None => Ok(TopicMade::AlreadyThere),
        }
    }

    /// Gives a topic partitions, and its groups lanes for them.
    async fn grow(&self, name: &TopicName, has: usize, wanted: u32) -> Result<TopicMade, TopicsError> {
        let (_, added) = self.core().storage.add_partitions(name, wanted).await?;
        tracing::warn!(topic = %name, from = has, to = wanted,
            "a topic got more partitions: the events of a key may go to another one from now on, out of order with those before");
        let groups = self.core().directory.of_topic(name);
        let mut failed = None;
        for id in groups.iter().map(|group| &group.id) {
            // A group that is being sought meanwhile has read its lanes, perhaps without the new partitions.
            let alone = self.groups.operations.groups.alone_at_last(id).await;
            let there = self.core().directory.find(id);
            if let Some(group) = there {
                failed = failed.or(self.add_lanes(&group).await.err());
            }
            drop(alone);
        }
        if let Some(error) = failed {
            return Err(SubscribeError::from(error).into());
        }
        Ok(TopicMade::Grown(u32::try_from(added.len()).unwrap_or(u32::MAX)))
    }

    /// Gives a group its lanes of new partitions, which it reads from their beginning. Durable when it returns. The
    /// caller has the group's lock.
    async fn add_lanes(&self, group: &Arc<Group>) -> Result<(), LedgerUnavailable> {
        let core = self.core();
        for partition in core.polled.partitions(&group.topic) {
            core.load_lane(group, &partition, Some(group.beginning())).await?;
        }
        core.after(group);
        Ok(())
    }
}
