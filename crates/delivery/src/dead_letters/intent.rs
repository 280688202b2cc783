//! What a turn writes down before it copies, and what becomes of it when the turn did not get to its end.
//!
//! Copies that were intended are looked for in the log, from where it ended before them. The row of one that is
//! there goes, the others stay; none is copied a second time.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use mesh_base::{BackendError, BackendErrorKind};
use mesh_frame::{InstanceId, Offset};
use mesh_state::shared::{
    DeadLetterStore, Removed, ReplayAttempt, ReplayIntent, ReplayedGroup, ReplayedLetter, Stored,
};
use mesh_storage::{Partition, Topic};

use super::{
    letters::{DeadLetters, LetterRow, Letters},
    turn::{Turn, Unsure},
};
use crate::group::replay_copy::{REPLAY_GROUP, REPLAY_POSITION, group_tag, position_tag};

/// How often what is left open is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What settling an attempt came to.
struct Settled {
    /// Rows that went, because their copy is in the log.
    gone: usize,
    /// Rows that stay, because no copy of them is to be seen.
    left: usize,
}

/// By the group and the position that copies carry: the row that one of them replaces.
type Wanted = HashMap<(String, String), LetterRow>;

/// What is written down about copies of these rows for a topic.
pub(super) fn attempt(topic: &Topic, rows: &[(LetterRow, u64)]) -> ReplayAttempt {
    let mut groups: BTreeMap<u64, ReplayedGroup> = BTreeMap::new();
    for (row, number) in rows {
        let group = groups.entry(*number).or_insert_with(|| ReplayedGroup {
            group: row.record.group.clone(),
            number: *number,
            letters: Vec::new(),
        });
        group.letters.push(ReplayedLetter::from(&row.record));
    }
    ReplayAttempt {
        topic: topic.name().clone(),
        incarnation: topic.incarnation(),
        ends: ends(topic),
        groups: groups.into_values().collect(),
    }
}

/// Where the log of a topic ends, by partition.
fn ends(topic: &Topic) -> Vec<u64> {
    topic.partitions().iter().map(|partition| partition.end().0).collect()
}

impl DeadLetters {
    /// Settles every replay that the death of the process interrupted. Gives how many dead letters were replayed by
    /// them. For boot, when the groups are there and before anything is served. Every intent in Meta is this
    /// process's own.
    pub(crate) async fn settle_replays(&self) -> Result<usize, BackendError> {
        let mut gone = 0;
        for (instance, intent) in self.0.store.intents().await? {
            for attempt in &intent.record.attempts {
                gone += self.0.settle_attempt(&instance, attempt).await?.gone;
            }
            if let Removed::Stale(Some(_)) = self.0.store.end_intent(&instance, &intent).await? {
                tracing::warn!(%instance, "another process wrote down replays of this instance meanwhile: they are left to it");
            }
        }
        Ok(gone)
    }
}

/// Until nothing is left open.
async fn keep_tidying(letters: Arc<Letters>) {
    let stop = letters.core.owned.tasks.stop();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = stop.wait() => return,
        }
        let Some(mut turn) = letters.turns.turn(LOOK_AGAIN).await else { continue };
        if let Err(error) = letters.tidy(&mut turn).await {
            tracing::debug!(error = %error.chain(), "what replays left open cannot be settled now");
        }
        if turn.is_tidy() {
            turn.tidying = false;
            return;
        }
    }
}

impl Letters {
    async fn tidy(&self, turn: &mut Turn) -> Result<(), BackendError> {
        self.settle_unsure(turn).await?;
        if turn.stale {
            let intent = self.intend(turn, None).await?;
            // Something else that is written down there is looked at again.
            turn.stale = turn.unsure.is_empty()
                && matches!(self.store.end_intent(&self.instance, &intent).await?, Removed::Stale(Some(_)));
        }
        Ok(())
    }

    /// What is written down besides what nobody is sure of.
    pub(super) async fn intend(
        &self,
        turn: &mut Turn,
        more: Option<&ReplayAttempt>,
    ) -> Result<Arc<Stored<ReplayIntent>>, BackendError> {
        let attempts = turn.unsure.iter().map(|unsure| &unsure.attempt).chain(more).cloned().collect();
        turn.stale = true;
        let intent = ReplayIntent { attempts, ..ReplayIntent::default() };
        self.store.intend(&self.instance, intent).await
    }

    /// The log answered an attempt with an error. It is settled as soon as that can be.
    pub(super) fn unsure(self: &Arc<Self>, turn: &mut Turn, topic: &Topic, attempt: ReplayAttempt) {
        let ends = ends(topic);
        match turn.same(&attempt) {
            // The one that came first says where to look from.
            Some(known) => known.ends = ends,
            None => turn.unsure.push(Unsure { attempt, ends }),
        }
        self.tidy_later(turn);
    }

    /// Sees to it that nothing stays open: what is written down is looked for at the next start, and should not be
    /// old then.
    pub(super) fn tidy_later(self: &Arc<Self>, turn: &mut Turn) {
        if !turn.tidying && !turn.is_tidy() {
            turn.tidying = true;
            self.core.owned.tasks.spawn("replay-tidying", keep_tidying(self.clone()));
        }
    }

    /// Settles attempts that the log answered with an error: what it stored all the same counts. They are forgotten
    /// when it has stored something after them; what is not there then will never be. Dropped while it runs, it is
    /// begun anew.
    pub(super) async fn settle_unsure(&self, turn: &mut Turn) -> Result<(), BackendError> {
        let mut place = 0;
        while let Some(unsure) = turn.unsure.get(place) {
            let topic = self.core.storage.topic(&unsure.attempt.topic);
            let topic = topic.filter(|topic| topic.incarnation() == unsure.attempt.incarnation);
            let is_over = topic
                .is_none_or(|topic| ends(&topic).iter().zip(&unsure.ends).any(|(end, before)| end > before));
            let settled = self.settle_attempt(&self.instance, &unsure.attempt).await?;
            if is_over || settled.left == 0 {
                turn.unsure.remove(place);
                turn.stale = true;
            } else {
                place += 1;
            }
        }
        Ok(())
    }

    /// Removes the rows of an attempt whose copy is in the log.
    async fn settle_attempt(
        &self,
        instance: &InstanceId,
        attempt: &ReplayAttempt,
    ) -> Result<Settled, BackendError> {
        let wanted = self.rows_of(instance, attempt).await?;
        let copied = self.copies_of(attempt, &wanted).await?;
        let left = wanted.len() - copied.len();
        let rows = wanted.into_iter().filter(|(tags, _)| copied.contains(tags)).map(|(_, row)| row);
        let rows: Vec<LetterRow> = rows.collect();
        let removals = rows.iter().map(|row| self.store.remove(row));
        let removed = futures_util::future::join_all(removals).await;
        removed.into_iter().collect::<Result<Vec<_>, _>>()?;
        self.core.signals.replayed.inc_by(rows.len() as u64);
        Ok(Settled { gone: rows.len(), left })
    }

    /// The rows of an attempt that are still there, of groups that are.
    async fn rows_of(&self, instance: &InstanceId, attempt: &ReplayAttempt) -> Result<Wanted, BackendError> {
        let mut wanted = Wanted::new();
        for ReplayedGroup { group, number, letters } in &attempt.groups {
            // One that was removed took nothing, whatever is in the log.
            if self.core.directory.group(*number).is_none_or(|there| there.id != *group) {
                continue;
            }
            for letter in letters {
                match self.store.find(instance, group, *letter).await {
                    Ok(row) => wanted.extend(row.map(|row| ((group_tag(group), position_tag(*letter)), row))),
                    Err(error) if error.kind() == BackendErrorKind::Unavailable => return Err(error),
                    // Nobody can replay it either.
                    Err(error) => tracing::error!(error = %error.chain(), "a dead letter cannot be read"),
                }
            }
        }
        Ok(wanted)
    }

    /// Which of the rows have a copy behind where the log ended.
    async fn copies_of(
        &self,
        attempt: &ReplayAttempt,
        wanted: &Wanted,
    ) -> Result<HashSet<(String, String)>, BackendError> {
        let mut copied = HashSet::new();
        let topic = self.core.storage.topic(&attempt.topic);
        // What was in another log of that name is gone with it.
        let Some(topic) = topic.filter(|topic| topic.incarnation() == attempt.incarnation) else {
            return Ok(copied);
        };
        for partition in topic.partitions().iter() {
            if copied.len() == wanted.len() {
                break;
            }
            let end = attempt.ends.get(partition.id().0 as usize);
            let from = Offset(end.copied().unwrap_or_default()).max(partition.start());
            match self.look_for_copies(partition, from, wanted, &mut copied).await {
                Err(error) if error.kind() == BackendErrorKind::Corrupt => {
                    let topic = &attempt.topic;
                    tracing::error!(%topic, error = %error.chain(), "copies of dead letters cannot be looked for here");
                }
                looked => looked?,
            }
        }
        Ok(copied)
    }

    async fn look_for_copies(
        &self,
        partition: &Arc<Partition>,
        mut from: Offset,
        wanted: &Wanted,
        copied: &mut HashSet<(String, String)>,
    ) -> Result<(), BackendError> {
        while copied.len() < wanted.len() {
            let records = self.core.storage.read(partition, from).await?;
            let Some(last) = records.last() else { return Ok(()) };
            from = Offset(last.offset().0 + 1);
            for record in &records {
                let event = &record.record().event;
                let tags = event.attribute(REPLAY_GROUP).zip(event.attribute(REPLAY_POSITION));
                let tags = tags.map(|(group, position)| (group.to_owned(), position.to_owned()));
                copied.extend(tags.filter(|tags| wanted.contains_key(tags)));
            }
        }
        Ok(())
    }
}
