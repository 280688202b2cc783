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

/// So many gaps wait to be told; what comes after them widens the last of them.
const MOST: usize = 64;

/// The gaps of a lane. Hardly a lane has any.
#[derive(Debug, Default)]
pub(super) struct Gaps(Option<Box<Noted>>);

#[derive(Debug)]
struct Noted {
    /// Those that nobody was told of yet.
    untold: Vec<Gap>,
    last: Gap,
}

impl Gaps {
    pub(super) fn last(&self) -> Option<Gap> {
        self.0.as_ref().map(|noted| noted.last)
    }

    /// The first place that nobody was told of.
    pub(super) fn untold(&self) -> Option<Offset> {
        self.0.as_ref()?.untold.iter().map(|gap| gap.from).min()
    }

    /// Notes a range. One that goes on where the last ended, and that nobody was told of yet, is one with it; what was
    /// noted already is not noted again.
    pub(super) fn skip(&mut self, from: u64, to: u64, reason: GapReason) {
        let gap = Gap { from: Offset(from), to: Offset(to), reason };
        let Some(noted) = &mut self.0 else {
            self.0 = Some(Box::new(Noted { untold: vec![gap], last: gap }));
            return;
        };
        let has = |known: &Gap| known.from <= gap.from && gap.to <= known.to;
        if has(&noted.last) || noted.untold.iter().any(has) {
            return;
        }
        let is_full = noted.untold.len() >= MOST;
        match noted.untold.last_mut() {
            Some(before) if is_full || (before.from <= gap.from && gap.from <= before.to) => {
                before.to = before.to.max(gap.to);
                noted.last = *before;
            }
            _ => {
                noted.untold.push(gap);
                noted.last = gap;
            }
        }
    }

    /// The gap that the next hand-out tells of.
    pub(super) fn tell(&mut self) -> Option<Box<Gap>> {
        let noted = self.0.as_mut().filter(|noted| !noted.untold.is_empty())?;
        Some(Box::new(noted.untold.remove(0)))
    }

    /// The hand-out that told of it never reached its member: the next one tells of it.
    pub(super) fn tell_again(&mut self, gap: &Gap) {
        if let Some(noted) = &mut self.0 {
            noted.untold.insert(0, *gap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_that_goes_on_is_one_and_each_is_told_until_somebody_has_it() {
        use GapReason::{DroppedBacklog, Gone};
        let gap = |from, to, reason| Gap { from: Offset(from), to: Offset(to), reason };
        let mut gaps = Gaps::default();
        assert_eq!((gaps.last(), gaps.untold(), gaps.tell()), (None, None, None));
        gaps.skip(0, 4, DroppedBacklog);
        gaps.skip(2, 4, Gone);
        gaps.skip(4, 7, Gone);
        gaps.skip(20, 30, Gone);
        assert_eq!((gaps.last(), gaps.untold()), (Some(gap(20, 30, Gone)), Some(Offset(0))));
        let told = gaps.tell().expect("it was not told");
        assert_eq!(*told, gap(0, 7, DroppedBacklog));
        gaps.tell_again(&told);
        assert_eq!(gaps.tell(), Some(told), "in front of the other");
        assert_eq!((gaps.tell().as_deref(), gaps.tell()), (Some(&gap(20, 30, Gone)), None), "each once");
        gaps.skip(20, 30, Gone);
        assert_eq!((gaps.tell(), gaps.untold()), (None, None), "it was noted before");
    }

    #[test]
    fn gaps_that_nobody_is_told_of_take_bounded_memory() {
        let mut gaps = Gaps::default();
        for at in 0..1_000 {
            gaps.skip(at * 10, at * 10 + 1, GapReason::Gone);
        }
        let told = std::iter::from_fn(|| gaps.tell()).count();
        assert_eq!((told, gaps.last().map(|gap| gap.to)), (MOST, Some(Offset(9_991))));
    }
}
