//! What a group was not given: ranges of the log that it skipped because their events are gone.

use mesh_frame::Offset;

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

/// The last gap of a lane, if there was one, and whether a member was told of it. Hardly a lane has any.
#[derive(Debug, Default)]
pub(super) struct Gaps(Option<Box<Noted>>);

#[derive(Debug)]
struct Noted {
    gap: Gap,
    is_told: bool,
}

impl Gaps {
    pub(super) fn last(&self) -> Option<Gap> {
        self.0.as_ref().map(|noted| noted.gap)
    }

    /// Notes a range. One that goes on where the last ended, and that nobody was told of yet, is one with it.
    pub(super) fn skip(&mut self, from: u64, to: u64, reason: GapReason) {
        let gap = Gap { from: Offset(from), to: Offset(to), reason };
        match &mut self.0 {
            Some(noted) if noted.gap.from.0 <= from && to <= noted.gap.to.0 => {}
            Some(noted) if !noted.is_told && noted.gap.to.0 >= from && noted.gap.from.0 <= from => {
                noted.gap.to = gap.to;
            }
            noted => *noted = Some(Box::new(Noted { gap, is_told: false })),
        }
    }

    /// The gap that the next hand-out tells of.
    pub(super) fn tell(&mut self) -> Option<Box<Gap>> {
        let noted = self.0.as_mut().filter(|noted| !noted.is_told)?;
        noted.is_told = true;
        Some(Box::new(noted.gap))
    }

    /// The hand-out that told of it never reached its member: the next one tells of it.
    pub(super) fn tell_again(&mut self, gap: &Gap) {
        if let Some(noted) = self.0.as_mut().filter(|noted| noted.gap == *gap) {
            noted.is_told = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_that_goes_on_is_one_and_is_told_until_somebody_has_it() {
        use GapReason::{DroppedBacklog, Gone};
        let gap = |from, to, reason| Gap { from: Offset(from), to: Offset(to), reason };
        let mut gaps = Gaps::default();
        assert_eq!((gaps.last(), gaps.tell()), (None, None));
        gaps.skip(0, 4, DroppedBacklog);
        gaps.skip(2, 4, Gone);
        gaps.skip(4, 7, Gone);
        assert_eq!(gaps.last(), Some(gap(0, 7, DroppedBacklog)));
        let told = gaps.tell().expect("it was not told");
        assert_eq!(gaps.tell(), None, "it is told once");
        gaps.tell_again(&told);
        assert_eq!(gaps.tell().as_deref(), Some(&gap(0, 7, DroppedBacklog)));
        gaps.skip(7, 9, Gone);
        gaps.tell_again(&told);
        assert_eq!(gaps.tell().as_deref(), Some(&gap(7, 9, Gone)), "what was told is another one");
        assert_eq!(gaps.last(), Some(gap(7, 9, Gone)));
    }
}
