//! What each traffic route takes and answers.

use mesh_delivery::{DELAY_MS, EXTEND_MS};
use mesh_server::{
    ErrorCode as E,
    openapi::{Described, closed, component, number, of_range, one_of, query, with_optional},
};
use serde_json::{Value, json};

use crate::http::{Operation, Route};

/// What every route that asks the gate can answer.
const ALWAYS: &[E] = &[
    E::InvalidArgument,
    E::Unauthenticated,
    E::Forbidden,
    E::Timeout,
    E::HeadTooLarge,
    E::TooLarge,
    E::UnsupportedMediaType,
    E::RateLimited,
    E::QuotaExceeded,
    E::Internal,
    E::Overloaded,
    E::NotReady,
];

const PUBLISH: &[E] = &[
    E::InvalidEvent,
    E::ReservedAttribute,
    E::MissingParameter,
    E::ReservedTopic,
    E::UnknownTopic,
    E::StorageUnavailable,
    E::StorageLow,
    E::StorageFull,
];

const SUBSCRIBE: &[E] = &[
    E::MissingParameter,
    E::ReservedTopic,
    E::UnknownTopic,
    E::GroupConflict,
    E::ClientConflict,
    E::LedgerUnavailable,
    E::MetaUnavailable,
    E::StorageUnavailable,
    E::StorageFull,
];

const UNSUBSCRIBE: &[E] = &[
    E::MissingParameter,
    E::ReservedTopic,
    E::UnknownClient,
    E::LedgerUnavailable,
    E::MetaUnavailable,
    E::StorageFull,
];

const RECEIVE: &[E] = &[
    E::MissingParameter,
    E::UnknownClient,
    E::SubscriptionExpired,
    E::LedgerUnavailable,
    E::MetaUnavailable,
    E::StorageFull,
];

const SETTLE: &[E] = &[E::MissingParameter, E::UnknownDelivery, E::LedgerUnavailable, E::StorageFull];

/// The operation of a route.
pub(super) fn describe(route: &Route) -> Described {
    let (id, own) = match route.operation {
        Operation::Publish => ("publish", PUBLISH),
        Operation::PublishBatch => ("publishBatch", PUBLISH),
        Operation::Subscribe => ("subscribe", SUBSCRIBE),
        Operation::Unsubscribe => ("unsubscribe", UNSUBSCRIBE),
        Operation::Poll => ("poll", RECEIVE),
        Operation::Stream => ("stream", RECEIVE),
        Operation::Ack => ("ack", SETTLE),
        Operation::Nack => ("nack", SETTLE),
        Operation::Extend => ("extend", SETTLE),
        Operation::Reject => ("reject", SETTLE),
        Operation::Ticket => ("ticket", &[][..]),
        Operation::Document => ("document", &[][..]),
    };
    let described = Described::new(id, "traffic", route.summary);
    let described = if route.action.is_none() {
        described.security(json!([])).errors(&[E::InvalidArgument])
    } else {
        described.security(json!([{"bearer": []}, {}])).errors(&[ALWAYS, own].concat())
    };
    match route.operation {
        Operation::Publish => publish(described),
        Operation::PublishBatch => publish_batch(described),
        Operation::Subscribe => subscribe(described),
        Operation::Unsubscribe => unsubscribe(described),
        Operation::Poll => poll(described),
        Operation::Stream => stream(described),
        Operation::Ack => settle(described, "acked", None, &[]),
        Operation::Nack => settle(described, "nacked", Some(of_range(DELAY_MS)), &["reason"]),
        Operation::Extend => settle(described, "extended", Some(of_range(EXTEND_MS)), &[]),
        Operation::Reject => settle(described, "rejected", None, &["reason"]),
        Operation::Ticket => described.optional_body(&component("TicketRequest")).json(
            200,
            "The ticket.",
            &component("Ticket"),
        ),
        Operation::Document => described.json(200, "This document.", &json!({"type": "object"})),
    }
}

fn topic() -> Value {
    query("topic", true, &component("ClientTopic"), "The topic.")
}

fn client() -> Value {
    query("clientId", true, &component("Name"), "The client.")
}

/// A header of an event in binary mode.
fn attribute(name: &str) -> Value {
    json!({
        "name": format!("ce-{name}"),
        "in": "header",
        "required": false,
        "schema": {"type": "string"},
        "description": "The attribute in binary mode, percent-encoded; required there. Others come as `ce-` headers too.",
    })
}

fn publish(described: Described) -> Described {
    let binary =
        json!({"description": "Binary mode, with `ce-` headers: the data as it is, of any media type."});
    described
        .parameters([topic()])
        .parameters(["specversion", "id", "source", "type"].map(attribute))
        .body([
            ("application/cloudevents+json", component("Event")),
            ("application/json", component("Event")),
            ("*/*", binary),
        ])
        .json(202, "The event is stored.", &component("Published"))
}

fn publish_batch(described: Described) -> Described {
    described
        .parameters([topic()])
        .body([
            ("application/cloudevents-batch+json", component("Events")),
            ("application/json", component("Events")),
        ])
        .json(202, "All events are stored.", &component("PublishedBatch"))
}

fn subscribe(described: Described) -> Described {
    described.body([("application/json", component("Subscribe"))]).json(
        200,
        "The client is a member; what is stored from now on is not missed.",
        &component("Subscribed"),
    )
}

fn unsubscribe(described: Described) -> Described {
    described.body([("application/json", component("Unsubscribe"))]).json(
        200,
        "Whether a membership was removed.",
        &component("Unsubscribed"),
    )
}

fn poll(described: Described) -> Described {
    let with_default = |least, most, default: u64| {
        let mut schema = number(least, most);
        schema["default"] = default.into();
        schema
    };
    described
        .parameters([
            client(),
            query("max", false, &with_default(1, 1_000, 100), "Deliveries at most; larger is clamped."),
            query(
                "timeoutMs",
                false,
                &with_default(0, 60_000, 1_000),
                "How long to wait; larger is clamped.",
            ),
        ])
        .json(200, "Deliveries; none at the end of the time.", &component("Deliveries"))
        .header(
            200,
            "EM-Stream-Open",
            "`true` while the client has a stream open, which its deliveries go to.",
        )
}

fn stream(described: Described) -> Described {
    let event = json!({
        "type": "string",
        "description": "Events with `id:` and one `data:` line, which is a Delivery; comments between them.",
        "contentMediaType": "application/json",
        "contentSchema": component("Delivery"),
    });
    let ticket = query(
        "ticket",
        false,
        &json!({"type": "string", "minLength": 1}),
        "A ticket, in place of the credential.",
    );
    described.parameters([client(), ticket]).answer(
        200,
        "Deliveries until either side ends it.",
        "text/event-stream",
        &event,
    )
}

fn settle(described: Described, done: &str, how_long: Option<(String, Value)>, texts: &[&str]) -> Described {
    let ids = json!({"oneOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "maxItems": 10_000},
    ]});
    let mut body = with_optional([("deliveryId", ids)], []);
    for text in texts {
        body["properties"][*text] = json!({"type": "string"});
    }
    if let Some((name, schema)) = how_long {
        if name == EXTEND_MS.name {
            body["required"] = json!(["deliveryId", name]);
        }
        body["properties"][name] = schema;
    }
    let one = with_optional([("status", one_of(&[done]))], []);
    let of_many = with_optional(
        [("deliveryId", json!({"type": "string"}))],
        [
            ("status", one_of(&[done])),
            (
                "error",
                one_of(
                    &[E::UnknownDelivery, E::Forbidden, E::LedgerUnavailable, E::StorageFull].map(E::as_str),
                ),
            ),
        ],
    );
    let many = with_optional([("results", json!({"type": "array", "items": of_many}))], []);
    described.body([("application/json", closed(body))]).json(
        200,
        "The delivery, or the outcome of each of an array.",
        &json!({"oneOf": [one, many]}),
    )
}
