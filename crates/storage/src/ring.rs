//! The newest records of one partition, from some offset to the end without a gap.

use std::{collections::VecDeque, sync::Arc};

use mesh_frame::Offset;

use crate::{Cached, LogRecord};

/// The newest records of one partition.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    records: VecDeque<Arc<LogRecord>>,
    /// Everything at or after this offset and below the end is in `records`. `None`: nothing is known.
    complete_from: Option<Offset>,
}

impl Ring {
    pub(crate) fn from(
        &self,
        from: Offset,
        end: Offset,
        most: usize,
        out: &mut Vec<Arc<LogRecord>>,
    ) -> Option<Cached> {
        if self.complete_from.is_none_or(|first| from < first) {
            return None;
        }
        let first = self.records.partition_point(|record| record.offset() < from);
        let mut reached = end;
        for (taken, record) in self.records.range(first..).enumerate() {
            if record.offset() >= end {
                break;
            }
            if taken == most {
                reached = record.offset();
                break;
            }
            out.push(record.clone());
        }
        Some(Cached::UpTo(reached))
    }

    pub(crate) fn push(&mut self, record: Arc<LogRecord>, end_before: Offset) {
        if self.complete_from.is_none() {
            self.complete_from = Some(end_before);
        }
        self.records.push_back(record);
    }

    pub(crate) fn pop(&mut self) -> Option<Arc<LogRecord>> {
        let record = self.records.pop_front()?;
        self.complete_from = Some(Offset(record.offset().0 + 1));
        Some(record)
    }
}
