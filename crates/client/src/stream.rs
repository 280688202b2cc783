//! Deliveries as the server pushes them, over a connection that is made again when it is lost.
//!
//! What was received and not settled comes again after the connection was lost, so nothing is missed and some
//! deliveries repeat, with new ids.

use std::{future::Future, pin::Pin, time::Duration};

use futures_util::{StreamExt, stream::BoxStream};
use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::{
    Delivery, Error, RetryPolicy,
    retry::{bounded, chance},
    sse::{Lines, Said},
    transport::{Call, Transport, encode},
};

/// The largest event of a stream that is held.
const LARGEST: usize = 64 << 20;
/// What the server says last to a stream that another one took the place of.
const TAKEN_OVER: &str = "another stream of this client took over";

type Opening = Pin<Box<dyn Future<Output = Result<Response<Incoming>, Error>> + Send>>;

/// The deliveries of one client.
///
/// A client has one stream at a time: a second one ends the first with [`Error::Replaced`].
pub struct DeliveryStream {
    transport: Transport,
    retry: RetryPolicy,
    silence: Duration,
    call: Call,
    state: State,
    lines: Lines,
    last_comment: String,
    failures: u32,
    /// When the trouble began that is not over yet.
    troubled_since: Option<Instant>,
}

enum State {
    Closed { open_at: Option<Instant> },
    Opening(Opening),
    Open { body: Incoming, opened: Instant, heard: Instant },
}

impl std::fmt::Debug for DeliveryStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_open = matches!(self.state, State::Open { .. });
        f.debug_struct("DeliveryStream").field("path", &self.call.path).field("is_open", &is_open).finish()
    }
}

impl DeliveryStream {
    pub(crate) fn new(transport: Transport, retry: RetryPolicy, silence: Duration, client_id: &str) -> Self {
        Self {
            transport,
            retry,
            silence,
            call: Call::get(format!("/events/stream?clientId={}", encode(client_id))),
            state: State::Closed { open_at: None },
            lines: Lines::default(),
            last_comment: String::new(),
            failures: 0,
            troubled_since: None,
        }
    }

    /// The next delivery; waits for as long as there is none. Dropping the wait loses nothing.
    ///
    /// A lost connection is made again with growing waits.
    ///
    /// # Errors
    /// What the server refuses for good: 404 `unknown_client`, 410 `subscription_expired`, 401, 403. The last
    /// failure of the connection, when there was none for [`RetryPolicy::deadline`]. [`Error::Replaced`].
    /// [`Error::Answer`] for a delivery that cannot be read, which is skipped and comes again. After any of
    /// them the next call goes on, with a new connection where there is none.
    pub async fn next(&mut self) -> Result<Delivery, Error> {
        loop {
            match &mut self.state {
                State::Closed { open_at } => {
                    if let Some(open_at) = *open_at {
                        sleep_until(open_at).await;
                    }
                    self.open();
                }
                State::Opening(opening) => match opening.await {
                    Ok(answer) => {
                        self.lines = Lines::default();
                        self.last_comment.clear();
                        let now = Instant::now();
                        self.state = State::Open { body: answer.into_body(), opened: now, heard: now };
                    }
                    Err(error) => self.failed(error)?,
                },
                State::Open { body, heard, .. } => {
                    match self.lines.next() {
                        Some(Said::Data(data)) => {
                            self.failures = 0;
                            self.troubled_since = None;
                            return Delivery::parse(&data);
                        }
                        Some(Said::Comment(comment)) => {
                            self.last_comment = comment;
                            continue;
                        }
                        None if self.lines.len() > LARGEST => {
                            self.failed(Error::Answer("an event of the stream is too large".to_owned()))?;
                            continue;
                        }
                        None => {}
                    }
                    let frame = timeout_at(*heard + bounded(self.silence), body.frame()).await;
                    match frame {
                        Ok(Some(Ok(frame))) => {
                            *heard = Instant::now();
                            if let Some(bytes) = frame.data_ref() {
                                self.lines.push(bytes);
                            }
                        }
                        Ok(Some(Err(error))) => self.failed(Error::Lost(error.into()))?,
                        Ok(None) if self.last_comment == TAKEN_OVER => self.failed(Error::Replaced)?,
                        Ok(None) => {
                            let reason = format!("the server ended the stream: {}", self.last_comment);
                            self.failed(Error::Lost(reason.into()))?;
                        }
                        Err(_) => self.failed(Error::Timeout(self.silence))?,
                    }
                }
            }
        }
    }

    /// The same as a stream, for the combinators of `futures`. It ends after the first error that another try
    /// does not help, [`Error::Answer`] for a single delivery excepted; other errors stand among the deliveries.
    pub fn into_stream(self) -> BoxStream<'static, Result<Delivery, Error>> {
        let next = |stream: Option<Self>| async move {
            let mut stream = stream?;
            let next = stream.next().await;
            let goes_on = next
                .as_ref()
                .err()
                .is_none_or(|error| error.is_transient() || matches!(error, Error::Answer(_)));
            Some((next, goes_on.then_some(stream)))
        };
        futures_util::stream::unfold(Some(self), next).boxed()
    }

    fn open(&mut self) {
        let (transport, call) = (self.transport.clone(), self.call.clone());
        self.state = State::Opening(Box::pin(async move {
            let most = transport.request_timeout;
            timeout(most, transport.open(&call, "text/event-stream"))
                .await
                .map_err(|_| Error::Timeout(most))?
        }));
    }

    /// Closes, and says when to open again; gives the error back when the caller should know.
    fn failed(&mut self, error: Error) -> Result<(), Error> {
        if !error.is_transient() {
            self.state = State::Closed { open_at: None };
            self.failures = 0;
            self.troubled_since = None;
            return Err(error);
        }
        let now = Instant::now();
        // A connection that lasted ends the trouble before it, even when there was nothing to deliver.
        let lasted = matches!(&self.state, State::Open { opened, .. }
            if now.duration_since(*opened) >= self.retry.longest_delay);
        if lasted {
            self.failures = 0;
            self.troubled_since = None;
        }
        self.failures = self.failures.saturating_add(1);
        let since = *self.troubled_since.get_or_insert(now);
        let open_at = now + self.retry.delay(self.failures, error.retry_after(), chance());
        self.state = State::Closed { open_at: Some(open_at) };
        if self.retry.most_retries == 0 || open_at.duration_since(since) > self.retry.deadline {
            self.troubled_since = None;
            return Err(error);
        }
        Ok(())
    }
}
