//! Replay: a copy into the log for the group that failed, then the row goes.
//!
//! Whatever fails or ends in between leaves the row: nothing is lost, and only the death of the process between
//! the two makes the same entry replay twice. A turn, once begun, is finished without whoever asked for it.

use std::sync::Arc;

use mesh_base::BackendErrorKind;
use mesh_frame::Event;
use mesh_state::shared::{DeadLetter, DeadLetterStore};
use mesh_storage::{AppendItem, Topic};
use tokio::sync::oneshot;

use super::{
    DeadLetters, Interrupted, LetterRow, LetterSelector, LettersError, Replayed, copy::copy_for, desk::Pace,
};
use crate::dispatcher::Inner;

/// What one row is worth.
enum Fate {
    /// It is copied to this topic for the group with this number; without an event it was copied before.
    Goes(Arc<Topic>, u64, Option<Event>),
    GroupGone,
    BodyGone,
}

impl DeadLetters {
    /// Replays up to `most` of the dead letters that are meant, in the order of their positions, a thousand a
    /// second at most. Dropped while it runs, it stops between two turns.
    ///
    /// # Errors
    /// See [`LettersError`].
    pub async fn replay(&self, which: &LetterSelector, most: usize) -> Result<Replayed, Interrupted> {
        let mut total = Replayed::default();
        let mut after: Option<String> = None;
        loop {
            let at = |error| Interrupted { done: total.replayed, error };
            let turn = self.0.letters.paced_turn(&self.0.clock).await;
            if self.0.tasks.stop().is_signalled() {
                return Err(at(LettersError::Stopping));
            }
            if self.0.storage.is_low() {
                return Err(at(LettersError::StorageLow));
            }
            let page = self.page(which, after.as_deref()).await.map_err(at)?;
            let left = most - total.replayed;
            let (done, answer) = oneshot::channel();
            self.0.tasks.spawn("replay", turn_of(self.0.clone(), turn, page.rows, left, done));
            let (took, failed) = answer.await.map_err(|_| at(LettersError::Stopping))?;
            total.replayed += took.replayed;
            total.group_gone += took.group_gone;
            total.body_gone += took.body_gone;
            if let Some(error) = failed {
                return Err(Interrupted { done: total.replayed, error });
            }
            after = page.next;
            if after.is_none() || total.replayed >= most {
                break;
            }
        }
        if total.replayed == 0 && total.group_gone > 0 {
            return Err(Interrupted { done: 0, error: LettersError::GroupGone });
        }
        Ok(total)
    }

    /// What [`DeadLetters::replay`] would do now.
    ///
    /// # Errors
    /// See [`LettersError`].
    pub async fn would_replay(&self, which: &LetterSelector, most: usize) -> Result<Replayed, Interrupted> {
        let mut total = Replayed::default();
        let mut after: Option<String> = None;
        let at = |error| Interrupted { done: 0, error };
        loop {
            let page = self.page(which, after.as_deref()).await.map_err(at)?;
            for row in &page.rows {
                if total.replayed == most {
                    return Ok(total);
                }
                match self.0.fate_of(row).await.map_err(at)? {
                    Fate::Goes(..) => total.replayed += 1,
                    Fate::GroupGone => total.group_gone += 1,
                    Fate::BodyGone => total.body_gone += 1,
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(total);
            }
        }
    }
}

/// One turn, told to whoever waits for it.
async fn turn_of(
    inner: Arc<Inner>,
    mut turn: tokio::sync::OwnedMutexGuard<Pace>,
    rows: Vec<LetterRow>,
    most: usize,
    done: oneshot::Sender<(Replayed, Option<LettersError>)>,
) {
    let mut took = Replayed::default();
    let failed = inner.replay_rows(&rows, most, &mut took).await.err();
    turn.spent(took.replayed, &inner.clock);
    drop(turn);
    inner.signals.replayed.inc_by(took.replayed as u64);
    if done.send((took, failed)).is_err() {
        tracing::info!(replayed = took.replayed, "whoever asked for a replay has gone; it ends here");
    }
}

impl Inner {
    /// Whether and how a row can be replayed now.
    async fn fate_of(&self, row: &LetterRow) -> Result<Fate, LettersError> {
        let letter = &row.record;
        let group = self.groups.read().by_id.get(&letter.group).cloned();
        let Some(group) = group else { return Ok(Fate::GroupGone) };
        if self.letters.is_copied(row) {
            return Ok(Fate::Goes(group.topic.clone(), group.number, None));
        }
        let body = match self.body_of(letter).await {
            // One damaged body does not hold up the others; the row stays.
            Err(LettersError::Storage(error)) if error.kind() == BackendErrorKind::Corrupt => None,
            body => body?,
        };
        let Some(body) = body else { return Ok(Fate::BodyGone) };
        let event = copy_for(&body, &letter.group);
        Ok(Fate::Goes(group.topic.clone(), group.number, Some(event)))
    }

    async fn body_of(&self, letter: &DeadLetter) -> Result<Option<Event>, LettersError> {
        let place = &letter.body;
        let topic = self.storage.topic(&place.topic).filter(|topic| topic.incarnation() == place.incarnation);
        let Some(partition) = topic.and_then(|topic| topic.partition(place.partition)) else {
            return Ok(None);
        };
        let record = self.storage.record(&partition, place.offset).await.map_err(LettersError::Storage)?;
        Ok(record.map(|record| record.record().event.clone()))
    }

    async fn replay_rows(
        &self,
        rows: &[LetterRow],
        most: usize,
        took: &mut Replayed,
    ) -> Result<(), LettersError> {
        let mut going: Vec<(&LetterRow, u64)> = Vec::new();
        let mut items = Vec::new();
        for row in rows {
            if going.len() == most {
                break;
            }
            match self.fate_of(row).await? {
                Fate::GroupGone => took.group_gone += 1,
                Fate::BodyGone => took.body_gone += 1,
                Fate::Goes(topic, number, event) => {
                    going.push((row, number));
                    items.extend(event.map(|event| {
                        let partition = match event.partition_key() {
                            Some(key) => topic.partition_of_key(key),
                            None => topic.next_partition(),
                        };
                        AppendItem { partition, event }
                    }));
                }
            }
        }
        if !items.is_empty() {
            let append = self.storage.append(items);
            let appended =
                tokio::time::timeout(self.limits.publish_timeout, self.storage.appended(append)).await;
            appended.map_err(|_| LettersError::TimedOut)?.map_err(LettersError::Storage)?;
            for (row, _) in &going {
                self.letters.copied(row);
            }
        }
        // A group that was removed meanwhile does not take its copies: those rows stay.
        let (going, gone): (Vec<_>, Vec<_>) =
            going.into_iter().partition(|(_, number)| self.group(*number).is_some());
        for (row, _) in gone {
            took.group_gone += 1;
            self.letters.forget(row);
        }
        let removals = going.iter().map(|(row, _)| self.dead_letters.remove(row));
        let removals = futures_util::future::join_all(removals).await;
        let mut failed = None;
        for ((row, _), removed) in going.iter().zip(removals) {
            match removed {
                Ok(_) => {
                    took.replayed += 1;
                    self.letters.forget(row);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), |error| Err(LettersError::Meta(error)))
    }
}
