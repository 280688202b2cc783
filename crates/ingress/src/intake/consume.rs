//! What a client receives, and what it says about it: poll, stream, ack, nack, extend, reject.

use std::time::Duration;

use mesh_delivery::{Answer, ClientStream, Deliveries, PollError, SettleOutcome, SubscribeError};
use mesh_gate::Admitted;
use thiserror::Error;

use super::{Intake, UsableClient};

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
    /// The client could not be written down as the caller's.
    #[error(transparent)]
    Adopt(#[from] SubscribeError),
}

/// Asks for deliveries.
#[derive(Clone, Debug)]
pub struct Poll {
    /// For whom.
    pub client: UsableClient,
    /// How many at most.
    pub most: usize,
    /// How long to wait for the first.
    pub timeout: Duration,
}

/// Asks for deliveries for as long as the client is connected.
#[derive(Clone, Debug)]
pub struct OpenStream {
    /// For whom.
    pub client: UsableClient,
}

/// Says that deliveries are done.
#[derive(Clone, Debug)]
pub struct Ack {
    /// Which.
    pub deliveries: Deliveries,
}

/// Gives deliveries back for another attempt.
#[derive(Clone, Debug)]
pub struct Nack {
    /// Which.
    pub deliveries: Deliveries,
    /// When they are due again; `None`: after the backoff.
    pub delay: Option<Duration>,
    /// Why, for the dead letter.
    pub reason: Option<String>,
}

/// Keeps deliveries for longer.
#[derive(Clone, Debug)]
pub struct Extend {
    /// Which.
    pub deliveries: Deliveries,
    /// How long from now.
    pub by: Duration,
}

/// Makes deliveries dead letters.
#[derive(Clone, Debug)]
pub struct Reject {
    /// Which.
    pub deliveries: Deliveries,
    /// Why, for the dead letter.
    pub reason: Option<String>,
}

impl Intake {
    /// Hands out what there is for a client, or waits for something.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    pub async fn poll(&self, admitted: Admitted<Poll>) -> Result<Answer, ReceiveError> {
        let (poll, caller) = admitted.into_parts();
        let client = poll.client.id();
        let entered = self.waiting_polls.enter(caller.tenant(), client, MOST_POLLS);
        let _waiting = entered.ok_or(ReceiveError::TooManyPolls(MOST_POLLS))?;
        let receiver = self.receiver(&caller, &poll.client);
        self.groups.adopt(&receiver, client).await?;
        Ok(self.dispatcher.poll(&receiver, client, poll.most, poll.timeout).await?)
    }

    /// Opens a client's stream; one that it has open ends.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    pub async fn stream(&self, admitted: Admitted<OpenStream>) -> Result<ClientStream, ReceiveError> {
        let (open, caller) = admitted.into_parts();
        let receiver = self.receiver(&caller, &open.client);
        self.groups.adopt(&receiver, open.client.id()).await?;
        Ok(self.dispatcher.stream(&receiver, open.client.id())?)
    }

    /// Finishes deliveries; one outcome each, in their order.
    pub async fn ack(&self, admitted: Admitted<Ack>) -> Vec<SettleOutcome> {
        let (ack, _) = admitted.into_parts();
        self.dispatcher.ack(&ack.deliveries).await
    }

    /// Gives deliveries back for another attempt; one outcome each, in their order.
    pub async fn nack(&self, admitted: Admitted<Nack>) -> Vec<SettleOutcome> {
        let (nack, _) = admitted.into_parts();
        self.dispatcher.nack(&nack.deliveries, nack.delay, nack.reason.as_deref()).await
    }

    /// Locks deliveries anew; one outcome each, in their order.
    pub async fn extend(&self, admitted: Admitted<Extend>) -> Vec<SettleOutcome> {
        let backlog = admitted.limits().backlog;
        let (extend, _) = admitted.into_parts();
        self.dispatcher.extend(&extend.deliveries, extend.by, backlog).await
    }

    /// Makes deliveries dead letters, which are stored when this returns; one outcome each, in their order.
    pub async fn reject(&self, admitted: Admitted<Reject>) -> Vec<SettleOutcome> {
        let (reject, _) = admitted.into_parts();
        self.dispatcher.reject(&reject.deliveries, reject.reason.as_deref()).await
    }
}
