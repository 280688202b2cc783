//! Rates of topics: given, listed, taken away.

use axum::{
    body::Body,
    extract::{RawQuery, State},
};
use mesh_frame::TopicName;
use mesh_gate::TopicRate;
use mesh_server::{ApiError, JsonObject};
use mesh_state::shared::RateLimit;
use serde_json::{Value, json};

use crate::json::Json;
use crate::{asked::Asked, body, errors::of_meta, views::AdminState};

fn shown(topic: &TopicName, limit: &RateLimit) -> Value {
    json!({"topic": topic.as_str(), "capacity": limit.capacity, "rate": limit.rate})
}

pub(crate) async fn list(State(state): State<AdminState>) -> Result<Json<Value>, ApiError> {
    let rates = state.served()?.rate_limits.all().await.map_err(|error| of_meta(&error))?;
    Ok(Json(rates.iter().map(|(topic, limit)| shown(topic, limit)).collect()))
}

pub(crate) async fn put(State(state): State<AdminState>, body: Body) -> Result<Json<Value>, ApiError> {
    let limits = &state.served()?.rate_limits;
    let body = body::read(body).await?;
    let request = JsonObject::parse(&body, &["topic", "capacity", "rate"])?;
    let topic = request.required_name("topic", TopicName::client)?;
    let missing = |name| ApiError::missing(name);
    let capacity: u64 = request.get("capacity", "a whole number")?.ok_or_else(|| missing("capacity"))?;
    let rate: f64 = request.get("rate", "a number")?.ok_or_else(|| missing("rate"))?;
    TopicRate::new(capacity, rate).map_err(|error| ApiError::invalid(error.to_string()))?;
    limits.put(&topic, RateLimit { capacity, rate }).await.map_err(|error| of_meta(&error))?;
    Ok(Json(json!({"status": "ok", "topic": topic.as_str(), "capacity": capacity, "rate": rate})))
}

pub(crate) async fn remove(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let body = body::read(body).await?;
    let topic = Asked::read(query.as_deref(), &body, &["topic"])?.topic()?;
    let had = state.served()?.rate_limits.remove(&topic).await.map_err(|error| of_meta(&error))?;
    Ok(Json(json!({"status": "ok", "topic": topic.as_str(), "removed": had})))
}
