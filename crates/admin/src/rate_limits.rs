//! Rates of topics: given, listed, taken away. Durable before the answer, and in force with it.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::{RawQuery, State},
};
use mesh_base::BackendError;
use mesh_frame::TopicName;
use mesh_gate::{SecurityGate, TopicRate};
use mesh_ingress::http::{ApiError, JsonObject};
use mesh_state::shared::{RateLimit, RateLimitStore};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{body, errors::of_meta, query::Query, views::AdminState};

/// The rates of topics, kept and in force; cheap to clone.
#[derive(Clone)]
pub struct RateLimits {
    store: RateLimitStore,
    gate: SecurityGate,
    /// Changes come into force in the order they are kept.
    changing: Arc<Mutex<()>>,
}

impl RateLimits {
    /// Rates that `store` keeps and `gate` holds publishers to.
    pub fn new(store: RateLimitStore, gate: SecurityGate) -> Self {
        Self { store, gate, changing: Arc::default() }
    }

    /// Puts what is kept in force. Call it before anything is served.
    ///
    /// # Errors
    /// When Meta cannot be read.
    pub async fn load(&self) -> Result<usize, BackendError> {
        let rates = self.store.all().await?;
        self.hold(&rates);
        Ok(rates.len())
    }

    fn hold(&self, rates: &BTreeMap<TopicName, RateLimit>) {
        let usable =
            rates.iter().filter_map(|(topic, limit)| match TopicRate::new(limit.capacity, limit.rate) {
                Ok(rate) => Some((topic.clone(), rate)),
                Err(error) => {
                    tracing::error!(%topic, %error, "the rate that is kept for this topic cannot hold");
                    None
                }
            });
        self.gate.topic_rates().replace(usable.collect());
    }
}

fn shown(topic: &TopicName, limit: &RateLimit) -> Value {
    json!({"topic": topic.as_str(), "capacity": limit.capacity, "rate": limit.rate})
}

pub(crate) async fn list(State(state): State<AdminState>) -> Result<Json<Value>, ApiError> {
    let rates = state.served()?.rate_limits.store.all().await.map_err(|error| of_meta(&error))?;
    Ok(Json(rates.iter().map(|(topic, limit)| shown(topic, limit)).collect()))
}

pub(crate) async fn put(State(state): State<AdminState>, body: Body) -> Result<Json<Value>, ApiError> {
    let limits = &state.served()?.rate_limits;
    let body = body::read(body).await?;
    let request = JsonObject::parse(&body)?;
    let topic = TopicName::client(&request.required_text("topic")?)
        .map_err(|error| ApiError::of_name("topic", error))?;
    let missing = |name| ApiError::missing(name);
    let capacity: u64 = request.get("capacity", "a whole number")?.ok_or_else(|| missing("capacity"))?;
    let rate: f64 = request.get("rate", "a number")?.ok_or_else(|| missing("rate"))?;
    TopicRate::new(capacity, rate).map_err(|error| ApiError::invalid(error.to_string()))?;
    let _one_at_a_time = limits.changing.lock().await;
    let rates = limits.store.put(&topic, RateLimit { capacity, rate }).await;
    limits.hold(&rates.map_err(|error| of_meta(&error))?);
    Ok(Json(json!({"status": "ok", "topic": topic.as_str(), "capacity": capacity, "rate": rate})))
}

pub(crate) async fn remove(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, ApiError> {
    let query = Query::read(query.as_deref())?;
    query.only(&["topic"])?;
    let topic = query.topic()?;
    let limits = &state.served()?.rate_limits;
    let _one_at_a_time = limits.changing.lock().await;
    let had = limits.store.all().await.map_err(|error| of_meta(&error))?.contains_key(&topic);
    if had {
        limits.hold(&limits.store.remove(&topic).await.map_err(|error| of_meta(&error))?);
    }
    Ok(Json(json!({"status": "ok", "topic": topic.as_str(), "removed": had})))
}
