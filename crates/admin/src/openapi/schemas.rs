//! The schemas of the admin port.

use mesh_gate::TopicRate;
use mesh_server::openapi::{closed, component, count, digits, list, object, one_of, with_optional};
use serde_json::{Map, Value, json};

use crate::topic_settings;

/// Every schema by its name.
pub(super) fn all() -> Map<String, Value> {
    let [settings, own] = topic_settings::shown();
    let schemas = [
        ("Health", health()),
        ("Metrics", metrics()),
        (
            "Member",
            object([
                ("subscriptionId", text()),
                ("clientId", component("Name")),
                ("topic", component("Topic")),
                ("mode", text()),
                ("group", component("Name")),
                ("tenant", component("Name")),
                ("instance", text()),
            ]),
        ),
        (
            "ClientOfTopic",
            object([("clientId", component("Name")), ("tenant", component("Name")), ("pending", count())]),
        ),
        ("DeadLetter", dead_letter()),
        (
            "TopicSummary",
            object([
                ("topic", component("Topic")),
                ("partitions", count()),
                ("groups", count()),
                ("deadLetterTopic", json!({"type": "boolean"})),
                settings,
                own,
            ]),
        ),
        (
            "RateLimit",
            closed(object([
                ("topic", component("ClientTopic")),
                (
                    "capacity",
                    json!({"type": "integer", "minimum": 1, "maximum": TopicRate::LARGEST_CAPACITY}),
                ),
                (
                    "rate",
                    json!({"type": "number", "minimum": TopicRate::SLOWEST, "maximum": TopicRate::FASTEST}),
                ),
            ])),
        ),
        ("TopicDetails", topic_details()),
        ("Group", group()),
        ("PartitionOfGroup", partition_of_group()),
    ];
    schemas.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn text() -> Value {
    json!({"type": "string"})
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn kind() -> Value {
    one_of(&["lb", "bc"])
}

fn health() -> Value {
    let state = ["UP", "DEGRADED", "DOWN"];
    let component = with_optional([("status", one_of(&state))], [("reason", text()), ("sinceMs", count())]);
    with_optional(
        [
            ("status", one_of(&["STARTING", "UP", "DEGRADED", "DOWN"])),
            (
                "components",
                json!({
                    "description": "With the token each with its state, without it the names.",
                    "oneOf": [{"type": "object", "additionalProperties": component}, list(&text())],
                }),
            ),
        ],
        [("topology", text()), ("gate", text()), ("pendingDeliveries", count())],
    )
}

fn metrics() -> Value {
    object(
        [
            "publishCount",
            "publishFailed",
            "rateLimited",
            "eventsDispatched",
            "ackCount",
            "redeliveries",
            "dlqCount",
            "pendingDeliveries",
            "offsetWriteFailures",
        ]
        .map(|name| (name, count())),
    )
}

fn dead_letter() -> Value {
    object([
        ("tenant", component("Name")),
        ("topic", component("Topic")),
        ("group", component("Name")),
        ("partition", count()),
        ("offset", digits()),
        ("reason", one_of(&["attempts_exhausted", "rejected"])),
        ("attempts", count()),
        (
            "lastError",
            json!({
                "type": "string",
                "maxLength": 256,
                "description": "Why the last attempt failed: what the client said, or `ack deadline passed`, \
                                `stream closed`, `client left`, `nacked`, `rejected`; empty where an older release \
                                recorded it.",
            }),
        ),
        ("firstHandOut", time()),
        ("lastHandOut", time()),
        ("deadAt", time()),
        ("firstMs", count()),
        ("lastMs", count()),
        ("deadAtMs", count()),
        ("eventId", text()),
        ("source", text()),
        ("event", json!({"anyOf": [component("Event"), {"type": "null"}]})),
    ])
}

fn topic_details() -> Value {
    let [settings, own] = topic_settings::shown();
    object([
        settings,
        own,
        ("topic", component("Topic")),
        ("incarnation", digits()),
        (
            "partitions",
            list(&object([
                ("partition", count()),
                ("start", digits()),
                ("end", digits()),
                ("bytes", count()),
            ])),
        ),
        (
            "groups",
            list(&object([("tenant", component("Name")), ("group", component("Name")), ("kind", kind())])),
        ),
        ("deadLetters", count()),
    ])
}

fn group() -> Value {
    let settings = object([
        ("ack", one_of(&["explicit", "auto"])),
        ("ackTimeoutMs", count()),
        ("maxAttempts", count()),
        ("backoffMs", count()),
        ("maxBackoffMs", count()),
        ("filters", list(&component("Filter"))),
    ]);
    let member = object([
        ("clientId", component("Name")),
        ("subscriptionId", text()),
        ("maxInFlight", count()),
        ("inFlight", count()),
    ]);
    with_optional(
        [
            ("topic", component("Topic")),
            ("tenant", component("Name")),
            ("group", component("Name")),
            ("kind", kind()),
            ("mode", text()),
            ("generation", count()),
            ("lag", count()),
            ("outstanding", count()),
            ("pending", count()),
            ("settings", settings),
            ("members", list(&member)),
            ("partitions", list(&component("PartitionOfGroup"))),
        ],
        [("lagMatching", count())],
    )
}

fn partition_of_group() -> Value {
    with_optional(
        [
            ("partition", count()),
            ("floor", digits()),
            ("nextToRead", digits()),
            ("end", digits()),
            ("lag", count()),
            ("outstanding", count()),
            ("pending", count()),
        ],
        [
            ("oldestMs", count()),
            ("lagMs", count()),
            ("lagMatching", count()),
            (
                "gap",
                object([
                    ("from", digits()),
                    ("to", digits()),
                    ("reason", json!({"enum": ["gone", "dropped_backlog"]})),
                ]),
            ),
            ("heldByKey", object([("hash", text()), ("outstanding", count())])),
        ],
    )
}
