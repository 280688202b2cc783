//! Replay: a copy into the log for the group that failed, then the row goes.
//!
//! What is about to be copied is written down before (see `intent`): whatever fails or ends in between, the death of
//! the process included, no entry is lost and none is copied twice. A turn, once begun, is finished without whoever
//! asked for it; while the log or Meta keeps it waiting, no other begins.

use std::{sync::Arc, time::Duration};

use mesh_base::{BackendError, BackendErrorKind, Backoff};
use mesh_frame::Event;
use mesh_state::shared::{DeadLetter, DeadLetterStore, Removed, ReplayIntent, Stored};
use mesh_storage::{AppendItem, Topic};
use tokio::sync::{OwnedMutexGuard, oneshot};

use super::{
    DeadLetters, Interrupted, LetterRow, LetterSelector, LettersError, Replayed, copy::copy_for, desk::Turn,
    intent,
};
use crate::dispatcher::Inner;

/// What one row is worth.
enum Fate {
    /// It is copied to this topic for the group with this number.
    Goes(Arc<Topic>, u64, Event),
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
        self.0.letters_are_there()?;
        loop {
            let at = |error| Interrupted { done: total.replayed, error };
            let patience = self.0.limits.publish_timeout;
            let turn = self.0.letters.paced_turn(patience, &self.0.clock).await;
            let mut turn = turn.ok_or_else(|| at(LettersError::Busy))?;
            if self.0.operations.tasks.stop().is_signalled() {
                return Err(at(LettersError::Stopping));
            }
            if self.0.storage.is_low() {
                return Err(at(LettersError::StorageLow));
            }
            // Before the rows are read: some of them may go.
            self.0.settle_unsure(&mut turn).await.map_err(LettersError::Meta).map_err(at)?;
            let page = self.page(which, after.as_deref()).await.map_err(at)?;
            let left = most - total.replayed;
            let (told, answer) = oneshot::channel();
            let took = Replayed::default();
            let replaying = Replaying { inner: self.0.clone(), turn, took, told: Some(told) };
            self.0.operations.tasks.spawn("replay", replaying.run(page.rows, left));
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
        self.0.letters_are_there()?;
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

/// A turn at work.
struct Replaying {
    inner: Arc<Inner>,
    turn: OwnedMutexGuard<Turn>,
    took: Replayed,
    /// Who asked for it, until they are told.
    told: Option<oneshot::Sender<(Replayed, Option<LettersError>)>>,
}

impl Replaying {
    async fn run(mut self, rows: Vec<LetterRow>, most: usize) {
        let failed = self.replay(rows, most).await.err();
        let Self { inner, mut turn, took, told } = self;
        turn.spent(took.replayed, &inner.clock);
        drop(turn);
        inner.signals.replayed.inc_by(took.replayed as u64);
        if let Some(told) = told
            && told.send((took, failed)).is_err()
        {
            tracing::info!(replayed = took.replayed, "whoever asked for a replay has gone; it ends here");
        }
    }

    /// Tells whoever asked that the turn goes on without them.
    fn tell(&mut self, failed: Option<LettersError>) {
        if let Some(told) = self.told.take()
            && told.send((self.took, failed)).is_err()
        {
            tracing::debug!("whoever asked for a replay has gone");
        }
    }

    async fn replay(&mut self, rows: Vec<LetterRow>, most: usize) -> Result<(), LettersError> {
        let inner = self.inner.clone();
        let rows = inner.await_ends(rows).await?;
        let (mut going, mut items) = (Vec::new(), Vec::new());
        let mut into: Option<Arc<Topic>> = None;
        for row in rows {
            if going.len() == most {
                break;
            }
            match inner.fate_of(&row).await? {
                Fate::GroupGone => self.took.group_gone += 1,
                Fate::BodyGone => self.took.body_gone += 1,
                Fate::Goes(topic, number, event) => {
                    going.push((row, number));
                    let partition = match event.partition_key() {
                        Some(key) => topic.partition_of_key(key),
                        None => topic.next_partition(),
                    };
                    items.push(AppendItem { partition, event });
                    into = Some(topic);
                }
            }
        }
        let Some(topic) = into else { return Ok(()) };
        let attempt = intent::attempt(&topic, &going);
        if !self.turn.has_room_for(&attempt) {
            return Err(LettersError::Busy);
        }
        let intended = inner.intend(&mut self.turn, Some(&attempt)).await;
        let intended =
            intended.map_err(LettersError::Meta).inspect_err(|_| inner.tidy_later(&mut self.turn))?;
        if let Err(error) = self.append(items).await {
            inner.unsure(&mut self.turn, &topic, attempt);
            return Err(error);
        }
        // What failed before it is certain not to come back.
        self.turn.unsure.clear();
        self.finish(going, &intended).await;
        Ok(())
    }

    /// Waits for the log for as long as it takes; whoever asked is told before that.
    async fn append(&mut self, items: Vec<AppendItem>) -> Result<(), LettersError> {
        let inner = self.inner.clone();
        let appending = inner.storage.appended(inner.storage.append(items));
        let mut appending = std::pin::pin!(appending);
        let appended = match tokio::time::timeout(inner.limits.publish_timeout, &mut appending).await {
            Ok(appended) => appended,
            Err(_elapsed) => {
                self.tell(Some(LettersError::TimedOut));
                let stop = inner.operations.tasks.stop();
                tokio::select! {
                    appended = appending => appended,
                    () = stop.wait() => return Err(LettersError::Stopping),
                }
            }
        };
        appended.map(drop).map_err(LettersError::Storage)
    }

    /// Removes the rows whose copies are in the log, then what was written down about them; again and again until
    /// both are gone. When the process stops before that, its next start does it.
    async fn finish(&mut self, mut left: Vec<(LetterRow, u64)>, intended: &Stored<ReplayIntent>) {
        let inner = self.inner.clone();
        let (stop, mut failures) = (inner.operations.tasks.stop(), 0);
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5), 0.2);
        while let Err(error) = self.remove(&mut left, intended).await {
            tracing::warn!(error = %error.chain(), rows = left.len(), "a replay cannot be finished now; it is tried again");
            // Without rows the replay is done as far as anybody sees.
            self.tell((!left.is_empty()).then_some(LettersError::Meta(error)));
            failures += 1;
            tokio::select! {
                () = tokio::time::sleep(backoff.random_delay(failures, &inner.chance)) => {}
                () = stop.wait() => return,
            }
        }
    }

    async fn remove(
        &mut self,
        left: &mut Vec<(LetterRow, u64)>,
        intended: &Stored<ReplayIntent>,
    ) -> Result<(), BackendError> {
        // A group that was removed meanwhile does not take its copies: those rows stay.
        let before = left.len();
        left.retain(|(_, number)| self.inner.group(*number).is_some());
        self.took.group_gone += before - left.len();
        let removals = left.iter().map(|(row, _)| self.inner.dead_letters.remove(row));
        let removals = futures_util::future::join_all(removals).await;
        let (mut failed, mut removals) = (None, removals.into_iter());
        left.retain(|_| match removals.next() {
            Some(Err(error)) if matches!(error.kind(), BackendErrorKind::Unavailable | BackendErrorKind::Full) => {
                failed = Some(error);
                true
            }
            // It will not go however often it is tried: the others do not wait for it.
            Some(Err(error)) => {
                tracing::error!(error = %error.chain(), "the row of a replayed dead letter cannot be removed");
                false
            }
            _ => {
                self.took.replayed += 1;
                false
            }
        });
        match failed {
            Some(error) => Err(error),
            None => {
                let ended = self.inner.dead_letters.end_intent(&self.inner.instance, intended).await?;
                // Something else that is written down there is looked at again.
                self.turn.stale = matches!(ended, Removed::Stale(Some(_)));
                Ok(())
            }
        }
    }
}

impl Inner {
    /// Nothing is replayed or discarded before every group is there.
    pub(super) fn letters_are_there(&self) -> Result<(), Interrupted> {
        self.operations.ready().map_err(|_recovering| Interrupted { done: 0, error: LettersError::Starting })
    }

    /// Whether and how a row can be replayed now.
    async fn fate_of(&self, row: &LetterRow) -> Result<Fate, LettersError> {
        let letter = &row.record;
        let group = self.groups.read().by_id.get(&letter.group).cloned();
        let Some(group) = group else { return Ok(Fate::GroupGone) };
        let body = match self.body_of(letter).await {
            // One damaged body does not hold up the others; the row stays.
            Err(LettersError::Storage(error)) if error.kind() == BackendErrorKind::Corrupt => None,
            body => body?,
        };
        let Some(body) = body else { return Ok(Fate::BodyGone) };
        let event = copy_for(&body, &letter.group, group.number, letter.into());
        Ok(Fate::Goes(group.topic.clone(), group.number, event))
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
}
