//! Discard: the rows go; their bodies stay in the dead-letter topic until its retention takes them.

use mesh_state::shared::{DeadLetterStore, Removed};

use super::letters::{DeadLetters, Interrupted, LetterSelector, LettersError};

impl DeadLetters {
    /// Removes up to `most` of the dead letters that are meant. Gives how many went.
    ///
    /// # Errors
    /// See [`LettersError`].
    pub async fn discard(&self, which: &LetterSelector, most: usize) -> Result<usize, Interrupted> {
        let mut gone = 0;
        let mut after: Option<String> = None;
        self.0.letters_are_there()?;
        loop {
            let at = |error| Interrupted { done: gone, error };
            let turn = self.0.turns.turn(self.0.core.limits.publish_timeout).await;
            let turn = turn.ok_or_else(|| at(LettersError::Busy))?;
            let page = self.page(which, after.as_deref()).await.map_err(at)?;
            let rows = page.rows.into_iter().take(most - gone).collect();
            let rows = self.0.await_ends(rows).await.map_err(at)?;
            let removals = rows.iter().map(|row| self.0.store.remove(row));
            let removals = futures_util::future::join_all(removals).await;
            drop(turn);
            let mut failed = None;
            for removed in removals {
                match removed {
                    Ok(removed) => gone += usize::from(matches!(removed, Removed::Removed(_))),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            if let Some(error) = failed {
                return Err(Interrupted { done: gone, error: LettersError::Meta(error) });
            }
            after = page.next;
            if after.is_none() || gone >= most {
                return Ok(gone);
            }
        }
    }

    /// How many [`DeadLetters::discard`] would remove now.
    ///
    /// # Errors
    /// See [`LettersError`].
    pub async fn would_discard(&self, which: &LetterSelector, most: usize) -> Result<usize, Interrupted> {
        let mut found = 0;
        let mut after: Option<String> = None;
        loop {
            let page = self.page(which, after.as_deref()).await;
            let page = page.map_err(|error| Interrupted { done: 0, error })?;
            found += page.rows.len();
            after = page.next;
            if after.is_none() || found >= most {
                return Ok(found.min(most));
            }
        }
    }
}
