//! The streams of a group's members, and who fills their mailboxes: which groups of a topic are due, and that each is
//! served by one at a time.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use mesh_base::{Stop, UnixMillis};
use mesh_frame::{ClientId, PartitionId, TenantId};
use mesh_push::Mailbox;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::receiver::Receiver;
use crate::lane::{HandOut, Member};

/// A delivery on its way to a stream.
#[derive(Debug)]
pub(crate) struct Parcel {
    /// The number of its group, and its generation.
    pub(crate) group: (u64, u32),
    pub(crate) partition: PartitionId,
    pub(crate) hand_out: HandOut,
    /// It was done when it was handed out: nothing can be given back.
    pub(crate) auto: bool,
}

/// An open stream as its groups know it.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) tenant: TenantId,
    pub(crate) client: ClientId,
    pub(crate) member: Member,
    pub(crate) receiver: Receiver,
    /// What marks the ids.
    pub(crate) owner: u32,
    pub(crate) mailbox: Mailbox<Parcel>,
}

/// The groups of a topic that are to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Fan {
    due: Mutex<Vec<u64>>,
    signal: Notify,
    /// The topic has no streams any more.
    pub(crate) stop: Stop,
}

impl Fan {
    pub(crate) fn take_due(&self) -> Vec<u64> {
        std::mem::take(&mut *self.due.lock())
    }

    pub(crate) async fn something_due(&self) {
        self.signal.notified().await;
    }

    fn queue(&self, group: u64) {
        self.due.lock().push(group);
        self.signal.notify_one();
    }
}

const IDLE: u8 = 0;
/// In the queue of its fan.
const DUE: u8 = 1;
/// Being served.
const SERVED: u8 = 2;
/// Being served, and something came since.
const AGAIN: u8 = 3;

/// Whether a group waits to be served, is served, or must be served once more. It outlives fans.
#[derive(Debug, Default)]
pub(crate) struct Seat(AtomicU8);

impl Seat {
    /// There may be something. `true`: the group is to be queued.
    fn wants(&self) -> bool {
        let next = |state| match state {
            IDLE => Some(DUE),
            SERVED => Some(AGAIN),
            _ => None,
        };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) == Ok(IDLE)
    }

    pub(crate) fn start(&self) {
        self.0.store(SERVED, Ordering::Release);
    }

    /// Nothing was found. `false`: something came since, and it stays served.
    pub(crate) fn finish(&self) -> bool {
        if self.0.compare_exchange(SERVED, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return true;
        }
        self.start();
        false
    }
}

/// The streams of a group's members.
#[derive(Debug)]
pub(crate) struct GroupStreams {
    /// The number of the group, and its generation.
    group: (u64, u32),
    open: BTreeMap<Member, Arc<Stream>>,
    fan: Option<Arc<Fan>>,
    seat: Arc<Seat>,
}

impl GroupStreams {
    pub(crate) fn new(group: (u64, u32)) -> Self {
        Self { group, open: BTreeMap::new(), fan: None, seat: Arc::default() }
    }

    /// The number of the group, and its generation.
    pub(crate) fn group(&self) -> (u64, u32) {
        self.group
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn has(&self, member: Member) -> bool {
        self.open.contains_key(&member)
    }

    /// Whether a stream is the one its member has now.
    pub(crate) fn is_open(&self, stream: &Arc<Stream>) -> bool {
        self.open.get(&stream.member).is_some_and(|open| Arc::ptr_eq(open, stream))
    }

    /// Whether a member has a stream that could take more.
    pub(crate) fn has_plenty(&self, member: Member) -> bool {
        self.open.get(&member).is_some_and(|stream| stream.mailbox.has_plenty())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Stream>> {
        self.open.values()
    }

    pub(crate) fn seat(&self) -> Arc<Seat> {
        self.seat.clone()
    }

    /// Puts a stream in the place of its member's; gives the one before.
    pub(crate) fn insert(&mut self, stream: &Arc<Stream>, fan: &Arc<Fan>) -> Option<Arc<Stream>> {
        self.fan = Some(fan.clone());
        self.open.insert(stream.member, stream.clone())
    }

    pub(crate) fn remove(&mut self, member: Member) -> Option<Arc<Stream>> {
        let removed = self.open.remove(&member);
        if self.open.is_empty() {
            self.fan = None;
        }
        removed
    }

    /// There may be something for them.
    pub(crate) fn wake(&self) {
        if let Some(fan) = &self.fan
            && self.seat.wants()
        {
            fan.queue(self.group.0);
        }
    }

    /// Takes out of the mailboxes what lies there with its lock run out.
    pub(crate) fn take_late(&self, now: UnixMillis) -> Vec<Parcel> {
        let is_late = |parcel: &Parcel| {
            parcel.group.0 == self.group.0 && !parcel.auto && parcel.hand_out.locked_until <= now
        };
        self.open.values().flat_map(|stream| stream.mailbox.remove_if(is_late)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_queued_once_and_served_again_when_something_came_meanwhile() {
        let seat = Seat::default();
        assert!(seat.wants() && !seat.wants());
        seat.start();
        assert!(!seat.wants(), "whoever serves it sees that it must look again");
        assert!(!seat.finish());
        assert!(seat.finish());
        assert!(seat.wants());
    }
}
