//! The body of a request: small and whole. And the names in its path.

use axum::{
    body::Body,
    extract::{Path, rejection::PathRejection},
};
use bytes::Bytes;
use mesh_server::{ApiError, ErrorCode};

/// No request of an operator is longer.
const LONGEST: usize = 64 << 10;

/// The whole body.
pub(crate) async fn read(body: Body) -> Result<Bytes, ApiError> {
    axum::body::to_bytes(body, LONGEST).await.map_err(|_| {
        ApiError::new(
            ErrorCode::TooLarge,
            format!("the body is longer than {LONGEST} bytes, or did not arrive"),
        )
    })
}

/// The decoded names of a path.
pub(crate) fn names<T>(path: Result<Path<T>, PathRejection>) -> Result<T, ApiError> {
    path.map(|Path(names)| names).map_err(|error| ApiError::invalid(format!("the path: {error}")))
}
