//! Rows whose delivery has not ended yet.
//!
//! The writer of dead letters writes a row before it ends the delivery. Until that end is committed it may write the row once
//! more, after a restart too: a replay that took the row in between would find it again. So a row is only taken when its
//! delivery has ended.

use std::time::Duration;

use mesh_state::shared::{DeadLetter, DeadLetterStore, GroupId};

use super::letters::{LetterRow, Letters, LettersError};

/// The writer of dead letters is given this long.
const PATIENCE: Duration = Duration::from_secs(5);
/// What ends without it is looked at again after this long.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What rows are ordered by.
fn position(letter: &DeadLetter) -> (GroupId, u64, u32, u64) {
    (letter.group.clone(), letter.incarnation.0, letter.partition.0, letter.offset.0)
}

impl Letters {
    /// Waits until the deliveries of these rows have ended. Gives the rows as they are then: those it waited for may
    /// have been written once more.
    ///
    /// # Errors
    /// [`LettersError::Ledger`] when they do not within five seconds, or when that cannot be told; `Stopping`.
    pub(super) async fn await_ends(&self, rows: Vec<LetterRow>) -> Result<Vec<LetterRow>, LettersError> {
        let (until, stop) = (self.core.clock.now().plus(PATIENCE), self.core.owned.tasks.stop());
        let (mut ended, mut leaving) = (Vec::new(), Vec::new());
        for row in rows {
            let place = if self.is_leaving(&row.record).await? { &mut leaving } else { &mut ended };
            place.push(row);
        }
        if leaving.is_empty() {
            return Ok(ended);
        }
        let mut left: Vec<&LetterRow> = leaving.iter().collect();
        loop {
            let next = self.dead_lettered.next();
            let mut next = std::pin::pin!(next);
            // From here on the end of one is heard; those before it are seen below.
            next.as_mut().enable();
            let mut still = Vec::new();
            for row in left {
                if self.is_leaving(&row.record).await? {
                    still.push(row);
                }
            }
            if still.is_empty() {
                break;
            }
            left = still;
            tokio::select! {
                () = next => {}
                () = stop.wait() => return Err(LettersError::Stopping),
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                () = self.core.clock.sleep_until(until) => {
                    let what = "deliveries whose dead letters are stored have not ended";
                    return Err(LettersError::Ledger(what.to_owned()));
                }
            }
        }
        for row in &leaving {
            let current = self.store.current(&row.record).await.map_err(LettersError::Meta)?;
            ended.extend(current);
        }
        // As they are browsed: in the order of their positions.
        ended.sort_by_key(|row| position(&row.record));
        Ok(ended)
    }

    async fn is_leaving(&self, letter: &DeadLetter) -> Result<bool, LettersError> {
        let group = self.core.directory.find(&letter.group);
        let Some(group) = group.filter(|group| group.topic.incarnation() == letter.incarnation) else {
            return Ok(false);
        };
        // It is being followed by another: what is dead goes over to that one.
        if group.is_closed() {
            return Ok(true);
        }
        let epoch = self.core.ensure_lanes(&group).await;
        let epoch = epoch.map_err(|error| LettersError::Ledger(error.chain()))?;
        let mut state = self.core.enter(&group, self.core.clock.now());
        // Lanes of an older view may be wrong either way.
        let is_stale = state.epoch != Some(epoch);
        let lane = state.lane(letter.partition);
        Ok(group.is_closed() || is_stale || lane.is_some_and(|lane| lane.is_leaving(letter.offset)))
    }
}
