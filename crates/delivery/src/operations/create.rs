//! A group that is made: positions, then the membership, then the group's record, which decides it.

use std::sync::Arc;

use mesh_frame::{Offset, PartitionId};
use mesh_rocks::Durability;
use mesh_state::{
    positions::{Cursor, PositionBatch},
    shared::{self, Created, GroupId, GroupRecord, SubscriptionStore},
};
use mesh_storage::Topic;

use super::{
    begun::{Tell, Undone},
    errors::SubscribeError,
    groups::Groups,
    request::Subscribe,
};
use crate::{
    group::{Group, Membership, settings::Settings, start_at::StartAt, stored_settings::stored_settings},
    ledger::LedgerUnavailable,
};

impl Groups {
    /// Makes a group with its first member. The record of the group is written last: it decides.
    pub(super) async fn create(
        &self,
        id: &GroupId,
        topic: &Arc<Topic>,
        settings: Settings,
        request: &Subscribe,
        asker: &dyn Tell,
    ) -> Result<(Arc<Group>, Membership), SubscribeError> {
        // First: a start that is not one reserves no number.
        let starts = self.resolve(topic, &request.start).await?;
        let number = self.meta.identities.new_group_number(id).await.map_err(SubscribeError::Meta)?;
        let terms = settings.terms(self.core.limits.outstanding, self.core.epoch, &self.core.chance);
        let group = Group::new(id.clone(), number, 0, topic.clone(), settings.clone(), terms);
        let mut batch = PositionBatch::new();
        for (partition, offset) in starts {
            let partition = topic.partition(partition).expect("resolved from this topic");
            let cursor = Cursor { next_to_read: offset, incarnation: topic.incarnation() };
            batch.put_cursor(group.lane_key(&partition), cursor);
        }
        let committed = self.core.ledger.write(batch, Durability::Synced).await;
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
        let member = || self.meta.subscriptions.put_member(id, record.clone());
        let member = match self.operations.decide(asker, member).await {
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
            home: self.meta.instance.clone(),
            unknown: shared::Unknown::default(),
        };
        let made = || self.meta.subscriptions.create_group(id, record.clone());
        let made = match self.operations.decide(asker, made).await {
            Ok(Created::Written(_)) => Ok(()),
            // Ours, of a try whose answer was lost.
            Ok(Created::AlreadyThere(there)) if there.record.id == number => Ok(()),
            Ok(Created::AlreadyThere(_)) => Err(SubscribeError::Changed),
            Err(Undone::Meta(error)) => Err(SubscribeError::Meta(error)),
            Err(Undone::Unable(unable)) => return Err(unable.into()),
        };
        if let Err(refused) = made {
            self.forget_number(&group).await;
            self.end_membership(id, &member, asker).await?;
            return Err(refused);
        }
        // It is there now, whether or not its lanes can be read this moment.
        if let Err(error) = self.core.ensure_lanes(&group).await {
            tracing::warn!(group = %id, %error, "the group is read once the ledger can be");
        }
        self.core.directory.add(&group);
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
                    self.core.storage.offset_at(partition, *at).await.map_err(SubscribeError::Storage)?
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
        self.forget_positions(group);
        if let Err(error) = self.meta.identities.release_group_number(group.number, &group.id).await {
            tracing::debug!(group = %group.id, error = %error.chain(), "its number stays reserved until the next start");
        }
    }
}
