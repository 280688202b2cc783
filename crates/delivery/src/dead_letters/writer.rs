//! The writer of dead letters, for deliveries that failed for good or were rejected.
//!
//! Body first (an event in `<topic>_DLQ`), then the row in the dead-letter ledger, then the delivery's row
//! ends. Whatever fails is tried again with a growing wait, and the delivery stays pending meanwhile. A
//! crash in between repeats the body, not the row: a body without a row is an orphan that nobody reads.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use mesh_base::{BackendError, BackendErrorKind, Backoff, Stop};
use mesh_frame::{Offset, PartitionId, format_timestamp};
use mesh_rocks::Durability;
use mesh_state::{
    positions::{CommitError, EndReason, PositionBatch, Row},
    shared::{DeadLetter, DeadLetterBody, DeadLetterStore, Recorded, Replaced, Unknown},
};
use mesh_storage::AppendItem;

use super::letters::{DeadLetters, Letters};
use crate::{group::Group, ledger::LedgerUnavailable};

/// At most about this many at a time, and of one lane.
const AT_ONCE: usize = 64;
const AT_ONCE_OF_A_LANE: usize = 16;

/// A delivery that is to become a dead letter.
#[derive(Clone)]
struct Dead {
    group: Arc<Group>,
    partition: PartitionId,
    offset: Offset,
    reason: EndReason,
    row: Row,
}

type Place = (u64, u32, u64);

impl Dead {
    fn place(&self) -> Place {
        (self.group.number, self.partition.0, self.offset.0)
    }
}

impl DeadLetters {
    /// Writes dead letters until it is told to stop.
    pub(crate) async fn write(self, stop: Stop) {
        let letters = self.0;
        let attention = &letters.core.attention;
        let backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10), 0.2);
        // Bodies that are stored while their row is not: they are not stored again.
        let mut bodies: HashMap<Place, DeadLetterBody> = HashMap::new();
        let mut failures = 0;
        let mut again: BTreeSet<u64> = BTreeSet::new();
        let mut last = 0;
        while !stop.is_signalled() {
            again.extend(attention.take_dead());
            if again.is_empty() || failures > 0 {
                let pause = if failures > 0 {
                    backoff.random_delay(failures, &letters.core.chance)
                } else {
                    Duration::from_secs(3_600)
                };
                tokio::select! {
                    () = stop.wait() => return,
                    () = attention.something_dead(), if failures == 0 => {}
                    () = tokio::time::sleep(pause) => {}
                }
                again.extend(attention.take_dead());
            }
            let found = letters.find_dead(&again, &mut last);
            if found.is_empty() {
                again.clear();
                failures = 0;
                continue;
            }
            let results = letters.write_all(&found, &mut bodies).await;
            let failed = results.iter().filter(|result| result.is_err()).count();
            if failures == 0
                && let Some(error) = results.iter().find_map(|result| result.as_ref().err())
            {
                tracing::error!(error = %error.chain(), failed, "dead letters cannot be stored; they stay pending and are tried again");
            }
            failures = match failed {
                0 => 0,
                // Those that cannot be stored hold up no others for long.
                some if some < results.len() => 1,
                _ => failures + 1,
            };
        }
    }
}

/// Whether two rows are of one death of an event: one that is written again, after a crash, says the same of it.
fn is_same_death(one: &DeadLetter, other: &DeadLetter) -> bool {
    let of = |letter: &DeadLetter| (letter.first_ms, letter.last_ms, letter.dead_at_ms, letter.attempts);
    of(one) == of(other)
}

impl Letters {
    /// What is next, group by group, beginning behind the one that came last: no group waits for another's.
    fn find_dead(&self, groups: &BTreeSet<u64>, last: &mut u64) -> Vec<Dead> {
        let mut found = Vec::new();
        let behind = (Bound::Excluded(*last), Bound::Unbounded);
        let in_turn: Vec<u64> = groups.range(behind).chain(groups.range(..=*last)).copied().collect();
        for group in in_turn.into_iter().filter_map(|number| self.core.directory.group(number)) {
            *last = group.number;
            let state = group.state.lock();
            for lane in &state.lanes {
                let id = lane.partition.id();
                found.extend(lane.lane.dead().take(AT_ONCE_OF_A_LANE).map(|(offset, reason, row)| Dead {
                    group: group.clone(),
                    partition: id,
                    offset,
                    reason,
                    row,
                }));
            }
            if found.len() >= AT_ONCE {
                break;
            }
        }
        found
    }

    async fn write_all(
        &self,
        found: &[Dead],
        bodies: &mut HashMap<Place, DeadLetterBody>,
    ) -> Vec<Result<(), LedgerUnavailable>> {
        let writes = found.iter().map(|dead| {
            let body = bodies.get(&dead.place()).cloned();
            async move { (dead.place(), self.write(dead, body).await) }
        });
        let mut results = Vec::with_capacity(found.len());
        for (place, (body, result)) in futures_util::future::join_all(writes).await {
            match (&result, body) {
                (Err(_), Some(body)) => bodies.insert(place, body),
                (Ok(()), _) | (Err(_), None) => bodies.remove(&place),
            };
            results.push(result);
        }
        results
    }

    /// Stores one dead letter. Gives its body's place also when the rest failed.
    async fn write(
        &self,
        dead: &Dead,
        body: Option<DeadLetterBody>,
    ) -> (Option<DeadLetterBody>, Result<(), LedgerUnavailable>) {
        let record = match self.record_of(dead).await {
            Ok(record) => record,
            Err(error) => return (body, Err(error.into())),
        };
        let Some(record) = record else {
            // Retention took it: there is no body to keep.
            self.core.signals.drop_by("gone", 1);
            // Before the row ends: a request that waits for the dead letter looks for this first.
            self.dead_lettered.without(dead.place());
            let ended = self.end(dead).await;
            return (None, ended.map(|_| ()));
        };
        let event = &record.record().event;
        let body = match body {
            Some(body) => body,
            None => match self.store_body(dead, event).await {
                Ok(body) => body,
                Err(error) => return (None, Err(error.into())),
            },
        };
        let letter = DeadLetter {
            group: dead.group.id.clone(),
            incarnation: dead.group.topic.incarnation(),
            partition: dead.partition,
            offset: dead.offset,
            reason: dead.reason,
            attempts: dead.row.attempt,
            last_error: dead.row.error.to_string(),
            first_ms: dead.row.first.0,
            last_ms: dead.row.last.0,
            dead_at_ms: dead.row.at.0,
            event_id: event.id().to_owned(),
            source: event.source().to_owned(),
            body: body.clone(),
            instance: self.instance.clone(),
            unknown: Unknown::default(),
        };
        if let Err(error) = self.record_letter(letter).await {
            return (Some(body), Err(error.into()));
        }
        self.times.added(&dead.group.id.topic, dead.row.at.0);
        match self.end(dead).await {
            Ok(ended) => {
                if ended {
                    self.core.signals.dead_lettered.inc();
                }
                (None, Ok(()))
            }
            Err(error) => (Some(body), Err(error)),
        }
    }

    /// Writes the row. One that is there of an earlier death gives way: whoever is removing it, because it was
    /// replayed, must not take this one.
    async fn record_letter(&self, letter: DeadLetter) -> Result<(), BackendError> {
        loop {
            match self.store.record(letter.clone()).await? {
                Recorded::AlreadyThere(row) if !is_same_death(&row.record, &letter) => {
                    if let Replaced::Replaced(_) = self.store.renew(&row, letter.clone()).await? {
                        return Ok(());
                    }
                }
                Recorded::AlreadyThere(_) | Recorded::Written(_) => return Ok(()),
            }
        }
    }

    async fn record_of(&self, dead: &Dead) -> Result<Option<Arc<mesh_storage::LogRecord>>, BackendError> {
        match dead.group.topic.partition(dead.partition) {
            None => Ok(None),
            Some(partition) => self.core.storage.record(&partition, dead.offset).await,
        }
    }

    async fn store_body(
        &self,
        dead: &Dead,
        event: &mesh_frame::Event,
    ) -> Result<DeadLetterBody, BackendError> {
        let failed = |source: String| {
            BackendError::new(BackendErrorKind::Unavailable, "dead-letter topic", "storing a dead letter")
                .with_source(source)
        };
        let name = dead.group.id.topic.dead_letter();
        let topic = self
            .core
            .storage
            .ensure_topic(&name, true, Some(1))
            .await
            .map_err(|error| failed(error.to_string()))?;
        let partition =
            topic.partition(PartitionId(0)).ok_or_else(|| failed("it has no partition".to_owned()))?;
        let attempts = dead.row.attempt.to_string();
        let time = format_timestamp(dead.row.at.0);
        let event = event.with_attributes(&[
            ("emdlgroup", dead.group.id.name.as_str()),
            ("emdlreason", dead.reason.as_str()),
            ("emdlattempts", &attempts),
            ("emdltime", &time),
        ]);
        let append = self.core.storage.append(vec![AppendItem { partition, event }]);
        let offsets =
            tokio::time::timeout(self.core.limits.publish_timeout, self.core.storage.appended(append))
                .await
                .map_err(|_| failed(format!("not stored within {:?}", self.core.limits.publish_timeout)))??;
        let offset = *offsets.first().ok_or_else(|| failed("the log gave no offset".to_owned()))?;
        Ok(DeadLetterBody {
            topic: name,
            incarnation: topic.incarnation(),
            partition: PartitionId(0),
            offset,
        })
    }

    /// Ends the row of a delivery whose dead letter is stored. `false`: it had ended.
    async fn end(&self, dead: &Dead) -> Result<bool, LedgerUnavailable> {
        let (core, group) = (&self.core, &dead.group);
        let epoch = core.ensure_lanes(group).await?;
        if group.is_closed() {
            return Ok(false);
        }
        let mut batch = PositionBatch::new();
        let committing = {
            let now = core.clock.now();
            let mut guard = core.enter(group, now);
            let state = &mut *guard;
            if state.epoch != Some(epoch) {
                return Err(CommitError::Suspended.into());
            }
            let ends = state
                .lane(dead.partition)
                .is_some_and(|lane| lane.dead_lettered(dead.offset, now, &mut batch));
            if !ends {
                return Ok(false);
            }
            core.commit(group, state, batch, Durability::Synced, |staged| {
                staged.ends = vec![(dead.partition, dead.offset)];
            })
        };
        committing.done().await?;
        core.after(group);
        self.dead_lettered.ended();
        Ok(true)
    }
}
