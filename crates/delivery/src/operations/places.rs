//! How many subscriptions a tenant may have, where several are made at once.

use std::{collections::HashMap, sync::Arc};

use mesh_frame::TenantId;
use parking_lot::Mutex;

use super::errors::SubscribeError;

/// Subscriptions that are being made, by tenant; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Mutex<HashMap<TenantId, u64>>>);

/// Room for one subscription until it is dropped, which is after the subscription counts by itself.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    tenant: TenantId,
}

impl Places {
    /// Takes room for one, if `used` and those that are being made leave some of `most`.
    ///
    /// # Errors
    /// [`SubscribeError::TenantFull`].
    pub(super) fn take(
        &self,
        tenant: &TenantId,
        most: u64,
        used: impl Fn() -> u64,
    ) -> Result<Place, SubscribeError> {
        let mut making = self.0.lock();
        let count = making.entry(tenant.clone()).or_default();
        if used() + *count >= most {
            if *count == 0 {
                making.remove(tenant);
            }
            return Err(SubscribeError::TenantFull(most));
        }
        *count += 1;
        drop(making);
        Ok(Place { places: self.clone(), tenant: tenant.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut making = self.places.0.lock();
        if let Some(count) = making.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                making.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_made_at_once_do_not_pass_the_limit_together() {
        let places = Places::default();
        let tenant = TenantId::new("t").expect("legal");
        let first = places.take(&tenant, 3, || 1).expect("room for one");
        let second = places.take(&tenant, 3, || 1).expect("room for another");
        assert!(matches!(places.take(&tenant, 3, || 1), Err(SubscribeError::TenantFull(3))));
        drop(first);
        assert!(places.take(&tenant, 3, || 1).is_ok());
        drop(second);
        assert!(places.0.lock().is_empty());
    }
}
