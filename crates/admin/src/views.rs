//! The answers of the admin port.

use std::sync::Arc;

use axum::{
    extract::{RawQuery, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, header};
use mesh_base::{Clock, Counter, Gauge, Signals};
use mesh_delivery::{DeliverySignals, Groups, ReliableDispatcher};
use mesh_frame::{TenantId, TopicName, format_timestamp};
use mesh_gate::SecurityGate;
use mesh_server::{ApiError, ErrorCode, Query};
use serde_json::{Map, Value, json};

use crate::json::Json;
use crate::{asked::Asked, guard::AdminAccess, health::Health, metrics::Numbers, topic_rates::RateLimits};

/// What browsing dead letters may be told.
pub(crate) const BROWSE_OPTIONS: &[&str] = &["topic", "max"];

/// What the admin port reads. Until delivery is there ([`AdminState::serve`]) only health and readiness are.
#[derive(Clone)]
pub struct AdminState(Arc<Inner>);

struct Inner {
    access: AdminAccess,
    gate: SecurityGate,
    health: Health,
    clock: Clock,
    signals: Signals,
    topology: &'static str,
    pending: Gauge,
    served: std::sync::OnceLock<Served>,
}

/// What came in, as the intake counts it.
#[derive(Clone, Debug)]
pub struct PublishCounters {
    /// Events stored.
    pub stored: Counter,
    /// Events that were admitted and could not be stored.
    pub failed: Counter,
    /// Requests refused because of their rate.
    pub rate_limited: Counter,
}

pub(crate) struct Served {
    pub(crate) dispatcher: ReliableDispatcher,
    pub(crate) groups: Groups,
    pub(crate) rate_limits: RateLimits,
    delivery: DeliverySignals,
    publish: PublishCounters,
    offset_write_failures: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl AdminState {
    /// The admin port of a process that is starting, behind `access`; what is done there `gate` keeps in its audit.
    /// `topology` and the state of the gate are what health shows.
    pub fn new(
        access: AdminAccess,
        gate: SecurityGate,
        health: Health,
        clock: Clock,
        signals: Signals,
        topology: &'static str,
    ) -> Self {
        let served = std::sync::OnceLock::new();
        let pending = signals.gauge("pending_deliveries", "Deliveries handed out and not finished");
        Self(Arc::new(Inner { access, gate, health, clock, signals, topology, pending, served }))
    }

    /// Delivery is there. Once.
    ///
    /// # Panics
    /// When it was there already.
    pub fn serve(
        &self,
        dispatcher: ReliableDispatcher,
        groups: Groups,
        rate_limits: RateLimits,
        delivery: DeliverySignals,
        publish: PublishCounters,
        offset_write_failures: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        let served = Served {
            dispatcher,
            groups,
            rate_limits,
            delivery,
            publish,
            offset_write_failures: Box::new(offset_write_failures),
        };
        assert!(self.0.served.set(served).is_ok(), "delivery is built once");
    }

    pub(crate) fn access(&self) -> &AdminAccess {
        &self.0.access
    }

    pub(crate) fn gate(&self) -> &SecurityGate {
        &self.0.gate
    }

    /// The tenant of a request that names none.
    pub(crate) fn tenant(&self) -> &TenantId {
        self.0.gate.default_tenant()
    }

    /// What operators see and change: from when recovery is done, so that nothing is taken for absent that is not
    /// there yet.
    pub(crate) fn served(&self) -> Result<&Served, ApiError> {
        let served = self.built().filter(|_| self.0.health.is_recovered());
        served.ok_or_else(|| ApiError::new(ErrorCode::NotReady, "the process is starting"))
    }

    /// What is counted already while it is being brought back.
    fn built(&self) -> Option<&Served> {
        self.0.served.get()
    }
}

pub(crate) async fn health(State(state): State<AdminState>, headers: HeaderMap) -> Response {
    let (status, components) = state.0.health.report(state.0.clock.now());
    let mut body = Map::new();
    body.insert("status".to_owned(), status.into());
    if state.access().admits(&headers) {
        body.insert("topology".to_owned(), state.0.topology.into());
        body.insert("gate".to_owned(), state.0.gate.state().into());
        body.insert("components".to_owned(), serde_json::to_value(&components).unwrap_or_default());
        if let Some(served) = state.built() {
            body.insert("pendingDeliveries".to_owned(), served.dispatcher.pending_count().into());
        }
    } else {
        let names: Vec<&str> = components.keys().copied().collect();
        body.insert("components".to_owned(), names.into());
    }
    Json(Value::Object(body)).into_response()
}

pub(crate) async fn ready(State(state): State<AdminState>) -> Response {
    if state.0.health.is_ready() {
        Json(json!({"status": "READY"})).into_response()
    } else {
        ApiError::new(ErrorCode::NotReady, "traffic is not served now").into_response()
    }
}

pub(crate) async fn prometheus(State(state): State<AdminState>, headers: HeaderMap) -> Response {
    if let Some(served) = state.built() {
        state.0.pending.set(i64::try_from(served.dispatcher.pending_count()).unwrap_or(i64::MAX));
    }
    let (kind, text) = if wants_prometheus_text(&headers) {
        ("text/plain; version=0.0.4; charset=utf-8", state.0.signals.prometheus_text())
    } else {
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", state.0.signals.text())
    };
    (StatusCode::OK, [(header::CONTENT_TYPE, kind), (header::VARY, "accept")], text).into_response()
}

/// Whether `Accept` prefers Prometheus's own text to OpenMetrics, which is given where both are as welcome.
fn wants_prometheus_text(headers: &HeaderMap) -> bool {
    let mut wanted = [0.0_f32; 2];
    for range in headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
    {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let weight = weight.map_or(1.0, |text| text.parse::<f32>().unwrap_or(0.0));
        match kind.as_str() {
            "text/plain" | "text/*" => wanted[0] = wanted[0].max(weight),
            "application/openmetrics-text" | "application/*" => wanted[1] = wanted[1].max(weight),
            _ => {}
        }
    }
    wanted[0] > wanted[1]
}

pub(crate) async fn metrics(State(state): State<AdminState>) -> Result<Json<Numbers>, ApiError> {
    let starting = || ApiError::new(ErrorCode::NotReady, "the process is starting");
    let served = state.built().ok_or_else(starting)?;
    Ok(Json(Numbers {
        publish_count: served.publish.stored.get(),
        publish_failed: served.publish.failed.get(),
        rate_limited: served.publish.rate_limited.get(),
        events_dispatched: served.delivery.dispatched.get(),
        ack_count: served.delivery.acked.get(),
        redeliveries: served.delivery.redelivered.get(),
        dlq_count: served.delivery.dead_lettered.get(),
        pending_deliveries: served.dispatcher.pending_count() as u64,
        offset_write_failures: (served.offset_write_failures)(),
    }))
}

pub(crate) async fn subscriptions(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, ApiError> {
    let topic = Query::new(query.as_deref()).name("topic", TopicName::new)?;
    let members = state.served()?.groups.members(topic.as_ref());
    Ok(Json(
        members
            .into_iter()
            .map(|member| {
                json!({
                    "subscriptionId": member.subscription.as_str(),
                    "clientId": member.client.as_str(),
                    "topic": member.topic.as_str(),
                    "mode": member.mode,
                    "group": member.group.as_str(),
                    "tenant": member.tenant.as_str(),
                    "instance": member.instance,
                })
            })
            .collect(),
    ))
}

pub(crate) async fn clients(
    State(state): State<AdminState>,
    RawQuery(raw): RawQuery,
) -> Result<Json<Value>, ApiError> {
    let topic = Query::new(raw.as_deref()).required_name("topic", TopicName::new)?;
    let clients = state.served()?.dispatcher.clients(&topic);
    Ok(Json(
        clients
            .into_iter()
            .map(|client| {
                json!({
                    "clientId": client.client.as_str(),
                    "tenant": client.tenant.as_str(),
                    "pending": client.pending,
                })
            })
            .collect(),
    ))
}

pub(crate) async fn offsets(
    State(state): State<AdminState>,
    RawQuery(raw): RawQuery,
) -> Result<Json<Value>, ApiError> {
    let topic = Query::new(raw.as_deref()).required_name("topic", TopicName::new)?;
    let mut floors = Map::new();
    for position in state.served()?.dispatcher.positions(&topic) {
        // Tenants share no name: the default tenant's groups keep the short key that scripts know.
        let key = if position.tenant == *state.tenant() {
            format!("{}#{}", position.group, position.partition)
        } else {
            format!("{}/{}#{}", position.tenant, position.group, position.partition)
        };
        floors.insert(key, position.floor.to_string().into());
    }
    Ok(Json(Value::Object(floors)))
}

pub(crate) async fn dead_letters(
    State(state): State<AdminState>,
    RawQuery(raw): RawQuery,
) -> Result<Json<Value>, ApiError> {
    let asked = Asked::read(raw.as_deref(), &[], BROWSE_OPTIONS)?;
    let (topic, max) = (asked.topic()?, asked.max()?);
    let letters = state
        .served()?
        .dispatcher
        .dead_letters(&topic, max)
        .await
        .map_err(|error| ApiError::new(ErrorCode::MetaUnavailable, error.chain()))?;
    Ok(Json(
        letters
            .into_iter()
            .map(|view| {
                let letter = view.letter;
                let event: Value = view
                    .body
                    .and_then(|body| serde_json::from_slice(body.json()).ok())
                    .unwrap_or(Value::Null);
                json!({
                    "tenant": letter.group.tenant.as_str(),
                    "topic": letter.group.topic.as_str(),
                    "group": letter.group.name.as_str(),
                    "partition": letter.partition.0,
                    "offset": letter.offset.to_string(),
                    "reason": letter.reason.as_str(),
                    "attempts": letter.attempts,
                    "lastError": letter.last_error,
                    "firstHandOut": format_timestamp(letter.first_ms),
                    "lastHandOut": format_timestamp(letter.last_ms),
                    "deadAt": format_timestamp(letter.dead_at_ms),
                    "firstMs": letter.first_ms,
                    "lastMs": letter.last_ms,
                    "deadAtMs": letter.dead_at_ms,
                    "eventId": letter.event_id,
                    "source": letter.source,
                    "event": event,
                })
            })
            .collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_one_that_was_asked_for() {
        let wants = |accept: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(header::ACCEPT, http::HeaderValue::from_static(value));
            }
            wants_prometheus_text(&headers)
        };
        for accept in [
            &["text/plain"][..],
            &["Text/Plain; version=0.0.4; q=0.9, application/openmetrics-text;q=0.1"],
            &["text/plain;q=0.2", "*/*;q=0.1"],
            &["application/openmetrics-text;q=0, text/*"],
        ] {
            assert!(wants(accept), "{accept:?}");
        }
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                          text/plain;version=1.0.0;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for accept in [&[][..], &["*/*"], &["application/json"], &[prometheus], &["text/plain;q=x"]] {
            assert!(!wants(accept), "{accept:?}");
        }
    }
}
