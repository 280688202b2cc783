//! Gathers acknowledgements and sends many in one request.
//!
//! An acknowledgement that was taken is on its way, not done: when the process dies first, or the server cannot
//! be reached for longer than retries last, the delivery comes again. [`Acker::flush`] tells.

use std::time::Duration;

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

use crate::{Client, DeliveryId, Error, MOST_AT_ONCE, Settled, retry::bounded};

/// When gathered acknowledgements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckerSettings {
    /// As soon as there are so many; 1 to [`MOST_AT_ONCE`], others are taken as the nearest. 1,000.
    pub most: usize,
    /// At the latest so long after the first of them; well below the ack timeout. 20 ms.
    pub delay: Duration,
}

impl Default for AckerSettings {
    fn default() -> Self {
        Self { most: 1_000, delay: Duration::from_millis(20) }
    }
}

/// What became of the acknowledgements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckTotals {
    /// Took effect.
    pub acked: u64,
    /// Were not known to the server: done before, or not this client's any more.
    pub unknown: u64,
    /// Could not be sent or were refused; these deliveries come again.
    pub failed: u64,
}

#[derive(Debug)]
enum Message {
    Ack(DeliveryId),
    Flush(oneshot::Sender<Result<AckTotals, Error>>),
}

/// Takes acknowledgements; clones feed the same [`AckerWork`].
///
/// ```no_run
/// # use mesh_client::{Acker, AckerSettings, Client, Error};
/// # async fn consume(client: Client) -> Result<(), Error> {
/// let (acker, work) = Acker::new(client.clone(), AckerSettings::default());
/// let consumer = async move {
///     let mut stream = client.stream("printer");
///     for _ in 0..1_000 {
///         acker.ack(&stream.next().await?).await?;
///     }
///     acker.flush().await
/// };
/// // The consumer drops its acker at its end, and with it the work ends.
/// let (consumed, totals) = tokio::join!(consumer, work.run());
/// println!("{} acknowledged", totals.acked);
/// # consumed.map(drop)
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Acker(mpsc::Sender<Message>);

impl Acker {
    /// An acker and the work behind it, which the caller runs beside the consumer or in a task of its own.
    pub fn new(client: Client, settings: AckerSettings) -> (Self, AckerWork) {
        let most = settings.most.clamp(1, MOST_AT_ONCE);
        let (sender, inbox) = mpsc::channel(most);
        let work = AckerWork {
            client,
            settings: AckerSettings { most, ..settings },
            inbox,
            batch: Vec::new(),
            totals: AckTotals::default(),
            failure: None,
        };
        (Self(sender), work)
    }

    /// Takes one acknowledgement. Waits while as many as make a batch are not taken up yet.
    ///
    /// # Errors
    /// [`Error::AckerStopped`] when the work does not run any more; the delivery comes again.
    pub async fn ack(&self, delivery: impl Into<DeliveryId>) -> Result<(), Error> {
        self.0.send(Message::Ack(delivery.into())).await.map_err(|_| Error::AckerStopped)
    }

    /// Sends what was taken before and waits for the answer; gives the totals since the start.
    ///
    /// # Errors
    /// The first failure since the last flush: some deliveries come again. [`Error::AckerStopped`] when the work
    /// does not run any more.
    pub async fn flush(&self) -> Result<AckTotals, Error> {
        let (reply, answer) = oneshot::channel();
        self.0.send(Message::Flush(reply)).await.map_err(|_| Error::AckerStopped)?;
        answer.await.map_err(|_| Error::AckerStopped)?
    }
}

/// The sending side of [`Acker`]; it does nothing until it is run.
#[derive(Debug)]
pub struct AckerWork {
    client: Client,
    settings: AckerSettings,
    inbox: mpsc::Receiver<Message>,
    batch: Vec<DeliveryId>,
    totals: AckTotals,
    /// The first one that no flush has told of.
    failure: Option<Error>,
}

impl AckerWork {
    /// Sends until every [`Acker`] is dropped and all that they took is sent. A failure does not end it; the
    /// batch that failed is counted. Dropping the future loses what is not sent.
    pub async fn run(mut self) -> AckTotals {
        while let Some(first) = self.inbox.recv().await {
            match first {
                Message::Ack(id) => {
                    self.batch.push(id);
                    let flush = self.gather().await;
                    self.send().await;
                    self.tell(flush);
                }
                Message::Flush(reply) => self.tell(Some(reply)),
            }
        }
        self.totals
    }

    /// Fills the batch until it is full or due; a flush cuts that short and is given.
    async fn gather(&mut self) -> Option<oneshot::Sender<Result<AckTotals, Error>>> {
        let due = Instant::now() + bounded(self.settings.delay);
        while self.batch.len() < self.settings.most {
            match timeout_at(due, self.inbox.recv()).await {
                Ok(Some(Message::Ack(id))) => self.batch.push(id),
                Ok(Some(Message::Flush(reply))) => return Some(reply),
                Ok(None) | Err(_) => break,
            }
        }
        None
    }

    async fn send(&mut self) {
        let sent = self.client.ack_many(&self.batch).await;
        match sent {
            Ok(outcomes) => {
                for outcome in outcomes {
                    match outcome {
                        Settled::Done => self.totals.acked += 1,
                        Settled::Unknown => self.totals.unknown += 1,
                        Settled::Failed(code) => {
                            self.totals.failed += 1;
                            self.failure.get_or_insert_with(|| {
                                Error::Answer(format!("an acknowledgement was refused: {code}"))
                            });
                        }
                    }
                }
            }
            Err(error) => {
                self.totals.failed += u64::try_from(self.batch.len()).unwrap_or(u64::MAX);
                self.failure.get_or_insert(error);
            }
        }
        self.batch.clear();
    }

    fn tell(&mut self, flush: Option<oneshot::Sender<Result<AckTotals, Error>>>) {
        if let Some(reply) = flush {
            let answer = self.failure.take().map_or(Ok(self.totals), Err);
            // Who asked may be gone: its failure stays for the next one.
            if let Err(Err(error)) = reply.send(answer) {
                self.failure = Some(error);
            }
        }
    }
}
