//! The thread that makes every change of the local store, many at a time.

use std::collections::HashMap;
use std::sync::{Arc, atomic::Ordering};

use mesh_base::BackendError;
use mesh_rocks::{Batch, Durability};
use tokio::sync::{mpsc, oneshot};

use crate::{
    Revision, Versioned, WatchEvent,
    change::Effect,
    local::reader::{RECORDS, REVISION, Reader, encode},
};

/// How many changes share a sync at most.
const MOST_TOGETHER: usize = 256;
/// How many bytes of new values share a sync at most, but for the last.
const MOST_BYTES: usize = 4 << 20;

/// Decides a change from what its key holds, or from the failure to read that.
type Decide = Box<dyn FnOnce(Result<Option<&Versioned>, BackendError>, Revision) -> (Effect, Answer) + Send>;
/// Answers a change once its batch was written or could not be.
type Answer = Box<dyn FnOnce(Result<(), BackendError>) + Send>;

/// What the writer is told to do.
pub(super) enum Job {
    /// To make a change.
    Change(Command),
    /// To make a database that refused a write take writes again.
    Heal,
}

/// A change that waits for the writer.
pub(super) struct Command {
    key: String,
    decide: Decide,
}

impl Command {
    /// A change of `key` by `rule`, and where its answer arrives. A caller that went away changes nothing:
    /// the change is made.
    pub(super) fn new<T: Send + 'static>(
        key: &str,
        rule: impl FnOnce(Option<&Versioned>, Revision) -> (Effect, T) + Send + 'static,
    ) -> (Self, oneshot::Receiver<Result<T, BackendError>>) {
        let (sender, receiver) = oneshot::channel();
        let decide: Decide = Box::new(move |current, next| match current {
            Ok(current) => {
                let (effect, outcome) = rule(current, next);
                let answer: Answer = Box::new(move |written| {
                    drop(sender.send(written.map(|()| outcome)));
                });
                (effect, answer)
            }
            Err(error) => (Effect::Nothing, Box::new(move |_| drop(sender.send(Err(error))))),
        });
        (Self { key: key.to_owned(), decide }, receiver)
    }
}

/// The state of the writer: the number of the next change.
pub(super) struct Writer {
    reader: Arc<Reader>,
    next: u64,
}

impl Writer {
    pub(super) fn new(reader: Arc<Reader>) -> Self {
        let next = reader.revision.load(Ordering::Acquire) + 1;
        Self { reader, next }
    }

    /// Makes changes until every sender is gone and the queue is empty.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        while let Some(first) = queue.blocking_recv() {
            let mut group = Group::default();
            let mut next = Some(first);
            let mut heal = false;
            while let Some(job) = next.take() {
                match job {
                    Job::Change(command) => self.decide(&mut group, command),
                    // Between two groups: what a group was decided on must not change before it is written.
                    Job::Heal => heal = true,
                }
                if !heal && group.answers.len() < MOST_TOGETHER && group.bytes < MOST_BYTES {
                    next = queue.try_recv().ok();
                }
            }
            self.finish(group);
            if heal && self.reader.db.is_suspect() {
                self.reader.heal();
            }
        }
    }

    /// Decides a change on top of what the group did to its key before.
    fn decide(&mut self, group: &mut Group, command: Command) {
        let revision = Revision(self.next);
        let stored;
        let current = match group.pending.get(&command.key) {
            Some(pending) => Ok(pending.as_ref()),
            None => match self.reader.get(&command.key) {
                Ok(found) => {
                    stored = found;
                    Ok(stored.as_ref())
                }
                Err(error) => Err(error),
            },
        };
        let (effect, answer) = (command.decide)(current, revision);
        group.answers.push(answer);
        let holds = match &effect {
            Effect::Nothing => return,
            Effect::Put(value) => {
                group.batch.put(RECORDS, &command.key, encode(revision, value));
                group.bytes += value.len();
                Some(Versioned { value: value.clone(), revision })
            }
            Effect::Delete => {
                group.batch.delete(RECORDS, &command.key);
                None
            }
        };
        self.next += 1;
        group.pending.insert(command.key.clone(), holds);
        group.events.extend(effect.event(command.key, revision));
    }

    /// Writes and syncs a group as one, then announces and answers. A revision that could not be written is
    /// not given again.
    fn finish(&mut self, mut group: Group) {
        let written = if group.events.is_empty() {
            Ok(())
        } else {
            let last = self.next - 1;
            group.batch.put("default", REVISION, last.to_be_bytes());
            self.reader.db.write(&group.batch, Durability::Synced).map(|()| {
                self.reader.revision.store(last, Ordering::Release);
                for event in &group.events {
                    self.reader.watchers.announce(event);
                }
            })
        };
        for answer in group.answers {
            answer(written.as_ref().copied().map_err(BackendError::copy));
        }
    }
}

/// The changes of one batch.
#[derive(Default)]
struct Group {
    batch: Batch,
    bytes: usize,
    /// What the keys the group changed hold after it.
    pending: HashMap<String, Option<Versioned>>,
    events: Vec<WatchEvent>,
    answers: Vec<Answer>,
}
