//! What a client receives: by poll, by stream.

use std::time::Duration;

use mesh_delivery::{Answer, ClientStream, PollError, SubscribeError};
use mesh_frame::{ClientId, Event};
use mesh_gate::{Action, Admitted, Asks, Caller, Cost, Resource};
use thiserror::Error;

use super::{Intake, access::UsableClient, entry::Incoming};

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

impl Asks for Poll {
    fn action(&self) -> Action {
        Action::Subscribe
    }

    fn resource(&self) -> Resource<'_> {
        self.client.resource()
    }

    fn cost(&self) -> Option<Cost> {
        None
    }
}

impl Incoming for Poll {
    fn events(&self) -> &[Event] {
        &[]
    }
}

impl Asks for OpenStream {
    fn action(&self) -> Action {
        Action::Subscribe
    }

    fn resource(&self) -> Resource<'_> {
        self.client.resource()
    }

    fn cost(&self) -> Option<Cost> {
        None
    }
}

impl Incoming for OpenStream {
    fn events(&self) -> &[Event] {
        &[]
    }
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

    /// Whether the caller's client has a stream open, which takes what polls would get.
    pub fn has_stream(&self, caller: &Caller, client: &ClientId) -> bool {
        self.dispatcher.has_stream(caller.tenant(), client)
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
}
