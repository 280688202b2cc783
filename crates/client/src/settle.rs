//! Settling deliveries: the words of it, one and many.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    DeliveryId, Error, RetryPolicy,
    delivery::unreadable,
    subscribe::milliseconds,
    transport::{Call, Transport},
};

/// How many deliveries one request settles at most; longer lists are sent in several.
pub const MOST_AT_ONCE: usize = 10_000;

/// How settling one delivery ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It took effect now.
    Done,
    /// The server does not know the delivery: it was settled before, or is not this client's any more. After
    /// a retry this is how a success looks, so an acknowledgement may read it as done.
    Unknown,
    /// The server could not settle this one of many; the code says why. It stays as it was.
    Failed(String),
}

/// What happens to a delivery.
#[derive(Clone, Debug)]
pub(crate) enum Verb {
    Ack,
    Nack { delay: Option<Duration>, reason: Option<String> },
    Extend { by: Duration },
    Reject { reason: Option<String> },
}

impl Verb {
    const fn path(&self) -> &'static str {
        match self {
            Self::Ack => "/events/ack",
            Self::Nack { .. } => "/events/nack",
            Self::Extend { .. } => "/events/extend",
            Self::Reject { .. } => "/events/reject",
        }
    }

    fn arguments(&self) -> Map<String, Value> {
        let mut body = Map::new();
        match self {
            Self::Ack => {}
            Self::Nack { delay, reason } => {
                if let Some(delay) = delay {
                    body.insert("delayMs".to_owned(), json!(milliseconds(*delay)));
                }
                if let Some(reason) = reason {
                    body.insert("reason".to_owned(), json!(reason));
                }
            }
            Self::Extend { by } => {
                body.insert("extendMs".to_owned(), json!(milliseconds(*by)));
            }
            Self::Reject { reason } => {
                if let Some(reason) = reason {
                    body.insert("reason".to_owned(), json!(reason));
                }
            }
        }
        body
    }

    fn call(&self, deliveries: Value) -> Call {
        let mut body = self.arguments();
        body.insert("deliveryId".to_owned(), deliveries);
        Call::post(self.path().to_owned(), "application/json", Value::Object(body).to_string())
    }
}

#[derive(Deserialize)]
struct Results {
    results: Vec<Outcome>,
}

#[derive(Deserialize)]
struct Outcome {
    #[serde(default)]
    error: Option<String>,
}

/// Settles one delivery; 404 is an outcome.
pub(crate) async fn one(
    transport: &Transport,
    retry: RetryPolicy,
    verb: &Verb,
    id: DeliveryId,
) -> Result<Settled, Error> {
    match transport.send(&verb.call(json!(id)), retry).await {
        Ok(_) => Ok(Settled::Done),
        Err(Error::Refused { status: 404, code, .. }) if code == "unknown_delivery" => Ok(Settled::Unknown),
        Err(error) => Err(error),
    }
}

/// Settles many; the outcomes have the order of the ids.
pub(crate) async fn many(
    transport: &Transport,
    retry: RetryPolicy,
    verb: &Verb,
    ids: &[DeliveryId],
) -> Result<Vec<Settled>, Error> {
    let mut settled = Vec::with_capacity(ids.len());
    for part in ids.chunks(MOST_AT_ONCE) {
        let body = transport.send(&verb.call(json!(part)), retry).await?;
        let answer: Results = serde_json::from_slice(&body).map_err(unreadable)?;
        if answer.results.len() != part.len() {
            let (got, asked) = (answer.results.len(), part.len());
            return Err(Error::Answer(format!("{got} results for {asked} deliveries")));
        }
        settled.extend(answer.results.into_iter().map(|outcome| match outcome.error {
            None => Settled::Done,
            Some(code) if code == "unknown_delivery" => Settled::Unknown,
            Some(code) => Settled::Failed(code),
        }));
    }
    Ok(settled)
}
