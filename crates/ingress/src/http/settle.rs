//! `POST /events/ack`, `/nack`, `/extend`, `/reject`: one delivery id, or an array of them with an outcome each.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use mesh_delivery::{DELAY_MS, EXTEND_MS};
use mesh_gate::{Admitted, Verified};
use mesh_server::{ApiError, ErrorCode, JsonObject, json, push_text};

use super::{
    edge::HttpEdge,
    errors::{ledger_unavailable, of_denied},
};
use crate::intake::{Ack, Extend, Incoming, Nack, Reject, Settled, UsableDeliveries};

/// How many ids one request may have.
const MOST_IDS: usize = 10_000;

pub(super) async fn ack(edge: &HttpEdge, verified: &Verified, body: &[u8]) -> Result<Response, ApiError> {
    let asked = Asked::read(&JsonObject::parse(body, &["deliveryId"])?)?;
    let ack = asked.admit(edge, verified, |deliveries| Ack { deliveries })?;
    asked.answer("acked", &edge.intake().ack(ack).await)
}

pub(super) async fn nack(edge: &HttpEdge, verified: &Verified, body: &[u8]) -> Result<Response, ApiError> {
    let request = JsonObject::parse(body, &["deliveryId", DELAY_MS.name, "reason"])?;
    let asked = Asked::read(&request)?;
    let delay = request.number(DELAY_MS)?.map(Duration::from_millis);
    let reason = request.text("reason")?;
    let nack = asked.admit(edge, verified, |deliveries| Nack { deliveries, delay, reason })?;
    asked.answer("nacked", &edge.intake().nack(nack).await)
}

pub(super) async fn extend(edge: &HttpEdge, verified: &Verified, body: &[u8]) -> Result<Response, ApiError> {
    let request = JsonObject::parse(body, &["deliveryId", EXTEND_MS.name])?;
    let asked = Asked::read(&request)?;
    let by = request.number(EXTEND_MS)?.ok_or_else(|| ApiError::missing(EXTEND_MS.name))?;
    let by = Duration::from_millis(by);
    let extend = asked.admit(edge, verified, |deliveries| Extend { deliveries, by })?;
    asked.answer("extended", &edge.intake().extend(extend).await)
}

pub(super) async fn reject(edge: &HttpEdge, verified: &Verified, body: &[u8]) -> Result<Response, ApiError> {
    let request = JsonObject::parse(body, &["deliveryId", "reason"])?;
    let asked = Asked::read(&request)?;
    let reason = request.text("reason")?;
    let reject = asked.admit(edge, verified, |deliveries| Reject { deliveries, reason })?;
    asked.answer("rejected", &edge.intake().reject(reject).await)
}

/// The deliveries a request names.
struct Asked {
    ids: Vec<String>,
    /// It named them as an array, and gets one back.
    is_array: bool,
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
        Ok(Self { ids, is_array })
    }

    fn admit<T: Incoming>(
        &self,
        edge: &HttpEdge,
        verified: &Verified,
        of: impl FnOnce(UsableDeliveries) -> T,
    ) -> Result<Admitted<T>, ApiError> {
        let deliveries = edge.intake().deliveries(verified.caller(), &self.ids);
        edge.intake().admit(verified, of(deliveries)).map_err(of_denied)
    }

    fn answer(&self, status: &str, outcomes: &[Settled]) -> Result<Response, ApiError> {
        if self.is_array {
            return Ok(json(StatusCode::OK, written(&self.ids, status, outcomes)));
        }
        match outcomes.first().expect("one outcome an id") {
            Settled::Done => Ok(json(StatusCode::OK, format!("{{\"status\":\"{status}\"}}"))),
            Settled::Unknown => Err(ApiError::new(
                ErrorCode::UnknownDelivery,
                "there is no such delivery, or it was finished before",
            )),
            // The gate refuses a request of nothing that the caller may have.
            Settled::Forbidden => {
                Err(ApiError::new(ErrorCode::Forbidden, "the caller may not have this topic"))
            }
            Settled::Unavailable { full } => Err(ledger_unavailable(*full)),
        }
    }
}

fn written(ids: &[String], status: &str, outcomes: &[Settled]) -> Vec<u8> {
    let mut text = Vec::with_capacity(16 + ids.iter().map(|id| id.len() + 48).sum::<usize>());
    text.extend_from_slice(b"{\"results\":[");
    for (place, (id, outcome)) in ids.iter().zip(outcomes).enumerate() {
        text.extend_from_slice(if place == 0 { b"{\"deliveryId\":" } else { b",{\"deliveryId\":" });
        push_text(&mut text, id);
        let (member, word) = match outcome {
            Settled::Done => ("status", status),
            Settled::Forbidden => ("error", ErrorCode::Forbidden.as_str()),
            Settled::Unknown => ("error", ErrorCode::UnknownDelivery.as_str()),
            Settled::Unavailable { full: true } => ("error", ErrorCode::StorageFull.as_str()),
            Settled::Unavailable { full: false } => ("error", ErrorCode::LedgerUnavailable.as_str()),
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
            Settled::Done,
            Settled::Unknown,
            Settled::Unavailable { full: false },
            Settled::Unavailable { full: true },
        ];
        let expected = r#"{"results":[{"deliveryId":"a","status":"nacked"},{"deliveryId":"b\"","error":"unknown_delivery"},{"deliveryId":"c","error":"ledger_unavailable"},{"deliveryId":"d","error":"storage_full"}]}"#;
        assert_eq!(String::from_utf8(written(&ids, "nacked", &outcomes)).expect("JSON"), expected);
        let refused = r#"{"results":[{"deliveryId":"a","error":"unknown_delivery"},{"deliveryId":"b\"","error":"forbidden"}]}"#;
        let outcomes = [Settled::Unknown, Settled::Forbidden];
        assert_eq!(String::from_utf8(written(&ids[..2], "acked", &outcomes)).expect("JSON"), refused);
        assert_eq!(written(&[], "acked", &[]), b"{\"results\":[]}");
    }
}
