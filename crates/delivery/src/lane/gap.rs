//! What a group was not given: ranges of the log that it skipped because their events are gone.

use mesh_frame::Offset;

use super::Lane;

/// Why events are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapReason {
    /// The log no longer has them.
    Gone,
    /// The backlog of the topic passed its limits.
    DroppedBacklog,
}

impl GapReason {
    /// As clients and operators are told.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::DroppedBacklog => "dropped_backlog",
        }
    }
}

/// A range that was skipped, `to` not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first offset of it.
    pub from: Offset,
    /// The one behind it.
    pub to: Offset,
    /// Why.
    pub reason: GapReason,
}

/// The last gap of a lane, and whether a member was told of it.
#[derive(Debug)]
pub(super) struct Noted {
    gap: Gap,
    is_told: bool,
}

impl Lane {
    /// The last range that was skipped since the lane was loaded.
    pub fn gap(&self) -> Option<Gap> {
        self.gap.as_ref().map(|noted| noted.gap)
    }

    /// The backlog below `start` was dropped: what of it was not looked at is skipped.
    pub fn backlog_dropped(&mut self, from: Offset, start: Offset) {
        let from = self.scan.max(from.0);
        if from < start.0 {
            self.skip(from, start.0, GapReason::DroppedBacklog);
        }
    }

    /// Notes a range. One that goes on where the last ended, and that nobody was told of yet, is one with it.
    pub(super) fn skip(&mut self, from: u64, to: u64, reason: GapReason) {
        let gap = Gap { from: Offset(from), to: Offset(to), reason };
        match &mut self.gap {
            Some(noted) if noted.gap.from.0 <= from && to <= noted.gap.to.0 => {}
            Some(noted) if !noted.is_told && noted.gap.to.0 >= from && noted.gap.from.0 <= from => {
                noted.gap.to = gap.to;
            }
            noted => *noted = Some(Box::new(Noted { gap, is_told: false })),
        }
    }

    /// The gap that the next hand-out tells of.
    pub(super) fn tell_gap(&mut self) -> Option<Box<Gap>> {
        let noted = self.gap.as_mut().filter(|noted| !noted.is_told)?;
        noted.is_told = true;
        Some(Box::new(noted.gap))
    }

    /// The hand-out that told of it never reached its member: the next one tells of it.
    pub(crate) fn tell_again(&mut self, gap: &Gap) {
        if let Some(noted) = self.gap.as_mut().filter(|noted| noted.gap == *gap) {
            noted.is_told = false;
        }
    }
}
