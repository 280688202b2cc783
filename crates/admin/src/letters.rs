//! Dead letters: replayed to the group that failed, or discarded.

use axum::{
    body::Body,
    extract::{RawQuery, State},
};
use mesh_delivery::LetterSelector;
use mesh_frame::{GroupName, TenantId};
use mesh_server::ApiError;
use serde_json::{Value, json};

use crate::json::Json;
use crate::{asked::Asked, body, errors::of_letters, views::AdminState};

/// What a replay and a discard may be told.
pub(crate) const OPTIONS: &[&str] = &["topic", "max", "tenant", "group", "id", "reason", "dryRun"];

/// What is asked for: which, at most how many, and whether it is only tried.
fn read(query: Option<&str>, body: &[u8]) -> Result<(LetterSelector, usize, bool), ApiError> {
    let asked = Asked::read(query, body, OPTIONS)?;
    let reason = asked.text("reason")?.map(|name| {
        LetterSelector::read_reason(&name)
            .ok_or_else(|| ApiError::invalid("reason must be attempts_exhausted or rejected"))
    });
    let which = LetterSelector {
        topic: asked.topic()?,
        tenant: asked.name("tenant", TenantId::new)?,
        group: asked.name("group", GroupName::new)?,
        event_id: asked.text("id")?,
        reason: reason.transpose()?,
    };
    Ok((which, asked.max()?, asked.flag("dryRun")?))
}

pub(crate) async fn replay(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let body = body::read(body).await?;
    let (which, max, dry_run) = read(query.as_deref(), &body)?;
    let letters = state.served()?.dispatcher.letters();
    let topic = which.topic.as_str();
    let (done, mut answer) = if dry_run {
        let would = letters.would_replay(&which, max).await.map_err(of_letters)?;
        let answer = json!({"topic": topic, "replayed": 0, "dryRun": true, "wouldReplay": would.replayed});
        (would, answer)
    } else {
        let done = letters.replay(&which, max).await.map_err(of_letters)?;
        (done, json!({"topic": topic, "replayed": done.replayed}))
    };
    for (name, left) in
        [("groupGone", done.group_gone), ("bodyGone", done.body_gone), ("filtered", done.filtered)]
    {
        if left > 0 {
            answer[name] = left.into();
        }
    }
    Ok(Json(answer))
}

pub(crate) async fn discard(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let body = body::read(body).await?;
    let (which, max, dry_run) = read(query.as_deref(), &body)?;
    let letters = state.served()?.dispatcher.letters();
    let topic = which.topic.as_str();
    Ok(Json(if dry_run {
        let would = letters.would_discard(&which, max).await.map_err(of_letters)?;
        json!({"topic": topic, "discarded": 0, "dryRun": true, "wouldDiscard": would})
    } else {
        json!({"topic": topic, "discarded": letters.discard(&which, max).await.map_err(of_letters)?})
    }))
}
