//! Adoption: a client that was subscribed before anybody had a name becomes the first one's that comes with one.

use mesh_frame::{ClientId, TenantId};
use mesh_state::shared::{SubscriptionRecord, SubscriptionStore};

use crate::{Groups, Receiver, SubscribeError};

impl Groups {
    /// Makes a client that is nobody's the receiver's, if that has a name: what was subscribed before names were
    /// asked for belongs to the first that comes with one. Durable when it returns. A client that is not there, or
    /// somebody's, stays as it is.
    ///
    /// # Errors
    /// When Meta cannot write; asking again goes on with what is left.
    pub async fn adopt(&self, receiver: &Receiver, client: &ClientId) -> Result<(), SubscribeError> {
        let (tenant, inner) = (receiver.tenant(), self.inner());
        let Some(principal) = receiver.principal() else { return Ok(()) };
        if inner.clients.owner(tenant, client).is_some() || inner.groups_of(tenant, client).is_none() {
            return Ok(());
        }
        let _one_at_a_time = self.changing.lock().await;
        if inner.clients.owner(tenant, client).is_some() {
            return Ok(());
        }
        self.adopt_all(tenant, client, principal).await
    }

    /// Writes a client's owner into its subscriptions. Under the lock of changes.
    pub(crate) async fn adopt_all(
        &self,
        tenant: &TenantId,
        client: &ClientId,
        principal: &str,
    ) -> Result<(), SubscribeError> {
        let inner = self.inner();
        let Some(groups) = inner.groups_of(tenant, client) else { return Ok(()) };
        for group in &groups {
            if let Some(known) = self.store.member(&group.id, client) {
                let record =
                    SubscriptionRecord { principal: Some(principal.to_owned()), ..known.record.clone() };
                self.store.put_member(&group.id, record).await.map_err(SubscribeError::Meta)?;
            }
        }
        inner.clients.adopted(tenant, client, &principal.into());
        tracing::info!(%tenant, %client, principal, "a client that was nobody's is this principal's now");
        Ok(())
    }
}
