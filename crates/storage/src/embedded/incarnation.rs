//! The number of a log that is made now.

use mesh_base::{BackendError, BackendErrorKind};
use mesh_frame::Incarnation;

use super::keys::NAME;

/// A random number for a log that is made now.
///
/// # Errors
/// When the system gives no random bytes.
pub(crate) fn new_incarnation() -> Result<Incarnation, BackendError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        BackendError::new(BackendErrorKind::Unavailable, NAME, "drawing a random number")
            .with_source(error.to_string())
    })?;
    Ok(Incarnation(u64::from_be_bytes(bytes)))
}
