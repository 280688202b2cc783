//! What each admin route takes and answers.

use mesh_server::{
    ErrorCode as E,
    openapi::{
        Described, closed, component, count, in_path, list, object, of_range, one_of, query, with_optional,
    },
};
use serde_json::{Value, json};

use crate::{Needs, Route, topic_settings, topics::PARTITIONS};

/// What every route behind the token can answer.
const GUARDED: &[E] =
    &[E::InvalidArgument, E::Unauthenticated, E::Forbidden, E::HeadTooLarge, E::AdminLocked, E::NotReady];

/// What the log and the stores can answer.
const STORES: &[E] =
    &[E::TooLarge, E::StorageUnavailable, E::MetaUnavailable, E::LedgerUnavailable, E::StorageFull];

/// The operation of a route.
///
/// # Panics
/// When the table has a line that is not described; a test walks the table.
pub(super) fn describe(route: &Route) -> Described {
    match (route.method, route.path) {
        ("GET", "/admin/health") => {
            new(route, "health", &[E::InvalidArgument]).json(200, "How it is.", &component("Health"))
        }
        ("GET", "/admin/ready") => new(route, "ready", &[E::InvalidArgument, E::NotReady]).json(
            200,
            "Traffic is served.",
            &object([("status", one_of(&["READY"]))]),
        ),
        ("GET", "/metrics") => {
            let kinds = ["application/openmetrics-text", "text/plain"];
            new(route, "prometheus", &[]).answer_of(
                200,
                "The metrics, as `Accept` asks for them.",
                &kinds,
                &text(),
            )
        }
        ("GET", "/admin/metrics") => {
            new(route, "metrics", &[]).json(200, "The metrics.", &component("Metrics"))
        }
        ("GET", "/admin/subscriptions") => new(route, "subscriptions", &[]).parameters([topic(false)]).json(
            200,
            "The members.",
            &list(&component("Member")),
        ),
        ("GET", "/admin/clients") => new(route, "clients", &[E::MissingParameter])
            .parameters([topic(true)])
            .json(200, "The clients.", &list(&component("ClientOfTopic"))),
        ("POST", "/admin/client/reject") => reject(route),
        ("GET", "/admin/offsets") => new(route, "offsets", &[E::MissingParameter])
            .parameters([topic(true)])
            .json(200, "By `<group>#<partition>`: below it everything is done.", &component("Offsets")),
        ("GET", "/admin/dlq/browse") => {
            new(route, "browseDeadLetters", &[E::MissingParameter, E::MetaUnavailable])
                .parameters([topic(true), max()])
                .json(200, "The dead letters.", &list(&component("DeadLetter")))
        }
        ("POST", "/admin/dlq/replay") => letters(route, "replayDeadLetters", "replayed", "wouldReplay"),
        ("POST", "/admin/dlq/discard") => letters(route, "discardDeadLetters", "discarded", "wouldDiscard"),
        ("GET", "/admin/topics") => {
            new(route, "topics", &[]).json(200, "The topics.", &list(&component("TopicSummary")))
        }
        ("POST", "/admin/topics") => make_topic(route),
        ("GET", "/admin/topics/{topic}") => new(route, "topic", &[&[E::UnknownTopic], STORES].concat()).json(
            200,
            "The topic.",
            &component("TopicDetails"),
        ),
        ("DELETE", "/admin/topics/{topic}") => delete_topic(route),
        ("GET", "/admin/groups") => new(route, "groups", STORES).parameters([topic(false)]).json(
            200,
            "The groups.",
            &list(&component("Group")),
        ),
        ("DELETE", "/admin/groups/{topic}/{group}") => delete_group(route),
        ("POST", "/admin/groups/{topic}/{group}/seek") => seek(route),
        ("GET", "/admin/ratelimit") => new(route, "rateLimits", &[E::MetaUnavailable]).json(
            200,
            "The rates.",
            &list(&component("RateLimit")),
        ),
        ("PUT", "/admin/ratelimit") => put_rate(route, "putRateLimit"),
        ("POST", "/admin/ratelimit") => put_rate(route, "postRateLimit"),
        ("DELETE", "/admin/ratelimit") => {
            let removal =
                new(route, "removeRateLimit", &[E::MissingParameter, E::TooLarge, E::MetaUnavailable]);
            options(removal, vec![topic(true)]).json(
                200,
                "Whether it had one.",
                &object([
                    ("status", one_of(&["ok"])),
                    ("topic", component("Topic")),
                    ("removed", json!({"type": "boolean"})),
                ]),
            )
        }
        other => unreachable!("{other:?} is not described"),
    }
}

/// An operation with the parameters of its path, its credential and its errors.
fn new(route: &Route, id: &str, errors: &[E]) -> Described {
    let described = Described::new(id, "admin", route.summary);
    let names = ["topic", "group"].into_iter().filter(|name| route.path.contains(&format!("{{{name}}}")));
    let described = match names
        .map(|name| in_path(name, &component(if name == "topic" { "Topic" } else { "Name" })))
        .collect::<Vec<_>>()
    {
        none if none.is_empty() => described,
        names => described.parameters(names),
    };
    match route.needs {
        Needs::Nothing if route.path == "/admin/health" => {
            described.security(json!([{}, {"adminToken": ["viewer"]}])).errors(errors)
        }
        Needs::Nothing => described.security(json!([])).errors(errors),
        Needs::Metrics => described
            .security(json!([{"adminToken": ["viewer"]}, {"metricsToken": []}]))
            .errors(&[GUARDED, errors].concat()),
        Needs::Role(role) => {
            described.security(json!([{"adminToken": [role.as_str()]}])).errors(&[GUARDED, errors].concat())
        }
    }
}

fn put_rate(route: &Route, id: &str) -> Described {
    let errors = [E::MissingParameter, E::ReservedTopic, E::TooLarge, E::MetaUnavailable];
    new(route, id, &errors).body([("application/json", component("RateLimit"))]).json(
        200,
        "It holds.",
        &object([
            ("status", one_of(&["ok"])),
            ("topic", component("ClientTopic")),
            ("capacity", count()),
            ("rate", json!({"type": "number"})),
        ]),
    )
}

fn text() -> Value {
    json!({"type": "string"})
}

fn flag(name: &str, description: &str) -> Value {
    query(name, false, &json!({"type": "boolean", "default": false}), description)
}

fn topic(required: bool) -> Value {
    query("topic", required, &component("Topic"), if required { "The topic." } else { "Only this topic." })
}

fn tenant() -> Value {
    query("tenant", false, &component("Name"), "The tenant; the default one when left out.")
}

fn kind() -> Value {
    query(
        "kind",
        false,
        &one_of(&["lb", "bc"]),
        "Needed when a shared group and a client's are called the same.",
    )
}

fn max() -> Value {
    let range = json!({"type": "integer", "minimum": 1, "maximum": 1_000, "default": 100});
    query("max", false, &range, "Dead letters at most.")
}

/// Parameters that may stand in the query or in the body. What must be given may be given in either.
fn options(described: Described, mut parameters: Vec<Value>) -> Described {
    let mut body = with_optional([], []);
    for parameter in &mut parameters {
        let name = parameter["name"].as_str().unwrap_or_default().to_owned();
        body["properties"][name] = parameter["schema"].clone();
        if parameter["required"] == true {
            parameter["required"] = false.into();
            let said = parameter["description"].as_str().unwrap_or_default();
            parameter["description"] = format!("{said} Required, here or in the body.").into();
        }
    }
    described.parameters(parameters).optional_body(&closed(body))
}

fn reject(route: &Route) -> Described {
    let errors = [&[E::MissingParameter, E::UnknownClient], STORES].concat();
    options(
        new(route, "rejectClient", &errors),
        vec![query("clientId", true, &component("Name"), "The client."), tenant()],
    )
    .json(200, "It is out.", &object([("clientId", component("Name")), ("removed", count())]))
}

fn letters(route: &Route, id: &str, done: &str, would: &str) -> Described {
    let own =
        [E::MissingParameter, E::UnknownTopic, E::QuotaExceeded, E::GroupGone, E::StorageLow, E::Overloaded];
    let of = |name, schema: &Value| query(name, false, schema, "Only those of it.");
    options(
        new(route, id, &[&own, STORES].concat()),
        vec![
            topic(true),
            max(),
            of("tenant", &component("Name")),
            of("group", &component("Name")),
            of("id", &json!({"type": "string", "minLength": 1})),
            of("reason", &one_of(&["attempts_exhausted", "rejected"])),
            flag("dryRun", "Change nothing, say what would be."),
        ],
    )
    .json(
        200,
        "How many.",
        &with_optional(
            [("topic", component("Topic")), (done, count())],
            [
                ("dryRun", json!({"type": "boolean"})),
                (would, count()),
                ("groupGone", count()),
                ("bodyGone", count()),
                ("filtered", count()),
            ],
        ),
    )
}

fn make_topic(route: &Route) -> Described {
    let errors = [
        &[E::MissingParameter, E::ReservedTopic, E::UnknownTopic, E::TopicConflict, E::QuotaExceeded],
        STORES,
    ]
    .concat();
    let (partitions, range) = of_range(PARTITIONS);
    let [settings, own] = topic_settings::shown();
    let made = with_optional(
        [("topic", component("Topic")), ("partitions", count()), settings, own],
        [("added", count()), ("warning", text())],
    );
    let [retention, backlog, dedup] = topic_settings::asked();
    new(route, "makeTopic", &errors)
        .body([(
            "application/json",
            closed(with_optional(
                [("topic", component("ClientTopic"))],
                [(partitions.as_str(), range), retention, backlog, dedup],
            )),
        )])
        .json(200, "It was there, perhaps with fewer partitions or other settings.", &made)
        .json(201, "It was made.", &made)
}

fn delete_topic(route: &Route) -> Described {
    let own =
        [E::ReservedTopic, E::UnknownTopic, E::GroupsExist, E::GroupGone, E::GroupConflict, E::NotFound];
    options(
        new(route, "deleteTopic", &[&own, STORES].concat()),
        vec![
            flag("force", "Also when it has groups, which go with it."),
            flag("deadLetters", "With its dead letters."),
        ],
    )
    .json(
        200,
        "It is gone.",
        &object([
            ("topic", component("Topic")),
            ("deleted", json!({"const": true})),
            ("groups", count()),
            ("deadLetters", count()),
        ]),
    )
}

fn group_errors() -> Vec<E> {
    let own = [E::NotFound, E::ReservedTopic, E::UnknownTopic, E::GroupConflict, E::QuotaExceeded];
    [&own, STORES].concat()
}

fn delete_group(route: &Route) -> Described {
    options(new(route, "deleteGroup", &group_errors()), vec![tenant(), kind()]).json(
        200,
        "It is gone.",
        &object([
            ("topic", component("Topic")),
            ("group", component("Name")),
            ("deleted", json!({"const": true})),
            ("members", count()),
        ]),
    )
}

fn seek(route: &Route) -> Described {
    let errors = [&[E::MissingParameter], &group_errors()[..]].concat();
    let to = query("to", true, &component("Start"), "Where the group goes on.");
    let sought = with_optional(
        [
            ("topic", component("Topic")),
            ("group", component("Name")),
            ("generation", count()),
            ("from", component("Offsets")),
            ("to", component("Offsets")),
        ],
        [("dryRun", json!({"type": "boolean"}))],
    );
    let asked = vec![tenant(), kind(), to, flag("dryRun", "Change nothing, say what would be.")];
    options(new(route, "seekGroup", &errors), asked).json(200, "Where it was and where it is.", &sought)
}
