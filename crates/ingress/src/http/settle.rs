//! `POST /events/ack`, `/nack`, `/extend`, `/reject`: one delivery id, or an array of them with an outcome each.

use std::{collections::HashMap, time::Duration};

use axum::response::Response;
use http::StatusCode;
use mesh_delivery::{DELAY_MS, Deliveries, EXTEND_MS, SettleOutcome};
use mesh_frame::TopicName;
use mesh_gate::{Action, Admitted, Caller, Resource};

use super::{
    answer::{json, push_text},
    edge::HttpEdge,
    errors::{ApiError, ErrorCode, ledger_unavailable},
    json::JsonObject,
};
use crate::intake::{Ack, Extend, Nack, Reject};

/// How many ids one request may have.
const MOST_IDS: usize = 10_000;

pub(super) async fn ack(edge: &HttpEdge, caller: &Caller, body: &[u8]) -> Result<Response, ApiError> {
    let mut asked = Asked::read(&JsonObject::parse(body)?)?;
    let ack = asked.admit(edge, caller, |deliveries| Ack { deliveries })?;
    asked.answer("acked", &edge.intake().ack(ack).await)
}

pub(super) async fn nack(edge: &HttpEdge, caller: &Caller, body: &[u8]) -> Result<Response, ApiError> {
    let request = JsonObject::parse(body)?;
    let mut asked = Asked::read(&request)?;
    let delay = request.number(DELAY_MS)?.map(Duration::from_millis);
    let reason = request.text("reason")?;
    let nack = asked.admit(edge, caller, |deliveries| Nack { deliveries, delay, reason })?;
    asked.answer("nacked", &edge.intake().nack(nack).await)
}

pub(super) async fn extend(edge: &HttpEdge, caller: &Caller, body: &[u8]) -> Result<Response, ApiError> {
    let request = JsonObject::parse(body)?;
    let mut asked = Asked::read(&request)?;
    let by = request.number(EXTEND_MS)?.ok_or_else(|| ApiError::missing(EXTEND_MS.name))?;
    let by = Duration::from_millis(by);
    let extend = asked.admit(edge, caller, |deliveries| Extend { deliveries, by })?;
    asked.answer("extended", &edge.intake().extend(extend).await)
}

pub(super) async fn reject(edge: &HttpEdge, caller: &Caller, body: &[u8]) -> Result<Response, ApiError> {
    let request = JsonObject::parse(body)?;
    let mut asked = Asked::read(&request)?;
    let reason = request.text("reason")?;
    let reject = asked.admit(edge, caller, |deliveries| Reject { deliveries, reason })?;
    asked.answer("rejected", &edge.intake().reject(reject).await)
}

/// The deliveries a request names.
struct Asked {
    ids: Vec<String>,
    /// It named them as an array, and gets one back.
    is_array: bool,
    /// The places of those that are of a topic which the caller may not have.
    forbidden: Vec<usize>,
}

impl Asked {
    fn read(request: &JsonObject<'_>) -> Result<Self, ApiError> {
        const EXPECTED: &str = "a string or an array of strings";
        let is_array = request.required_raw("deliveryId")?.starts_with('[');
        let ids: Vec<String> = if is_array {
            request.get("deliveryId", EXPECTED)?.unwrap_or_default()
        } else {
            request.get("deliveryId", EXPECTED)?.into_iter().collect()
        };
        if ids.len() > MOST_IDS {
            return Err(ApiError::invalid(format!("`deliveryId` must not have more than {MOST_IDS} ids")));
        }
        Ok(Self { ids, is_array, forbidden: Vec::new() })
    }

    fn admit<T>(
        &mut self,
        edge: &HttpEdge,
        caller: &Caller,
        of: impl FnOnce(Deliveries) -> T,
    ) -> Result<Admitted<T>, ApiError> {
        let (intake, gate) = (edge.intake(), edge.intake().gate());
        let mut deliveries = intake.deliveries(caller, &self.ids);
        let topics = if gate.is_open() { Vec::new() } else { deliveries.topics() };
        // One topic that the caller may have admits the request; the others are asked about one by one.
        let mut judged: HashMap<&TopicName, bool> = HashMap::new();
        for (place, topic) in topics.iter().enumerate().filter(|_| self.is_array) {
            let Some(topic) = topic else { continue };
            if !*judged.entry(topic).or_insert_with(|| gate.may_receive(caller, topic)) {
                deliveries.hide(place);
                self.forbidden.push(place);
            }
        }
        edge.admit(caller, Action::Subscribe, Resource::Deliveries(&topics), of(deliveries))
    }

    fn answer(&self, status: &str, outcomes: &[SettleOutcome]) -> Result<Response, ApiError> {
        if self.is_array {
            return Ok(json(StatusCode::OK, written(&self.ids, status, outcomes, &self.forbidden)));
        }
        match outcomes.first().expect("one outcome an id") {
            SettleOutcome::Settled => Ok(json(StatusCode::OK, format!("{{\"status\":\"{status}\"}}"))),
            SettleOutcome::Unknown => Err(ApiError::new(
                ErrorCode::UnknownDelivery,
                "there is no such delivery, or it was finished before",
            )),
            SettleOutcome::Unavailable { full } => Err(ledger_unavailable(*full)),
        }
    }
}

/// `forbidden`: places in rising order.
fn written(ids: &[String], status: &str, outcomes: &[SettleOutcome], forbidden: &[usize]) -> Vec<u8> {
    let mut text = Vec::with_capacity(16 + ids.iter().map(|id| id.len() + 48).sum::<usize>());
    text.extend_from_slice(b"{\"results\":[");
    for (place, (id, outcome)) in ids.iter().zip(outcomes).enumerate() {
        text.extend_from_slice(if place == 0 { b"{\"deliveryId\":" } else { b",{\"deliveryId\":" });
        push_text(&mut text, id);
        let (member, word) = match outcome {
            SettleOutcome::Settled => ("status", status),
            SettleOutcome::Unknown if forbidden.binary_search(&place).is_ok() => {
                ("error", ErrorCode::Forbidden.as_str())
            }
            SettleOutcome::Unknown => ("error", ErrorCode::UnknownDelivery.as_str()),
            SettleOutcome::Unavailable { full: true } => ("error", ErrorCode::StorageFull.as_str()),
            SettleOutcome::Unavailable { full: false } => ("error", ErrorCode::LedgerUnavailable.as_str()),
        };
        for part in [",\"", member, "\":\"", word, "\"}"] {
            text.extend_from_slice(part.as_bytes());
        }
    }
    text.extend_from_slice(b"]}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_gets_an_outcome_each_in_order() {
        let ids = ["a", "b\"", "c", "d"].map(str::to_owned);
        let outcomes = [
            SettleOutcome::Settled,
            SettleOutcome::Unknown,
            SettleOutcome::Unavailable { full: false },
            SettleOutcome::Unavailable { full: true },
        ];
        let expected = r#"{"results":[{"deliveryId":"a","status":"nacked"},{"deliveryId":"b\"","error":"unknown_delivery"},{"deliveryId":"c","error":"ledger_unavailable"},{"deliveryId":"d","error":"storage_full"}]}"#;
        assert_eq!(String::from_utf8(written(&ids, "nacked", &outcomes, &[])).expect("JSON"), expected);
        let refused = r#"{"results":[{"deliveryId":"a","error":"unknown_delivery"},{"deliveryId":"b\"","error":"forbidden"}]}"#;
        let unknown = [SettleOutcome::Unknown; 2];
        assert_eq!(String::from_utf8(written(&ids[..2], "acked", &unknown, &[1])).expect("JSON"), refused);
        assert_eq!(written(&[], "acked", &[], &[]), b"{\"results\":[]}");
    }
}
