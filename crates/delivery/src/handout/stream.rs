//! Streams: deliveries pushed to a client for as long as it is connected.
//!
//! A client has one stream over all its groups. It is a bounded mailbox that one task a topic fills
//! ([`super::fan_out`]): deliveries for all members with room, one commit a group, then the mailboxes. What is taken out
//! of the mailbox counts as written. When a stream ends, what was not written returns uncounted, what was
//! written and not settled is due at once the first time, later with backoff. A second stream of a client
//! replaces the first in one step, so that the end of the first never touches what the second has.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use mesh_frame::ClientId;
pub use mesh_push::Waiting;

use super::{
    hand_outs::{Delivery, HandOuts, PollError},
    streams::{SERVER_STOPS, Streams},
};
use crate::group::{
    receiver::Receiver,
    streams::{Parcel, Stream},
};

/// A client's stream. Dropping it ends it.
pub struct ClientStream {
    streams: Arc<Streams>,
    stream: Arc<Stream>,
    reason: &'static str,
}

impl std::fmt::Debug for ClientStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientStream").field("client", &self.stream.client).finish_non_exhaustive()
    }
}

impl Streams {
    /// Opens a stream over all groups of a client, also those it joins later. One that the client had open
    /// is told so and ends.
    ///
    /// # Errors
    /// When the client has no subscription, or one that was ended for it, or belongs to another principal.
    pub(crate) fn stream(
        self: &Arc<Self>,
        receiver: &Receiver,
        client: &ClientId,
    ) -> Result<ClientStream, PollError> {
        let stream = self.open(receiver, client)?;
        Ok(ClientStream { streams: self.clone(), stream, reason: "closed" })
    }
}

impl ClientStream {
    /// Ends it because the server stops, which is not its client's doing. What to tell the client.
    pub fn stop(mut self) -> &'static str {
        self.reason = SERVER_STOPS;
        SERVER_STOPS
    }

    /// What there is to write; the task is woken when something comes.
    pub fn poll_waiting(&self, cx: &mut Context<'_>) -> Poll<Waiting> {
        self.stream.mailbox.poll_waiting(cx)
    }

    /// Takes deliveries of about that many bytes, and at least one, to be written now. Those that were
    /// withdrawn or timed out meanwhile are left out, so that there may be none.
    pub fn take(&self, most_bytes: usize) -> Vec<Delivery> {
        let hand_outs = &self.streams.hand_outs;
        let now = hand_outs.core.clock.now();
        let (parcels, awaited) = self.stream.mailbox.take(most_bytes, now.0);
        let deliveries = hand_outs.standing(parcels, self.stream.owner);
        if awaited {
            self.streams.has_room(&self.stream);
        }
        hand_outs.count_delivered(&deliveries);
        deliveries
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        self.streams.close(&self.stream, self.reason);
    }
}

impl HandOuts {
    /// Those of the parcels that are still with their member, as deliveries.
    fn standing(&self, parcels: Vec<Parcel>, owner: u32) -> Vec<Delivery> {
        let (now, epoch) = (self.core.clock.now(), self.core.ledger.epoch());
        let mut deliveries = Vec::with_capacity(parcels.len());
        let mut parcels = parcels.into_iter().peekable();
        while let Some(number) = parcels.peek().map(|parcel| parcel.group) {
            let run: Vec<Parcel> =
                std::iter::from_fn(|| parcels.next_if(|parcel| parcel.group == number)).collect();
            // One that was removed or sought since has withdrawn them.
            let group = self.core.directory.group(number.0).filter(|group| group.is_of(&run[0]));
            let Some(group) = group else { continue };
            let mut state = self.core.enter(&group, now);
            let is_current = state.epoch == Some(epoch);
            let mut stands = |parcel: &Parcel| {
                let (offset, serial) = (parcel.hand_out.record.offset(), parcel.hand_out.serial);
                let lane = state.lane(parcel.partition).filter(|_| is_current);
                parcel.auto || lane.is_some_and(|lane| lane.stands(offset, serial))
            };
            let standing: Vec<Parcel> = run.into_iter().filter(|parcel| stands(parcel)).collect();
            drop(state);
            let standing = standing.into_iter();
            deliveries.extend(
                standing.map(|parcel| self.delivery(&group, parcel.partition, parcel.hand_out, owner)),
            );
        }
        deliveries
    }
}
