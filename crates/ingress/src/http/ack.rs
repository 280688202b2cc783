//! `POST /events/ack`: one delivery id, or an array of them with an outcome each.

use axum::response::Response;
use http::StatusCode;
use mesh_delivery::AckOutcome;
use mesh_gate::{Action, Caller, Resource};

use super::{
    answer::{json, push_text},
    edge::HttpEdge,
    errors::{ApiError, ErrorCode, ledger_unavailable},
    json::JsonObject,
};
use crate::intake::Ack;

/// How many ids one request may have.
const MOST_IDS: usize = 10_000;

pub(super) async fn ack(edge: &HttpEdge, caller: &Caller, body: &[u8]) -> Result<Response, ApiError> {
    let request = JsonObject::parse(body)?;
    let is_array = request.required_raw("deliveryId")?.starts_with('[');
    let deliveries = if is_array {
        let ids: Option<Vec<String>> = request.get("deliveryId", "a string or an array of strings")?;
        ids.unwrap_or_default()
    } else {
        let id: Option<String> = request.get("deliveryId", "a string or an array of strings")?;
        id.into_iter().collect()
    };
    if deliveries.len() > MOST_IDS {
        return Err(ApiError::invalid(format!("`deliveryId` must not have more than {MOST_IDS} ids")));
    }
    let ids = deliveries.clone();
    let admitted = edge.admit(caller, Action::Subscribe, Resource::Deliveries(&ids), Ack { deliveries })?;
    let outcomes = edge.intake().ack(admitted).await;
    if is_array {
        return Ok(json(StatusCode::OK, written(&ids, &outcomes)));
    }
    match outcomes.first().expect("one outcome an id") {
        AckOutcome::Acked => Ok(json(StatusCode::OK, &b"{\"status\":\"acked\"}"[..])),
        AckOutcome::Unknown => Err(ApiError::new(
            ErrorCode::UnknownDelivery,
            "there is no such delivery, or it was finished before",
        )),
        AckOutcome::Unavailable { full } => Err(ledger_unavailable(*full)),
    }
}

fn written(ids: &[String], outcomes: &[AckOutcome]) -> Vec<u8> {
    let mut text = Vec::with_capacity(16 + ids.iter().map(|id| id.len() + 48).sum::<usize>());
    text.extend_from_slice(b"{\"results\":[");
    for (place, (id, outcome)) in ids.iter().zip(outcomes).enumerate() {
        text.extend_from_slice(if place == 0 { b"{\"deliveryId\":" } else { b",{\"deliveryId\":" });
        push_text(&mut text, id);
        let error = match outcome {
            AckOutcome::Acked => None,
            AckOutcome::Unknown => Some(ErrorCode::UnknownDelivery),
            AckOutcome::Unavailable { full: true } => Some(ErrorCode::StorageFull),
            AckOutcome::Unavailable { full: false } => Some(ErrorCode::LedgerUnavailable),
        };
        match error {
            None => text.extend_from_slice(b",\"status\":\"acked\"}"),
            Some(code) => {
                text.extend_from_slice(b",\"error\":\"");
                text.extend_from_slice(code.as_str().as_bytes());
                text.extend_from_slice(b"\"}");
            }
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
            AckOutcome::Acked,
            AckOutcome::Unknown,
            AckOutcome::Unavailable { full: false },
            AckOutcome::Unavailable { full: true },
        ];
        let expected = r#"{"results":[{"deliveryId":"a","status":"acked"},{"deliveryId":"b\"","error":"unknown_delivery"},{"deliveryId":"c","error":"ledger_unavailable"},{"deliveryId":"d","error":"storage_full"}]}"#;
        assert_eq!(String::from_utf8(written(&ids, &outcomes)).expect("JSON"), expected);
        assert_eq!(written(&[], &[]), b"{\"results\":[]}");
    }
}
