//! Answers in JSON, as the traffic port gives them.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use mesh_server::{ApiError, ErrorCode};
use serde::Serialize;

/// What is answered.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(text) => mesh_server::json(StatusCode::OK, text),
            Err(error) => {
                tracing::error!(%error, "an answer cannot be written as JSON");
                ApiError::new(ErrorCode::Internal, "the answer cannot be written").into_response()
            }
        }
    }
}
