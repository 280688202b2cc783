//! Streams: deliveries pushed to a client for as long as it is connected.
//!
//! A client has one stream over all its groups. It is a bounded mailbox that one task a topic fills
//! ([`fan_out`]): deliveries for all members with room, one commit a group, then the mailboxes. What is taken out
//! of the mailbox counts as written. When a stream ends, what was not written returns uncounted, what was
//! written and not settled is due at once the first time, later with backoff. A second stream of a client
//! replaces the first in one step, so that the end of the first never touches what the second has.

mod fan;
mod fan_out;
mod registry;

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use mesh_frame::{ClientId, PartitionId, TenantId};
use mesh_push::Mailbox;

pub(crate) use fan::{Fan, GroupStreams};
pub use mesh_push::Waiting;
pub(crate) use registry::Streams;

use crate::{
    Delivery, PollError, Receiver, ReliableDispatcher,
    dispatcher::Inner,
    group::Group,
    lane::{HandOut, Member},
};

/// Deliveries that wait for one client to read.
const MAILBOX_ITEMS: usize = 64;
/// And their bytes.
const MAILBOX_BYTES: usize = 256 << 10;

/// A delivery on its way to a stream.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) group: Arc<Group>,
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

/// A client's stream. Dropping it ends it.
pub struct ClientStream {
    dispatcher: Arc<Inner>,
    stream: Arc<Stream>,
}

impl std::fmt::Debug for ClientStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientStream").field("client", &self.stream.client).finish_non_exhaustive()
    }
}

impl ReliableDispatcher {
    /// Opens a stream over all groups of a client, also those it joins later. One that the client had open
    /// is told so and ends.
    ///
    /// # Errors
    /// When the client has no subscription, or had one that was ended for it, or is somebody else's.
    pub fn stream(&self, receiver: &Receiver, client: &ClientId) -> Result<ClientStream, PollError> {
        let stream = self.0.open_stream(receiver, client)?;
        Ok(ClientStream { dispatcher: self.0.clone(), stream })
    }
}

impl ClientStream {
    /// What there is to write; the task is woken when something comes.
    pub fn poll_waiting(&self, cx: &mut Context<'_>) -> Poll<Waiting> {
        self.stream.mailbox.poll_waiting(cx)
    }

    /// Takes deliveries of about that many bytes, and at least one, to be written now. Those that were
    /// withdrawn or timed out meanwhile are left out, so that there may be none.
    pub fn take(&self, most_bytes: usize) -> Vec<Delivery> {
        let (parcels, awaited) = self.stream.mailbox.take(most_bytes, self.dispatcher.clock.now().0);
        let deliveries = self.dispatcher.standing(parcels, self.stream.owner);
        if awaited {
            self.dispatcher.stream_has_room(&self.stream);
        }
        let signals = &self.dispatcher.signals;
        signals.dispatched.inc_by(deliveries.len() as u64);
        let again = deliveries.iter().filter(|delivery| delivery.attempt > 1).count();
        signals.redelivered.inc_by(again as u64);
        deliveries
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        self.dispatcher.close_stream(&self.stream, "closed");
    }
}

impl Inner {
    /// Those of the parcels that are still with their member, as deliveries.
    fn standing(&self, parcels: Vec<Parcel>, owner: u32) -> Vec<Delivery> {
        let epoch = self.positions.log().epoch();
        let mut standing = Vec::with_capacity(parcels.len());
        for run in parcels.chunk_by(|a, b| Arc::ptr_eq(&a.group, &b.group)) {
            let mut state = run[0].group.state.lock();
            let is_current = state.epoch == Some(epoch);
            standing.extend(run.iter().map(|parcel| {
                let (offset, serial) = (parcel.hand_out.record.offset(), parcel.hand_out.serial);
                let lane = state.lane(parcel.partition).filter(|_| is_current);
                parcel.auto || lane.is_some_and(|lane| lane.stands(offset, serial))
            }));
        }
        let deliveries = parcels.into_iter().zip(standing).filter(|(_, stands)| *stands);
        deliveries
            .map(|(parcel, _)| self.delivery(&parcel.group, parcel.partition, parcel.hand_out, owner))
            .collect()
    }
}
