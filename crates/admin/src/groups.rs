//! Groups and clients: how far behind, moved, removed, rejected.

use std::collections::BTreeMap;

use axum::{
    body::Body,
    extract::{Path, RawQuery, State, rejection::PathRejection},
};
use mesh_base::UnixMillis;
use mesh_delivery::{AckMode, GroupKind, GroupSelector, GroupView, LaneView, Settings};
use mesh_frame::{ClientId, Filter, GroupName, Offset, PartitionId, TenantId, TopicName};
use mesh_server::{ApiError, ErrorCode, Query};
use serde_json::{Map, Value, json};

use crate::json::Json;
use crate::{
    asked::Asked,
    body,
    errors::{of_group, of_log, of_subscribe},
    views::AdminState,
};

/// What the removal of a group may be told.
pub(crate) const DELETE_OPTIONS: &[&str] = &["tenant", "kind"];
/// What a seek may be told.
pub(crate) const SEEK_OPTIONS: &[&str] = &["tenant", "kind", "to", "dryRun"];
/// What a reject may be told.
pub(crate) const REJECT_OPTIONS: &[&str] = &["clientId", "tenant"];

fn settings(settings: &Settings) -> Value {
    json!({
        "ack": match settings.ack {
            AckMode::Explicit => "explicit",
            AckMode::Auto => "auto",
        },
        "ackTimeoutMs": settings.ack_timeout_ms,
        "maxAttempts": settings.max_attempts,
        "backoffMs": settings.backoff_ms,
        "maxBackoffMs": settings.max_backoff_ms,
        "filters": settings.filters.iter().map(Filter::to_json).collect::<Value>(),
    })
}

fn lane(lane: &LaneView, now: UnixMillis) -> Value {
    let mut shown = json!({
        "partition": lane.partition.0,
        "floor": lane.floor.to_string(),
        "nextToRead": lane.next_to_read.to_string(),
        "end": lane.end.to_string(),
        "lag": lane.lag,
        "outstanding": lane.outstanding,
        "pending": lane.pending,
    });
    if let Some(matching) = lane.lag_matching {
        shown["lagMatching"] = matching.into();
    }
    if let Some(gap) = lane.gap {
        let (from, to) = (gap.from.to_string(), gap.to.to_string());
        shown["gap"] = json!({"from": from, "to": to, "reason": gap.reason.as_str()});
    }
    if let Some(oldest) = lane.oldest_ms {
        shown["oldestMs"] = oldest.into();
        shown["lagMs"] = now.0.saturating_sub(oldest).into();
    }
    if let Some((hash, outstanding)) = lane.held_by_key {
        shown["heldByKey"] = json!({"hash": format!("{hash:016x}"), "outstanding": outstanding});
    }
    shown
}

fn group(view: &GroupView, now: UnixMillis) -> Value {
    let members: Value = view
        .members
        .iter()
        .map(|member| {
            json!({
                "clientId": member.client.as_str(),
                "subscriptionId": member.subscription.as_str(),
                "maxInFlight": member.max_in_flight,
                "inFlight": member.in_flight,
            })
        })
        .collect();
    let matching: Option<u64> = view.partitions.iter().map(|lane| lane.lag_matching).sum();
    let mut shown = json!({
        "topic": view.id.topic.as_str(),
        "tenant": view.id.tenant.as_str(),
        "group": view.id.name.as_str(),
        "kind": view.id.kind.as_str(),
        "mode": view.settings.mode.as_str(),
        "generation": view.generation,
        "lag": view.partitions.iter().map(|lane| lane.lag).sum::<u64>(),
        "outstanding": view.partitions.iter().map(|lane| lane.outstanding).sum::<usize>(),
        "pending": view.partitions.iter().map(|lane| lane.pending).sum::<usize>(),
        "settings": settings(&view.settings),
        "members": members,
        "partitions": view.partitions.iter().map(|of| lane(of, now)).collect::<Value>(),
    });
    if let Some(matching) = matching {
        shown["lagMatching"] = matching.into();
    }
    shown
}

pub(crate) async fn list(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, ApiError> {
    let topic = Query::new(query.as_deref()).name("topic", TopicName::new)?;
    let served = state.served()?;
    let views = served.groups.views(topic.as_ref()).await.map_err(|error| of_log(&error))?;
    let now = served.dispatcher.now();
    Ok(Json(views.iter().map(|view| group(view, now)).collect()))
}

/// The group that a path and a query name.
fn which(
    state: &AdminState,
    (topic, name): (String, String),
    asked: &Asked<'_>,
) -> Result<GroupSelector, ApiError> {
    let kind = asked.text("kind")?.map(|kind| {
        GroupKind::read(&kind)
            .ok_or_else(|| ApiError::invalid("kind must be lb (a shared group) or bc (a client's)"))
    });
    Ok(GroupSelector {
        tenant: asked.name("tenant", TenantId::new)?.unwrap_or_else(|| state.tenant().clone()),
        topic: TopicName::new(&topic).map_err(|error| ApiError::of_name("topic", error))?,
        name: GroupName::new(&name).map_err(|error| ApiError::of_name("group", error))?,
        kind: kind.transpose()?,
    })
}

pub(crate) async fn delete(
    State(state): State<AdminState>,
    path: Result<Path<(String, String)>, PathRejection>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let body = body::read(body).await?;
    let asked = Asked::read(query.as_deref(), &body, DELETE_OPTIONS)?;
    let which = which(&state, body::names(path)?, &asked)?;
    let members = state.served()?.groups.remove_group(&which).await.map_err(of_group)?;
    Ok(Json(json!({
        "topic": which.topic.as_str(),
        "group": which.name.as_str(),
        "deleted": true,
        "members": members,
    })))
}

fn offsets(offsets: &BTreeMap<PartitionId, Offset>) -> Value {
    let member = |(partition, offset): (&PartitionId, &Offset)| {
        (partition.0.to_string(), Value::from(offset.to_string()))
    };
    Value::Object(offsets.iter().map(member).collect::<Map<String, Value>>())
}

pub(crate) async fn seek(
    State(state): State<AdminState>,
    path: Result<Path<(String, String)>, PathRejection>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let body = body::read(body).await?;
    let asked = Asked::read(query.as_deref(), &body, SEEK_OPTIONS)?;
    let which = which(&state, body::names(path)?, &asked)?;
    let served = state.served()?;
    let (to, dry_run) = (asked.start("to")?, asked.flag("dryRun")?);
    let sought = served.groups.seek(&which, &to, dry_run).await.map_err(of_group)?;
    let mut answer = json!({
        "topic": which.topic.as_str(),
        "group": which.name.as_str(),
        "generation": sought.generation,
        "from": offsets(&sought.from),
        "to": offsets(&sought.to),
    });
    if dry_run {
        answer["dryRun"] = true.into();
    }
    Ok(Json(answer))
}

pub(crate) async fn reject(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let body = body::read(body).await?;
    let asked = Asked::read(query.as_deref(), &body, REJECT_OPTIONS)?;
    let client = asked.required_name("clientId", ClientId::new)?;
    let tenant = asked.name("tenant", TenantId::new)?.unwrap_or_else(|| state.tenant().clone());
    let rejected = state.served()?.groups.reject(&tenant, &client).await;
    match rejected.map_err(of_subscribe)? {
        0 => Err(ApiError::new(
            ErrorCode::UnknownClient,
            format!("the client {client} has no subscription in the tenant {tenant}"),
        )),
        removed => Ok(Json(json!({"clientId": client.as_str(), "removed": removed}))),
    }
}
