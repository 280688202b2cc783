//! Poll and ack: what a client receives, and that it is done with it.

use std::time::Duration;

use mesh_delivery::{AckOutcome, Answer, PollError};
use mesh_frame::ClientId;
use mesh_gate::Admitted;
use thiserror::Error;

use super::Intake;

/// How many polls a client may have under way at once.
const MOST_POLLS: usize = 64;

/// Why a poll has no answer.
#[derive(Debug, Error)]
pub enum ReceiveError {
    /// The client has this many polls under way already.
    #[error("the client has {0} polls under way, which is the most it may have")]
    TooManyPolls(usize),
    /// Delivery has none.
    #[error(transparent)]
    Poll(#[from] PollError),
}

/// Asks for deliveries.
#[derive(Clone, Debug)]
pub struct Poll {
    /// For whom.
    pub client: ClientId,
    /// How many at most.
    pub most: usize,
    /// How long to wait for the first.
    pub timeout: Duration,
}

/// Says that deliveries are done.
#[derive(Clone, Debug)]
pub struct Ack {
    /// The ids they were handed out with.
    pub deliveries: Vec<String>,
}

impl Intake {
    /// Hands out what there is for a client, or waits for something.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    pub async fn poll(&self, admitted: Admitted<Poll>) -> Result<Answer, ReceiveError> {
        let (poll, caller) = admitted.into_parts();
        let entered = self.waiting_polls.enter(caller.tenant(), &poll.client, MOST_POLLS);
        let _waiting = entered.ok_or(ReceiveError::TooManyPolls(MOST_POLLS))?;
        Ok(self.dispatcher.poll(caller.tenant(), &poll.client, poll.most, poll.timeout).await?)
    }

    /// Finishes deliveries; one outcome each, in their order.
    pub async fn ack(&self, admitted: Admitted<Ack>) -> Vec<AckOutcome> {
        let (ack, caller) = admitted.into_parts();
        self.dispatcher.ack(caller.tenant(), &ack.deliveries).await
    }
}
