//! The routes of the traffic port, as a table. Routing, the `Allow` header and the API document come from it.

use http::Method;
use mesh_gate::Action;

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Stores one event.
    Publish,
    /// Stores a batch of events.
    PublishBatch,
    /// Makes a client a member of a group.
    Subscribe,
    /// Ends memberships.
    Unsubscribe,
    /// Hands out deliveries.
    Poll,
    /// Pushes deliveries.
    Stream,
    /// Finishes deliveries.
    Ack,
    /// Gives deliveries back.
    Nack,
    /// Keeps deliveries for longer.
    Extend,
    /// Makes deliveries dead letters.
    Reject,
    /// Gives a ticket for a stream.
    Ticket,
    /// Shows the API document.
    Document,
}

impl Operation {
    /// The parameters of the query that its route knows.
    pub(super) fn query(self) -> &'static [&'static str] {
        ROUTES.iter().find(|route| route.operation == self).map_or(&[], |route| route.query)
    }

    /// What the gate is asked for; `None`: nothing.
    pub fn action(self) -> Option<Action> {
        ROUTES.iter().find(|route| route.operation == self).and_then(|route| route.action)
    }
}

/// One route.
#[derive(Clone, Debug)]
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, matched exactly.
    pub path: &'static str,
    /// What it does.
    pub operation: Operation,
    /// What the gate is asked for. `None`: the route is open, with no credential and no question.
    pub action: Option<Action>,
    /// The parameters of the query that it knows; another one is refused.
    pub query: &'static [&'static str],
    /// What it does, in a sentence for readers.
    pub summary: &'static str,
}

/// Every route.
pub const ROUTES: &[Route] = &[
    Route {
        method: Method::POST,
        path: "/events/publish",
        operation: Operation::Publish,
        action: Some(Action::Publish),
        query: &["topic"],
        summary: "Store one CloudEvent of the topic, structured or binary; durable before 202",
    },
    Route {
        method: Method::POST,
        path: "/events/publish-batch",
        operation: Operation::PublishBatch,
        action: Some(Action::Publish),
        query: &["topic"],
        summary: "Store a JSON array of CloudEvents of the topic, all of them or none",
    },
    Route {
        method: Method::POST,
        path: "/events/subscribe",
        operation: Operation::Subscribe,
        action: Some(Action::Subscribe),
        query: &[],
        summary: "Make a client a member of a group of the topic",
    },
    Route {
        method: Method::POST,
        path: "/events/unsubscribe",
        operation: Operation::Unsubscribe,
        action: Some(Action::Unsubscribe),
        query: &[],
        summary: "End memberships of a client",
    },
    Route {
        method: Method::GET,
        path: "/events/poll",
        operation: Operation::Poll,
        action: Some(Action::Subscribe),
        query: &["clientId", "max", "timeoutMs"],
        summary: "Receive deliveries, waiting for the first",
    },
    Route {
        method: Method::GET,
        path: "/events/stream",
        operation: Operation::Stream,
        action: Some(Action::Subscribe),
        query: &["clientId", "ticket"],
        summary: "Receive deliveries as server-sent events",
    },
    Route {
        method: Method::POST,
        path: "/events/ack",
        operation: Operation::Ack,
        action: Some(Action::Subscribe),
        query: &[],
        summary: "Finish one delivery or many",
    },
    Route {
        method: Method::POST,
        path: "/events/nack",
        operation: Operation::Nack,
        action: Some(Action::Subscribe),
        query: &[],
        summary: "Give deliveries back for another attempt, after a delay or the backoff",
    },
    Route {
        method: Method::POST,
        path: "/events/extend",
        operation: Operation::Extend,
        action: Some(Action::Subscribe),
        query: &[],
        summary: "Lock deliveries for longer",
    },
    Route {
        method: Method::POST,
        path: "/events/reject",
        operation: Operation::Reject,
        action: Some(Action::Subscribe),
        query: &[],
        summary: "Make deliveries dead letters now; stored before 200",
    },
    Route {
        method: Method::POST,
        path: "/events/ticket",
        operation: Operation::Ticket,
        action: Some(Action::Subscribe),
        query: &[],
        summary: "A ticket that stands for the credential when a browser opens a stream: good once, for a minute",
    },
    Route {
        method: Method::GET,
        path: "/openapi.json",
        operation: Operation::Document,
        action: None,
        query: &[],
        summary: "This API as an OpenAPI 3.1 document; open",
    },
];

/// The methods a path takes, as `Allow` lists them; `None`: there is no such path.
pub(super) fn allowed(path: &str) -> Option<String> {
    let routes = ROUTES.iter().filter(|route| route.path == path);
    let heads = routes.clone().any(|route| route.operation == Operation::Document).then_some("HEAD");
    let methods: Vec<&str> = routes.map(|route| route.method.as_str()).chain(heads).collect();
    (!methods.is_empty()).then(|| methods.join(", "))
}
