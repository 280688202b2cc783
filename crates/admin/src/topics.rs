//! Topics: made, grown, listed, described, deleted.

use axum::{
    body::Body,
    extract::{Path, RawQuery, State, rejection::PathRejection},
};
use http::StatusCode;
use mesh_base::Range;
use mesh_delivery::{GroupId, TopicMade, TopicView};
use mesh_frame::TopicName;
use mesh_server::{ApiError, ErrorCode, JsonObject};
use serde_json::{Value, json};

use crate::json::Json;
use crate::{
    asked::Asked,
    body,
    errors::{of_log, of_meta, of_topic},
    topic_settings,
    views::AdminState,
};

/// `partitions`.
pub(crate) const PARTITIONS: Range = Range { name: "partitions", least: 1, most: 1_024 };

/// What the deletion of a topic may be told.
pub(crate) const DELETE_OPTIONS: &[&str] = &["force", "deadLetters"];
/// The members of a request that makes or changes a topic.
const MAKE_MEMBERS: &[&str] = &["topic", PARTITIONS.name, "retention", "backlog", "dedupWindowMs"];

fn name(text: &str) -> Result<TopicName, ApiError> {
    TopicName::new(text).map_err(|error| ApiError::of_name("topic", error))
}

fn groups(groups: &[GroupId]) -> Value {
    groups
        .iter()
        .map(|id| json!({"tenant": id.tenant.as_str(), "group": id.name.as_str(), "kind": id.kind.as_str()}))
        .collect()
}

fn summary(view: &TopicView) -> Value {
    let mut summary = json!({
        "topic": view.name.as_str(),
        "partitions": view.partitions.len(),
        "groups": view.groups.len(),
        "deadLetterTopic": view.name.is_dead_letter(),
    });
    topic_settings::show(view, &mut summary);
    summary
}

pub(crate) async fn make(
    State(state): State<AdminState>,
    body: Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let served = state.served()?;
    let body = body::read(body).await?;
    let request = JsonObject::parse(&body, MAKE_MEMBERS)?;
    let name = request.required_name("topic", TopicName::client)?;
    let partitions = request.number(PARTITIONS)?;
    let partitions = partitions.map(|count| u32::try_from(count).expect("the range fits"));
    let change = topic_settings::read(&request)?;
    let topics = served.groups.topics();
    let made = topics.make(&name, partitions, change).await.map_err(of_topic)?;
    let view = topics.show(&name).ok_or_else(|| unknown(&name))?;
    let mut answer = json!({"topic": name.as_str(), "partitions": view.partitions.len()});
    topic_settings::show(&view, &mut answer);
    let status = match made {
        TopicMade::Created => StatusCode::CREATED,
        TopicMade::AlreadyThere => StatusCode::OK,
        TopicMade::Grown(added) => {
            answer["added"] = added.into();
            answer["warning"] =
                "the events of a key may go to another partition from now on, out of order with those before"
                    .into();
            StatusCode::OK
        }
    };
    Ok((status, Json(answer)))
}

pub(crate) async fn list(State(state): State<AdminState>) -> Result<Json<Value>, ApiError> {
    Ok(Json(state.served()?.groups.topics().list().iter().map(summary).collect()))
}

pub(crate) async fn describe(
    State(state): State<AdminState>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let served = state.served()?;
    let name = name(&body::names(path)?)?;
    let view = served.groups.topics().describe(&name).await.map_err(|error| of_log(&error))?;
    let view = view.ok_or_else(|| unknown(&name))?;
    let letters = served.dispatcher.letters().count(&name).await.map_err(|error| of_meta(&error))?;
    let partitions: Value = view
        .partitions
        .iter()
        .map(|partition| {
            json!({
                "partition": partition.partition.0,
                "start": partition.start.to_string(),
                "end": partition.end.to_string(),
                "bytes": partition.bytes,
            })
        })
        .collect();
    let mut answer = json!({
        "topic": view.name.as_str(),
        "incarnation": view.incarnation.0.to_string(),
        "partitions": partitions,
        "groups": groups(&view.groups),
        "deadLetters": letters,
    });
    topic_settings::show(&view, &mut answer);
    Ok(Json(answer))
}

pub(crate) async fn delete(
    State(state): State<AdminState>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let name = name(&body::names(path)?)?;
    let body = body::read(body).await?;
    let asked = Asked::read(query.as_deref(), &body, DELETE_OPTIONS)?;
    let (force, letters) = (asked.flag("force")?, asked.flag("deadLetters")?);
    if name.is_dead_letter() {
        return Err(ApiError::new(
            ErrorCode::ReservedTopic,
            "a dead-letter topic goes with its topic: DELETE that one with deadLetters=true, or discard",
        ));
    }
    let deleted = state.served()?.groups.topics().delete(&name, force, letters).await.map_err(of_topic)?;
    Ok(Json(json!({
        "topic": name.as_str(),
        "deleted": true,
        "groups": deleted.groups,
        "deadLetters": deleted.dead_letters,
    })))
}

fn unknown(name: &TopicName) -> ApiError {
    ApiError::new(ErrorCode::UnknownTopic, format!("there is no topic {name}"))
}
