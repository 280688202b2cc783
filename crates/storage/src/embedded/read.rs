//! Reading the embedded log: runs of records, look-ups by time, and what retention may drop.

use std::sync::Arc;

use bytes::Bytes;
use mesh_base::BackendError;
use mesh_frame::{Offset, Record};
use mesh_rocks::{Batch, Durability, LocalDb};
use parking_lot::Mutex;

use super::{
    catalog,
    keys::{self, corrupt},
};
use crate::{LogRecord, Partition, ReadLimit, Retain, Retained};

/// A stored record before it is decoded.
pub(super) struct StoredRecord<'a> {
    partition: &'a Partition,
    offset: Offset,
    value: Bytes,
}

impl StoredRecord<'_> {
    /// The record; `Corrupt` with its place when the checksum does not hold.
    pub(super) fn record(&self) -> Result<Record, BackendError> {
        let envelope = self.value.slice(keys::CUMULATIVE.min(self.value.len())..);
        Record::decode(envelope).map_err(|error| {
            corrupt(format!(
                "record at offset {} of partition {} of topic {}: {error}",
                self.offset,
                self.partition.id(),
                self.partition.topic()
            ))
        })
    }

    /// The bytes of the partition up to and with this record.
    fn cumulative(&self) -> Result<u64, BackendError> {
        keys::number(&self.value).ok_or_else(|| corrupt(format!("record at offset {} is cut", self.offset)))
    }
}

pub(super) fn records(
    db: &LocalDb,
    partition: &Partition,
    from: Offset,
    limit: ReadLimit,
) -> Result<Vec<Arc<LogRecord>>, BackendError> {
    let from = from.max(partition.start());
    let mut found = Vec::new();
    let mut bytes = 0;
    let mut damaged = None;
    let scan = scan(db, partition, from, |stored| {
        bytes += stored.value.len();
        match stored.record() {
            Ok(record) => found.push(Arc::new(LogRecord::new(stored.offset, record))),
            Err(error) => damaged = Some(error),
        }
        damaged.is_none() && found.len() < limit.records && bytes < limit.bytes
    });
    match damaged.map_or(scan, Err) {
        Err(error) if found.is_empty() => Err(error),
        // What came before the damage is good; the next read starts at it and says so.
        Err(_) | Ok(()) => Ok(found),
    }
}

fn scan(
    db: &LocalDb,
    partition: &Partition,
    from: Offset,
    mut each: impl FnMut(StoredRecord<'_>) -> bool,
) -> Result<(), BackendError> {
    let end = partition.end();
    if from >= end {
        return Ok(());
    }
    let to = keys::record(partition.key(), end.0);
    db.scan(keys::RECORDS, &keys::record(partition.key(), from.0), Some(&to), |key, value| {
        let Some(offset) = keys::offset_of(key, partition.key()) else { return false };
        each(StoredRecord { partition, offset, value: Bytes::copy_from_slice(value) })
    })
}

/// The first record at or after `from`.
fn first_from<'a>(
    db: &LocalDb,
    partition: &'a Partition,
    from: Offset,
) -> Result<Option<StoredRecord<'a>>, BackendError> {
    let mut found = None;
    scan(db, partition, from, |stored| {
        found = Some((stored.offset, stored.value));
        false
    })?;
    Ok(found.map(|(offset, value)| StoredRecord { partition, offset, value }))
}

/// The lowest offset whose record fulfils a condition that, once true, stays true for all later records.
pub(super) fn offset_where(
    db: &LocalDb,
    partition: &Partition,
    mut condition: impl FnMut(&StoredRecord<'_>) -> Result<bool, BackendError>,
) -> Result<Offset, BackendError> {
    let (mut low, mut high) = (partition.start().0, partition.end().0);
    // Everything below `low` is known not to fulfil it, everything at or above `high` to fulfil it.
    while low < high {
        let middle = low + (high - low) / 2;
        match first_from(db, partition, Offset(middle))? {
            None => high = middle,
            Some(stored) if condition(&stored)? => high = middle,
            Some(stored) => low = stored.offset.0 + 1,
        }
    }
    // `low` may lie in a gap: the offset of the record behind it says the same more plainly.
    Ok(first_from(db, partition, Offset(low))?.map_or(partition.end(), |stored| stored.offset))
}

pub(super) fn bytes(db: &LocalDb, partition: &Partition) -> Result<u64, BackendError> {
    let (before, total) = totals(db, partition)?;
    Ok(total - before.min(total))
}

/// The cumulative bytes before the first and with the last record.
fn totals(db: &LocalDb, partition: &Partition) -> Result<(u64, u64), BackendError> {
    let Some(first) = first_from(db, partition, partition.start())? else { return Ok((0, 0)) };
    let before = first.cumulative()?.saturating_sub(first.value.len() as u64);
    let last = db.last_below(keys::RECORDS, &keys::record(partition.key(), partition.end().0))?;
    let total = last
        .filter(|(key, _)| keys::offset_of(key, partition.key()).is_some())
        .and_then(|(_, value)| keys::number(&value))
        .unwrap_or(before);
    Ok((before, total))
}

/// What retention keeps and drops. `changes` keeps the topic from being deleted between the look whether it is there and
/// the write.
pub(super) fn retain(
    db: &LocalDb,
    changes: &Mutex<()>,
    partition: &Partition,
    retain: &Retain,
) -> Result<Retained, BackendError> {
    let old = partition.start();
    let end = partition.end();
    let mut done = old;
    let mut backlog = old;
    if let Some(before) = retain.done_before {
        done = done.max(older_than(db, partition, before.0)?);
    }
    if let Some(before) = retain.backlog_before {
        backlog = backlog.max(older_than(db, partition, before.0)?);
    }
    if retain.done_bytes.is_some() || retain.backlog_bytes.is_some() {
        let (before, total) = totals(db, partition)?;
        for (bound, reach) in [(retain.done_bytes, &mut done), (retain.backlog_bytes, &mut backlog)] {
            let Some(bound) = bound.filter(|bound| total - before.min(total) > *bound) else { continue };
            // A record stays when it and everything behind it fit the bound.
            let fits = offset_where(db, partition, |stored| {
                Ok(stored.cumulative()?.saturating_sub(stored.value.len() as u64) >= total - bound)
            })?;
            *reach = (*reach).max(fits);
        }
    }
    let floor = retain.done_below.unwrap_or(end);
    let start = done.min(floor).max(backlog).min(end);
    if start <= old {
        return Ok(Retained { start: old, dropped_backlog: 0 });
    }
    let one_at_a_time = changes.lock();
    if !catalog::has(db, partition)? {
        // The topic was deleted meanwhile, with every record: nothing was dropped here.
        return Ok(Retained { start: old, dropped_backlog: 0 });
    }
    let mut batch = Batch::new();
    let (from, to) = (keys::record(partition.key(), old.0), keys::record(partition.key(), start.0));
    batch.put(keys::BOUNDS, partition.key().to_be_bytes(), keys::bounds(start.0, end.0));
    batch.delete_range(keys::RECORDS, from, to);
    db.write(&batch, Durability::Synced)?;
    drop(one_at_a_time);
    db.compact(keys::RECORDS, &from, &to);
    Ok(Retained { start, dropped_backlog: start.0.saturating_sub(floor.max(old).0) })
}

fn older_than(db: &LocalDb, partition: &Partition, at_ms: u64) -> Result<Offset, BackendError> {
    offset_where(db, partition, |stored| Ok(stored.record()?.accepted_at_ms >= at_ms))
}
