//! What operators did: seeks, deletions, replays, and the kills in between.
//!
//! An operation whose answer was lost happened or did not. What was looked at afterwards, the generation of the
//! group or the incarnation of the log, decides it where it can; until then both are accepted.

use std::collections::{BTreeMap, HashMap};

use super::place::{Group, Place, moments};
use crate::{Fact, SeekTo, history::Moment};

/// Whether an operation took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happened {
    Yes,
    No,
    Maybe,
}

impl Happened {
    pub(super) fn may(self) -> bool {
        self != Self::No
    }
}

/// When a request was answered, or the kill that ended it.
pub(super) fn end_of(sent: Moment, answered: Option<Moment>, kills: &[Moment]) -> Moment {
    answered.unwrap_or_else(|| {
        let next = kills.partition_point(|kill| *kill <= sent);
        kills.get(next).copied().unwrap_or(Moment(usize::MAX))
    })
}

/// A group that was sent elsewhere.
#[derive(Clone, Debug)]
pub(super) struct Seek {
    pub(super) sent: Moment,
    pub(super) end: Moment,
    pub(super) happened: Happened,
    /// Its generation if it happened.
    pub(super) generation: u64,
    asked_for: SeekTo,
    /// Where it goes on, as far as that is known.
    to: Option<BTreeMap<u32, u64>>,
}

impl Seek {
    /// The offset a partition goes on at: `None`: it stays where it is.
    fn target(&self, partition: u32) -> Option<Target> {
        match &self.asked_for {
            SeekTo::Offsets(named) => named.get(&partition).map(|offset| Target::At(*offset)),
            SeekTo::Earliest => Some(Target::At(self.known(partition).unwrap_or(0))),
            SeekTo::Latest => Some(self.known(partition).map_or(Target::End, Target::At)),
        }
    }

    fn known(&self, partition: u32) -> Option<u64> {
        self.to.as_ref()?.get(&partition).copied()
    }

    pub(super) fn may_be_between(&self, after: Moment, before: Moment) -> bool {
        self.happened.may() && self.end > after && self.sent < before
    }

    /// Whether it makes an event due anew, if it happens.
    pub(super) fn covers(&self, place: Option<Place>) -> bool {
        place.is_none_or(|(partition, offset)| match self.target(partition) {
            Some(Target::At(target)) => target <= offset,
            Some(Target::End) => true,
            None => false,
        })
    }

    /// Whether it has certainly made an event due anew.
    pub(super) fn must_cover(&self, place: Option<Place>) -> bool {
        self.happened == Happened::Yes
            && place.is_some_and(|(partition, offset)| {
                matches!(self.target(partition), Some(Target::At(target)) if target <= offset)
            })
    }

    /// Whether it may have passed over an event that was sent then.
    pub(super) fn may_skip(&self, place: Option<Place>, sent: Moment) -> bool {
        let may = |partition: u32, offset: Option<u64>| match self.target(partition) {
            Some(Target::At(target)) => offset.is_none_or(|offset| offset < target),
            Some(Target::End) => self.end > sent,
            None => false,
        };
        self.happened.may()
            && match place {
                Some((partition, offset)) => may(partition, Some(offset)),
                None => self.asked_for != SeekTo::Earliest && self.end > sent,
            }
    }

    /// Where a partition goes on, if it is known and named.
    pub(super) fn start(&self, partition: u32) -> Option<u64> {
        match self.target(partition) {
            Some(Target::At(target)) => Some(target),
            Some(Target::End) | None => None,
        }
    }

    /// Whether a partition stays where it is.
    pub(super) fn leaves(&self, partition: u32) -> bool {
        self.target(partition).is_none()
    }

    /// The lowest floor that a partition may have because of it.
    pub(super) fn lowest_floor(&self, partition: u32) -> Option<u64> {
        match self.target(partition)? {
            Target::At(target) => Some(target),
            Target::End => Some(0),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Target {
    At(u64),
    /// The end at that time, which is not known.
    End,
}

/// A topic that was deleted with its groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delete {
    pub(super) sent: Moment,
    pub(super) end: Moment,
    pub(super) happened: Happened,
    pub(super) letters: bool,
}

/// A replay of all dead letters of a topic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replay {
    pub(super) sent: Moment,
    pub(super) end: Moment,
    pub(super) replayed: Option<u64>,
}

/// Everything that operators did.
#[derive(Debug, Default)]
pub(super) struct Operations<'a> {
    pub(super) kills: Vec<Moment>,
    /// Kills and closed streams: what was handed out before may never have come.
    pub(super) cuts: Vec<Moment>,
    pub(super) seeks: BTreeMap<Group<'a>, Vec<Seek>>,
    pub(super) deletes: HashMap<&'a str, Vec<Delete>>,
    pub(super) replays: HashMap<&'a str, Vec<Replay>>,
    /// Groups whose generation was seen lower than it had been answered, and topics that were there after their
    /// deletion was answered: for the rule about what is forgotten.
    pub(super) forgotten: Vec<String>,
}

impl<'a> Operations<'a> {
    pub(super) fn new(facts: &'a [Fact]) -> Self {
        let mut done = Self::default();
        for (at, fact) in moments(facts) {
            match fact {
                Fact::Killed => {
                    done.kills.push(at);
                    done.cuts.push(at);
                }
                Fact::StreamClosed => done.cuts.push(at),
                _ => {}
            }
        }
        done.read_seeks(facts);
        done.read_deletes(facts);
        done.read_replays(facts);
        done
    }

    pub(super) fn seeks_of<'b>(&'b self, group: &Group<'b>) -> impl Iterator<Item = &'b Seek> {
        let seeks: &BTreeMap<Group<'b>, Vec<Seek>> = &self.seeks;
        seeks.get(group).into_iter().flatten()
    }

    pub(super) fn deletes_of(&self, topic: &str) -> impl Iterator<Item = &Delete> {
        self.deletes.get(topic).into_iter().flatten()
    }

    pub(super) fn replays_of(&self, topic: &str) -> impl Iterator<Item = &Replay> {
        self.replays.get(topic).into_iter().flatten()
    }

    fn read_seeks(&mut self, facts: &'a [Fact]) {
        let mut sent: HashMap<Moment, (Group<'_>, usize)> = HashMap::new();
        for (at, fact) in moments(facts) {
            match fact {
                Fact::SeekSent { topic, group, to } => {
                    let seeks = self.seeks.entry((topic, group)).or_default();
                    sent.insert(at, ((topic, group), seeks.len()));
                    seeks.push(Seek {
                        sent: at,
                        end: end_of(at, None, &self.kills),
                        happened: Happened::Maybe,
                        generation: 0,
                        asked_for: to.clone(),
                        to: None,
                    });
                }
                Fact::SeekAnswered { sent: of, generation, to } => {
                    if let Some((group, number)) = sent.get(of)
                        && let Some(seek) = self.seeks.get_mut(group).and_then(|seeks| seeks.get_mut(*number))
                    {
                        (seek.end, seek.happened) = (at, Happened::Yes);
                        (seek.generation, seek.to) = (*generation, Some(to.clone()));
                    }
                }
                _ => {}
            }
        }
        let mut samples: HashMap<Group<'_>, Vec<(Moment, u64)>> = HashMap::new();
        for fact in facts {
            if let Fact::Generation { asked, topic, group, generation } = fact {
                samples.entry((topic, group)).or_default().push((*asked, *generation));
            }
        }
        // One after another, so that a generation says which of them happened.
        for (group, seeks) in &mut self.seeks {
            let samples = samples.remove(group).unwrap_or_default();
            let mut generation = 0;
            for number in 0..seeks.len() {
                let next = seeks.get(number + 1).map_or(Moment(usize::MAX), |next| next.sent);
                let seek = &mut seeks[number];
                let seen = samples.iter().find(|(asked, _)| *asked > seek.end && *asked < next).copied();
                if seek.happened == Happened::Maybe {
                    match seen {
                        Some((_, seen)) if seen > generation => {
                            (seek.happened, seek.generation) = (Happened::Yes, seen);
                        }
                        Some(_) => (seek.happened, seek.generation) = (Happened::No, generation),
                        None => seek.generation = generation,
                    }
                }
                generation = generation.max(seek.generation);
                if let Some((_, seen)) = seen.filter(|(_, seen)| *seen < generation) {
                    self.forgotten.push(format!(
                        "group {} of {} had generation {generation} and has {seen} at a later look",
                        group.1, group.0
                    ));
                }
            }
        }
    }

    fn read_deletes(&mut self, facts: &'a [Fact]) {
        let mut sent: HashMap<Moment, (&str, usize)> = HashMap::new();
        for (at, fact) in moments(facts) {
            match fact {
                Fact::DeleteSent { topic, letters } => {
                    let deletes = self.deletes.entry(topic).or_default();
                    sent.insert(at, (topic, deletes.len()));
                    let (end, happened) = (end_of(at, None, &self.kills), Happened::Maybe);
                    deletes.push(Delete { sent: at, end, happened, letters: *letters });
                }
                Fact::DeleteAnswered { sent: of, done } => {
                    if let Some((topic, number)) = sent.get(of)
                        && let Some(delete) =
                            self.deletes.get_mut(topic).and_then(|deletes| deletes.get_mut(*number))
                    {
                        let happened = if *done { Happened::Yes } else { Happened::No };
                        (delete.end, delete.happened) = (at, happened);
                    }
                }
                _ => {}
            }
        }
        let mut looks: HashMap<&str, Vec<(Moment, Option<&str>)>> = HashMap::new();
        for fact in facts {
            if let Fact::Described { asked, topic, incarnation, .. } = fact {
                looks.entry(topic).or_default().push((*asked, incarnation.as_deref()));
            }
        }
        for (topic, deletes) in &mut self.deletes {
            let looks = looks.remove(topic).unwrap_or_default();
            for delete in deletes.iter_mut().filter(|delete| delete.happened.may()) {
                let before = looks.iter().take_while(|(asked, _)| *asked < delete.sent).last();
                let after = looks.iter().find(|(asked, _)| *asked > delete.end);
                let (Some((_, before)), Some((_, after))) = (before, after) else { continue };
                let stayed = before.is_some() && before == after;
                if delete.happened == Happened::Maybe {
                    delete.happened = if stayed { Happened::No } else { Happened::Yes };
                } else if stayed {
                    self.forgotten.push(format!("{topic} is the same log after its deletion was answered"));
                }
            }
        }
    }

    fn read_replays(&mut self, facts: &'a [Fact]) {
        let mut sent: HashMap<Moment, (&str, usize)> = HashMap::new();
        for (at, fact) in moments(facts) {
            match fact {
                Fact::ReplaySent { topic } => {
                    let replays = self.replays.entry(topic).or_default();
                    sent.insert(at, (topic, replays.len()));
                    replays.push(Replay { sent: at, end: end_of(at, None, &self.kills), replayed: None });
                }
                Fact::ReplayAnswered { sent: of, replayed } => {
                    if let Some((topic, number)) = sent.get(of)
                        && let Some(replay) =
                            self.replays.get_mut(topic).and_then(|replays| replays.get_mut(*number))
                    {
                        (replay.end, replay.replayed) = (at, *replayed);
                    }
                }
                _ => {}
            }
        }
    }
}
