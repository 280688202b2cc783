//! Replay: a copy into the log for the group that failed, then the row goes.
//!
//! What is about to be copied is written down before (see `intent`): whatever fails or ends in between, the death of
//! the process included, no entry is lost and none is copied twice. A turn, once begun, is finished without the request that
//! asked for it; while the log or Meta keeps it waiting, no other begins.

use std::{sync::Arc, time::Duration};

use mesh_base::{BackendError, BackendErrorKind, Backoff};
use mesh_frame::Event;
use mesh_state::shared::{DeadLetterStore, Removed, ReplayIntent, Stored};
use mesh_storage::{AppendItem, Topic};
use tokio::sync::{OwnedMutexGuard, oneshot};

use super::{
    intent,
    letters::{DeadLetters, Interrupted, LetterRow, LetterSelector, Letters, LettersError, Replayed},
    turn::Turn,
};
use crate::group::replay_copy::copy_for;

/// What one row is worth.
enum Fate {
    /// It is copied to this topic for the group with this number.
    Goes(Arc<Topic>, u64, Event),
    GroupGone,
    BodyGone,
    /// The copy would reach no one: the filters of the group do not want it.
    Filtered,
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
            let patience = self.0.core.limits.publish_timeout;
            let turn = self.0.turns.paced_turn(patience, &self.0.core.clock).await;
            let mut turn = turn.ok_or_else(|| at(LettersError::Busy))?;
            if self.0.core.owned.tasks.stop().is_signalled() {
                return Err(at(LettersError::Stopping));
            }
            if self.0.core.storage.is_low() {
                return Err(at(LettersError::StorageLow));
            }
            // Before the rows are read: some of them may go.
            self.0.settle_unsure(&mut turn).await.map_err(LettersError::Meta).map_err(at)?;
            let page = self.page(which, after.as_deref()).await.map_err(at)?;
            let left = most - total.replayed;
            let (told, answer) = oneshot::channel();
            let took = Replayed::default();
            let replaying = Replaying { letters: self.0.clone(), turn, took, told: Some(told) };
            self.0.core.owned.tasks.spawn("replay", replaying.run(page.rows, left));
            let (took, failed) = answer.await.map_err(|_| at(LettersError::Stopping))?;
            total.replayed += took.replayed;
            total.group_gone += took.group_gone;
            total.body_gone += took.body_gone;
            total.filtered += took.filtered;
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
                    Fate::Filtered => total.filtered += 1,
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
    letters: Arc<Letters>,
    turn: OwnedMutexGuard<Turn>,
    took: Replayed,
    /// Who asked for it, until they are told.
    told: Option<oneshot::Sender<(Replayed, Option<LettersError>)>>,
}

impl Replaying {
    async fn run(mut self, rows: Vec<LetterRow>, most: usize) {
        let failed = self.replay(rows, most).await.err();
        let Self { letters, mut turn, took, told } = self;
        turn.spent(took.replayed, &letters.core.clock);
        drop(turn);
        letters.core.signals.replayed.inc_by(took.replayed as u64);
        if let Some(told) = told
            && told.send((took, failed)).is_err()
        {
            tracing::info!(replayed = took.replayed, "whoever asked for a replay has gone; it ends here");
        }
    }

    /// Tells the waiting request that the turn goes on without it.
    fn tell(&mut self, failed: Option<LettersError>) {
        if let Some(told) = self.told.take()
            && told.send((self.took, failed)).is_err()
        {
            tracing::debug!("whoever asked for a replay has gone");
        }
    }

    async fn replay(&mut self, rows: Vec<LetterRow>, most: usize) -> Result<(), LettersError> {
        let letters = self.letters.clone();
        let rows = letters.await_ends(rows).await?;
        let (mut going, mut items) = (Vec::new(), Vec::new());
        let mut into: Option<Arc<Topic>> = None;
        for row in rows {
            if going.len() == most {
                break;
            }
            match letters.fate_of(&row).await? {
                Fate::GroupGone => self.took.group_gone += 1,
                Fate::BodyGone => self.took.body_gone += 1,
                Fate::Filtered => self.took.filtered += 1,
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
        let intended = letters.intend(&mut self.turn, Some(&attempt)).await;
        let intended =
            intended.map_err(LettersError::Meta).inspect_err(|_| letters.tidy_later(&mut self.turn))?;
        if let Err(error) = self.append(items).await {
            letters.unsure(&mut self.turn, &topic, attempt);
            return Err(error);
        }
        // What failed before it is certain not to come back.
        self.turn.unsure.clear();
        self.finish(going, &intended).await;
        Ok(())
    }

    /// Waits for the log for as long as it takes; the request is answered before that.
    async fn append(&mut self, items: Vec<AppendItem>) -> Result<(), LettersError> {
        let letters = self.letters.clone();
        let appending = letters.core.storage.appended(letters.core.storage.append(items));
        let mut appending = std::pin::pin!(appending);
        let appended = match tokio::time::timeout(letters.core.limits.publish_timeout, &mut appending).await {
            Ok(appended) => appended,
            Err(_elapsed) => {
                self.tell(Some(LettersError::TimedOut));
                let stop = letters.core.owned.tasks.stop();
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
        let letters = self.letters.clone();
        let (stop, mut failures) = (letters.core.owned.tasks.stop(), 0);
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5), 0.2);
        while let Err(error) = self.remove(&mut left, intended).await {
            tracing::warn!(error = %error.chain(), rows = left.len(), "a replay cannot be finished now; it is tried again");
            // Without rows the replay is done as far as anybody sees.
            self.tell((!left.is_empty()).then_some(LettersError::Meta(error)));
            failures += 1;
            tokio::select! {
                () = tokio::time::sleep(backoff.random_delay(failures, &letters.core.chance)) => {}
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
        left.retain(|(_, number)| self.letters.core.directory.group(*number).is_some());
        self.took.group_gone += before - left.len();
        let removals = left.iter().map(|(row, _)| self.letters.store.remove(row));
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
                let ended = self.letters.store.end_intent(&self.letters.instance, intended).await?;
                // Something else that is written down there is looked at again.
                self.turn.stale = matches!(ended, Removed::Stale(Some(_)));
                Ok(())
            }
        }
    }
}

impl Letters {
    /// Nothing is replayed or discarded before every group is there.
    pub(super) fn letters_are_there(&self) -> Result<(), Interrupted> {
        self.core.owned.ready().map_err(|_recovering| Interrupted { done: 0, error: LettersError::Starting })
    }

    /// Whether and how a row can be replayed now.
    async fn fate_of(&self, row: &LetterRow) -> Result<Fate, LettersError> {
        let letter = &row.record;
        let group = self.core.directory.find(&letter.group);
        let Some(group) = group else { return Ok(Fate::GroupGone) };
        let body = match self.body_of(letter).await {
            // One damaged body does not hold up the others; the row stays.
            Err(error) if error.kind() == BackendErrorKind::Corrupt => None,
            body => body.map_err(LettersError::Storage)?,
        };
        let Some(body) = body else { return Ok(Fate::BodyGone) };
        let event = copy_for(&body.record().event, &letter.group, group.number, letter.into());
        if !group.settings().filters.iter().all(|filter| filter.matches(&event)) {
            return Ok(Fate::Filtered);
        }
        Ok(Fate::Goes(group.topic.clone(), group.number, event))
    }
}
