//! The events of the audit topic on their way into the log: a bounded queue, and the task that empties it.
//!
//! The mesh itself publishes them, past the gate. When the queue is full an event is refused, and the gate counts it;
//! what the log does not take is counted and told. Requests wait for neither.

use std::{sync::Arc, time::Duration};

use mesh_base::{Counter, Signals, Stop};
use mesh_frame::{Event, TopicName};
use mesh_gate::{AuditPublisher, SinkFailed};
use mesh_storage::{AppendItem, Items, Storage};
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// How many events may wait.
const WAITING: usize = 10_000;
/// How many are stored at once.
const AT_ONCE: usize = 256;
/// How long the log has for that.
const PATIENCE: Duration = Duration::from_secs(10);

/// The queue.
#[derive(Debug)]
pub(super) struct AuditEvents {
    topic: TopicName,
    queue: mpsc::Sender<Event>,
    waiting: Mutex<Option<mpsc::Receiver<Event>>>,
    lost: Counter,
}

impl AuditEvents {
    pub(super) fn new(topic: TopicName, signals: &Signals) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        let lost =
            signals.counter("audit_events_lost", "Events of the audit topic that the log did not take");
        Self { topic, queue, waiting: Mutex::new(Some(waiting)), lost }
    }

    /// Stores what is queued until `stop`, and what is left then.
    pub(super) async fn store(self: Arc<Self>, storage: Storage, stop: Stop) {
        let Some(mut waiting) = self.waiting.lock().take() else { return };
        let mut events = Vec::with_capacity(AT_ONCE);
        loop {
            let is_last = tokio::select! {
                count = waiting.recv_many(&mut events, AT_ONCE) => count == 0,
                () = stop.wait() => {
                    waiting.close();
                    waiting.recv_many(&mut events, WAITING).await == 0
                }
            };
            if is_last {
                return;
            }
            let count = events.len();
            if let Err(error) = self.append(&storage, events.drain(..)).await {
                self.lost.inc_by(count as u64);
                tracing::error!(topic = %self.topic, count, error, "audit events are lost");
            }
        }
    }

    async fn append(&self, storage: &Storage, events: impl Iterator<Item = Event>) -> Result<(), String> {
        let topic = storage.ensure_topic(&self.topic, true, None).await.map_err(|error| error.to_string())?;
        let partition = topic.next_partition();
        let items: Items = events.map(|event| AppendItem { partition: partition.clone(), event }).collect();
        let appended = tokio::time::timeout(PATIENCE, storage.appended(storage.append(items))).await;
        let appended = appended.map_err(|_elapsed| "the log did not answer in time".to_owned())?;
        appended.map(drop).map_err(|error| error.chain())
    }
}

impl AuditPublisher for AuditEvents {
    fn publish(&self, event: Event) -> Result<(), SinkFailed> {
        self.queue
            .try_send(event)
            .map_err(|_| SinkFailed("the queue of audit events is full, or closed".to_owned()))
    }
}
