//! `EventAuditSink`: records as events, for a topic that others read.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use mesh_base::Clock;
use mesh_frame::{Event, EventBuilder, TopicName, format_timestamp};

use super::{AuditRecord, AuditSink, Interest, Outcome, SinkFailed, json};
use crate::Action;

/// The type of the events.
const EVENT_TYPE: &str = "eventmesh.audit";

/// Publishes the events of the audit topic. Called on the request's own task: it must not block; what has to wait
/// queues itself, bounded. It goes past the gate: the mesh itself publishes.
pub trait AuditPublisher: Send + Sync + std::fmt::Debug {
    /// Takes an event.
    ///
    /// # Errors
    /// When it is lost.
    fn publish(&self, event: Event) -> Result<(), SinkFailed>;
}

/// Makes an event of each record: type `eventmesh.audit`, the record as JSON data.
///
/// It makes none of a record about its own topic, nor of one about a poll, a stream or a settlement that was let
/// through: a client that reads the audit topic would otherwise make a new event by reading the last one, for ever.
#[derive(Debug)]
pub struct EventAuditSink {
    resource: String,
    source: String,
    interest: Interest,
    publisher: Arc<dyn AuditPublisher>,
    /// Makes ids of this process unlike those of others with the same source.
    prefix: String,
    made: AtomicU64,
}

impl EventAuditSink {
    /// Events with this `source` for the publisher, which publishes them to `topic`.
    pub fn new(
        topic: &TopicName,
        source: &str,
        interest: Interest,
        publisher: Arc<dyn AuditPublisher>,
        clock: Clock,
    ) -> Self {
        let prefix = format!("{:x}-{:x}", clock.now().0, std::process::id());
        let (resource, source, made) = (format!("topic:{topic}"), source.to_owned(), AtomicU64::new(0));
        Self { resource, source, interest, publisher, prefix, made }
    }

    fn is_own(&self, record: &AuditRecord<'_>) -> bool {
        let receives = matches!(record.operation, Some(Action::Subscribe | Action::Unsubscribe));
        let is_of_topic = record.resource.starts_with("topic:");
        record.resource == self.resource || (receives && !is_of_topic && record.outcome != Outcome::Denied)
    }
}

impl AuditSink for EventAuditSink {
    fn name(&self) -> &'static str {
        "event"
    }

    fn interest(&self) -> Interest {
        self.interest
    }

    fn record(&self, record: &AuditRecord<'_>) -> Result<(), SinkFailed> {
        if self.is_own(record) {
            return Ok(());
        }
        let mut data = vec![b'{'];
        data.append(&mut json::members(record));
        data.push(b'}');
        let data = String::from_utf8(data).expect("texts and their marks are UTF-8");
        let id = format!("{}-{}", self.prefix, self.made.fetch_add(1, Ordering::Relaxed));
        let event = EventBuilder::new(&id, &self.source, EVENT_TYPE)
            .attribute("time", &format_timestamp(record.at.0))
            .json(&data)
            .build()
            .map_err(|error| SinkFailed(error.to_string()))?;
        self.publisher.publish(event)
    }
}

#[cfg(test)]
mod tests {
    use mesh_base::UnixMillis;
    use parking_lot::Mutex;

    use super::*;
    use crate::{CredentialKind, Protocol};

    #[derive(Debug, Default)]
    struct Published(Mutex<Vec<Event>>);

    impl AuditPublisher for Published {
        fn publish(&self, event: Event) -> Result<(), SinkFailed> {
            let mut events = self.0.lock();
            if events.len() == 2 {
                return Err(SinkFailed("full".to_owned()));
            }
            events.push(event);
            Ok(())
        }
    }

    fn record(outcome: Outcome, operation: Action, resource: &str) -> AuditRecord<'_> {
        AuditRecord {
            at: UnixMillis(1_500),
            outcome,
            filter: None,
            reason: "",
            operation: Some(operation),
            resource,
            tenant: "t",
            principal: Some("p\n"),
            credential: CredentialKind::Token,
            remote: None,
            protocol: Protocol::Http,
            trace: None,
        }
    }

    #[test]
    fn records_are_events_but_never_those_about_reading_them() {
        let published = Arc::new(Published::default());
        let topic = TopicName::client("audit").expect("legal");
        let clock = Clock::starting_at(UnixMillis(0));
        let sink = EventAuditSink::new(&topic, "/mesh/1", Interest::Everything, published.clone(), clock);
        let own = [
            (Outcome::Denied, Action::Publish, "topic:audit"),
            (Outcome::Allowed, Action::Subscribe, "topic:audit"),
            (Outcome::Allowed, Action::Subscribe, "client:c1"),
            (Outcome::FailedOpen, Action::Subscribe, "client:c1"),
            (Outcome::Allowed, Action::Subscribe, "2 deliveries of topic:audit"),
        ];
        for (outcome, operation, resource) in own {
            sink.record(&record(outcome, operation, resource)).expect("left out");
        }
        assert_eq!(published.0.lock().len(), 0);
        sink.record(&record(Outcome::Allowed, Action::Publish, "topic:audit2")).expect("taken");
        sink.record(&record(Outcome::Denied, Action::Subscribe, "client:c1")).expect("taken");
        let lost = sink.record(&record(Outcome::Denied, Action::Publish, "topic:a"));
        assert_eq!(lost.expect_err("the queue is full").to_string(), "full");

        let events = published.0.lock();
        assert_ne!(events[0].id(), events[1].id());
        let attributes =
            [events[0].event_type(), events[0].source(), events[0].attribute("time").unwrap_or_default()];
        assert_eq!(attributes, ["eventmesh.audit", "/mesh/1", "1970-01-01T00:00:01.500Z"]);
        let data: serde_json::Value = serde_json::from_slice(&events[0].data()).expect("JSON");
        let expected = serde_json::json!({
            "at": "1970-01-01T00:00:01.500Z", "kind": "decision", "outcome": "allowed", "operation": "PUBLISH",
            "resource": "topic:audit2", "tenant": "t", "principal": "p\n", "credential": "token", "protocol": "http",
        });
        assert_eq!(data, expected);
    }
}
