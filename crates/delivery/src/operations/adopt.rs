//! Adoption: a client that was subscribed before anybody had a name becomes the first one's that comes with one.

use mesh_frame::{ClientId, TenantId};
use mesh_state::shared::{SubscriptionRecord, SubscriptionStore};

use super::{begun::Tell, errors::SubscribeError, groups::Groups};
use crate::group::receiver::Receiver;

impl Groups {
    /// Makes a client without an owner the receiver's, if that has a name: what was subscribed before names were
    /// asked for belongs to the first that comes with one. Durable when it returns. A client that is not there, or
    /// somebody's, stays as it is.
    ///
    /// # Errors
    /// When Meta cannot write; it is done all the same as soon as Meta answers.
    pub async fn adopt(&self, receiver: &Receiver, client: &ClientId) -> Result<(), SubscribeError> {
        let tenant = receiver.tenant();
        let Some(principal) = receiver.principal() else { return Ok(()) };
        if self.core.directory.clients.owner(tenant, client).is_some()
            || self.core.directory.of_client(tenant, client).is_none()
        {
            return Ok(());
        }
        let alone = self.operations.clients.alone(&(tenant.clone(), client.clone())).await?;
        if self.core.directory.clients.owner(tenant, client).is_some() {
            return Ok(());
        }
        let (groups, tenant, client) = (self.clone(), tenant.clone(), client.clone());
        let principal = principal.to_owned();
        self.operations
            .own("adopt a client", |asker| async move {
                let adopted = groups.adopt_all(&tenant, &client, &principal, &asker).await;
                drop(alone);
                adopted
            })
            .await
    }

    /// Writes a client's owner into its subscriptions. The caller has the client's lock, and none of a group.
    pub(super) async fn adopt_all(
        &self,
        tenant: &TenantId,
        client: &ClientId,
        principal: &str,
        asker: &dyn Tell,
    ) -> Result<(), SubscribeError> {
        let Some(groups) = self.core.directory.of_client(tenant, client) else { return Ok(()) };
        for id in groups.iter().map(|group| &group.id) {
            let alone = self.operations.groups.alone(id).await?;
            let there = self.core.directory.find(id);
            // It may have been ended meanwhile: it must not come back.
            let is_member = there.is_some_and(|group| group.state.lock().members.contains_key(client));
            let known =
                self.meta.subscriptions.read_member(id, client).await.map_err(SubscribeError::Meta)?;
            if let Some(known) = known.filter(|_| is_member) {
                let record =
                    SubscriptionRecord { principal: Some(principal.to_owned()), ..known.record.clone() };
                let put = || self.meta.subscriptions.put_member(id, record.clone());
                self.operations.decide(asker, put).await?;
            }
            drop(alone);
        }
        self.core.directory.clients.adopted(tenant, client, &principal.into());
        tracing::info!(%tenant, %client, principal, "a client that was nobody's is this principal's now");
        Ok(())
    }
}
