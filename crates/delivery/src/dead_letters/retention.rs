//! How long and how many rows of dead letters are kept: 14 days, and 100,000 a topic, the oldest going first.
//! Rows are read only when the index of their times says that something is due.

use std::time::Duration;

use mesh_base::BackendError;
use mesh_frame::TopicName;
use mesh_state::shared::{DeadLetterScope, DeadLetterStore};

use super::letters::{DeadLetters, LetterRow};

/// How long dead letters are kept, rows and bodies.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(14 * 86_400);
/// Rows that a topic may have.
const MOST: usize = 100_000;
/// How many rows are read at once.
const PAGE: usize = 1_000;
/// How many rows are removed at once.
const AT_ONCE: usize = 64;

impl DeadLetters {
    /// Drops the rows of a topic that are too old, then the oldest that are too many. Gives how many went.
    ///
    /// # Errors
    /// When the ledger cannot be read or written; what went stays gone.
    pub async fn retain(&self, topic: &TopicName) -> Result<usize, BackendError> {
        self.retain_within(topic, KEPT_FOR, MOST).await
    }

    /// [`DeadLetters::retain`] with other bounds.
    ///
    /// # Errors
    /// The same.
    pub async fn retain_within(
        &self,
        topic: &TopicName,
        keep_for: Duration,
        most: usize,
    ) -> Result<usize, BackendError> {
        let before = self.0.core.clock.now().minus(keep_for).0;
        let index = &self.0.times;
        if !index.is_due(topic, before, most, self.0.core.clock.elapsed()) {
            return Ok(0);
        }
        index.begin(topic);
        let (mut times, mut gone) = (Vec::new(), 0);
        let mut after: Option<String> = None;
        loop {
            let (rows, next) = self.all(topic, after.as_deref()).await?;
            let (old, young): (Vec<_>, Vec<_>) =
                rows.into_iter().partition(|row| row.record.dead_at_ms < before);
            times.extend(young.iter().map(|row| row.record.dead_at_ms));
            gone += self.remove(&old).await?;
            after = next;
            if after.is_none() {
                break;
            }
        }
        let mut excess = times.len().saturating_sub(most);
        times.sort_unstable();
        let left = times.split_at(excess).1.to_vec();
        if excess > 0 {
            let last = times[excess - 1];
            while excess > 0 {
                let (rows, next) = self.all(topic, after.as_deref()).await?;
                let oldest = rows.into_iter().filter(|row| row.record.dead_at_ms <= last);
                let oldest: Vec<LetterRow> = oldest.take(excess).collect();
                gone += self.remove(&oldest).await?;
                excess -= oldest.len();
                after = next;
                if after.is_none() {
                    break;
                }
            }
            tracing::warn!(%topic, most, "a topic had more dead letters than are kept: the oldest were dropped");
        }
        index.built(topic, &left, self.0.core.clock.elapsed());
        if gone > 0 {
            tracing::info!(%topic, gone, "retention dropped dead letters");
        }
        Ok(gone)
    }

    /// Removes rows, some at a time, so that they share the writes of Meta.
    async fn remove(&self, rows: &[LetterRow]) -> Result<usize, BackendError> {
        for some in rows.chunks(AT_ONCE) {
            let removals = some.iter().map(|row| self.0.store.remove(row));
            futures_util::future::try_join_all(removals).await?;
        }
        Ok(rows.len())
    }

    async fn all(
        &self,
        topic: &TopicName,
        after: Option<&str>,
    ) -> Result<(Vec<LetterRow>, Option<String>), BackendError> {
        let page = self.0.store.browse(&DeadLetterScope::Topic(topic.clone()), after, PAGE).await?;
        Ok((page.rows, page.next))
    }
}
