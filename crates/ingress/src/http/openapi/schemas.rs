//! The schemas of the traffic port: events, deliveries, subscriptions.

use mesh_delivery::{
    Mode,
    settings::{ACK_TIMEOUT_MS, BACKOFF_MS, MAX_ATTEMPTS, MAX_BACKOFF_MS, MAX_IN_FLIGHT},
};
use mesh_frame::TopicName;
use mesh_server::openapi::{closed, component, count, digits, list, object, of_range, one_of, with_optional};
use serde_json::{Map, Value, json};

/// Every schema by its name.
pub(super) fn all() -> Map<String, Value> {
    let name = |longest: usize| json!({"type": "string", "minLength": 1, "maxLength": longest});
    let schemas = [
        ("Name", name(255)),
        ("Topic", name(255)),
        ("ClientTopic", name(TopicName::LONGEST_CLIENT_NAME)),
        ("Event", event()),
        ("Events", list(&component("Event"))),
        ("Filter", filter()),
        ("Start", start()),
        ("Offsets", json!({"type": "object", "additionalProperties": digits()})),
        ("Subscribe", closed(subscribe())),
        ("Unsubscribe", closed(unsubscribe())),
        ("Delivery", delivery()),
        ("Deliveries", list(&component("Delivery"))),
        (
            "Published",
            with_optional(
                [
                    ("status", one_of(&["accepted"])),
                    ("topic", component("Topic")),
                    ("partition", count()),
                    ("offset", digits()),
                ],
                [("duplicate", json!({"const": true}))],
            ),
        ),
        (
            "PublishedBatch",
            with_optional([("status", one_of(&["accepted"])), ("count", count())], [("duplicates", count())]),
        ),
        (
            "Subscribed",
            object([
                ("subscriptionId", json!({"type": "string"})),
                ("instanceUrl", json!({"type": "string"})),
                ("group", component("Name")),
                ("mode", one_of(&Mode::ALL.map(Mode::as_str))),
                (
                    "created",
                    json!({"type": "boolean", "description": "Whether the group is new; `from` did nothing where it is not."}),
                ),
                ("start", component("Offsets")),
            ]),
        ),
        ("TicketRequest", closed(with_optional([], [("clientId", component("Name"))]))),
        (
            "Ticket",
            object([
                ("ticket", json!({"type": "string"})),
                ("expiresAt", json!({"type": "string", "format": "date-time"})),
            ]),
        ),
        ("Unsubscribed", object([("removed", json!({"type": "boolean"}))])),
    ];
    schemas.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn event() -> Value {
    let text = || json!({"type": "string", "minLength": 1});
    let mut event = with_optional(
        [
            ("specversion", one_of(&["1.0"])),
            ("id", text()),
            ("source", json!({"type": "string", "format": "uri-reference", "minLength": 1})),
            ("type", text()),
        ],
        [
            ("subject", text()),
            ("time", json!({"type": "string", "format": "date-time"})),
            ("datacontenttype", text()),
            ("dataschema", json!({"type": "string", "format": "uri"})),
            ("partitionkey", text()),
            ("data", json!({"description": "Any JSON."})),
            ("data_base64", json!({"type": "string", "contentEncoding": "base64"})),
        ],
    );
    event["additionalProperties"] =
        json!({"description": "An extension.", "type": ["string", "integer", "boolean", "null"]});
    event
}

fn filter() -> Value {
    let attributes = json!({
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"type": "string", "minLength": 1},
    });
    let some = json!({"type": "array", "minItems": 1, "items": component("Filter")});
    json!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": false,
        "properties": {
            "exact": attributes, "prefix": attributes, "suffix": attributes,
            "all": some, "any": some, "not": component("Filter"),
        },
    })
}

fn start() -> Value {
    let at = json!({"oneOf": [digits(), count()]});
    json!({"anyOf": [
        one_of(&["latest", "earliest"]),
        {"type": "string", "format": "date-time"},
        at,
        closed(object([("offsets", json!({"type": "object", "additionalProperties": at}))])),
    ]})
}

fn subscribe() -> Value {
    let mut body = with_optional(
        [
            ("clientId", component("Name")),
            ("topic", component("ClientTopic")),
            ("mode", one_of(&Mode::ALL.map(Mode::as_str))),
        ],
        [
            ("group", component("Name")),
            ("filters", list(&component("Filter"))),
            ("from", component("Start")),
            ("ack", one_of(&["explicit", "auto"])),
        ],
    );
    for (name, schema) in
        [ACK_TIMEOUT_MS, MAX_ATTEMPTS, BACKOFF_MS, MAX_BACKOFF_MS, MAX_IN_FLIGHT].map(of_range)
    {
        body["properties"][name] = schema;
    }
    body
}

fn unsubscribe() -> Value {
    with_optional(
        [("clientId", component("Name"))],
        [
            ("topic", component("ClientTopic")),
            ("group", component("Name")),
            ("deleteGroup", json!({"type": "boolean", "default": false})),
        ],
    )
}

fn delivery() -> Value {
    let gap = object([
        ("from", digits()),
        ("to", digits()),
        ("reason", json!({"type": "string", "enum": ["gone", "dropped_backlog"]})),
    ]);
    with_optional(
        [
            ("deliveryId", json!({"type": "string"})),
            ("event", component("Event")),
            ("attempt", json!({"type": "integer", "minimum": 1})),
            ("topic", component("Topic")),
            ("group", component("Name")),
            ("partition", count()),
            ("offset", digits()),
            ("epoch", digits()),
            ("lockedUntil", json!({"type": "string", "format": "date-time"})),
        ],
        [("gap", gap)],
    )
}
