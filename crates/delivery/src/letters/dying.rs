//! Rows whose delivery has not ended yet.
//!
//! The undertaker writes a row before it ends the delivery. Until that end is committed it may write the row once
//! more, after a restart too: whoever took the row in between would find it again. So a row is only taken when its
//! delivery has ended.

use std::time::Duration;

use mesh_state::shared::DeadLetter;

use super::{LetterRow, LettersError};
use crate::dispatcher::Inner;

/// The undertaker is given this long.
const PATIENCE: Duration = Duration::from_secs(5);
/// What ends without it is looked at again after this long.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl Inner {
    /// Waits until the deliveries of these rows have ended.
    ///
    /// # Errors
    /// [`LettersError::Ledger`] when they do not within five seconds, or when that cannot be told; `Stopping`.
    pub(super) async fn await_ends(&self, rows: &[LetterRow]) -> Result<(), LettersError> {
        let (until, stop) = (self.clock.now().plus(PATIENCE), self.tasks.stop());
        let mut dying: Vec<&LetterRow> = rows.iter().collect();
        loop {
            let buried = self.buried_signal.notified();
            let mut buried = std::pin::pin!(buried);
            // From here on a burial is heard; those before it are seen below.
            buried.as_mut().enable();
            let mut left = Vec::new();
            for row in dying {
                if self.is_dying(&row.record).await? {
                    left.push(row);
                }
            }
            if left.is_empty() {
                return Ok(());
            }
            dying = left;
            tokio::select! {
                () = buried => {}
                () = stop.wait() => return Err(LettersError::Stopping),
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                () = self.clock.sleep_until(until) => {
                    let what = "deliveries whose dead letters are stored have not ended";
                    return Err(LettersError::Ledger(what.to_owned()));
                }
            }
        }
    }

    async fn is_dying(&self, letter: &DeadLetter) -> Result<bool, LettersError> {
        let group = self.groups.read().by_id.get(&letter.group).cloned();
        let Some(group) = group.filter(|group| group.topic.incarnation() == letter.incarnation) else {
            return Ok(false);
        };
        let epoch = self.ensure_lanes(&group).await;
        let epoch = epoch.map_err(|error| LettersError::Ledger(error.chain()))?;
        let mut state = group.state.lock();
        // Lanes of an older view may be wrong either way.
        let is_stale = state.epoch != Some(epoch);
        let lane = state.lane(letter.partition);
        Ok(!group.is_closed() && (is_stale || lane.is_some_and(|lane| lane.is_dying(letter.offset))))
    }
}
