//! The identity of this run, and the step of a data directory from format 1 to format 2.
//!
//! Format 1 kept the key of delivery ids, the count of boots and the last group number in the position database; in
//! format 2 they are in Meta ([`IdentityStore`]). The upgrade is a row of steps that can each be done again: until the
//! marker is raised nothing is taken away from the position database, so that a process that dies before it leaves a
//! directory of format 1 that either release can open; after it the older release refuses the directory, and what is
//! left to remove is removed at the next start.

use mesh_frame::InstanceId;
use mesh_state::{
    positions::RocksDbPositions,
    shared::{ClusterSubscriptionStore, DeliveryIdKey, Identity, IdentityStore, SubscriptionStore},
};

use super::data_dir::DataDir;

/// What a boot does for its identity, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The key of an older release goes to Meta, unless there is one.
    TakeKey,
    /// A directory that an operator says was restored gets another key.
    RenewKey,
    /// Every group has its number reserved, and nobody else a number.
    AlignNumbers,
    /// This boot is counted.
    CountBoot,
    /// The marker of the data directory is raised.
    RaiseMarker,
    /// What is in Meta now leaves the position database.
    ForgetOld,
}

const STEPS: [Step; 6] =
    [Step::TakeKey, Step::RenewKey, Step::AlignNumbers, Step::CountBoot, Step::RaiseMarker, Step::ForgetOld];

/// What the identity of a run is made from.
pub(super) struct Beginning<'a> {
    pub(super) data_dir: &'a DataDir,
    pub(super) instance: &'a InstanceId,
    pub(super) positions: &'a RocksDbPositions,
    pub(super) subscriptions: &'a ClusterSubscriptionStore,
    pub(super) identities: &'a IdentityStore,
}

impl Beginning<'_> {
    /// Upgrades the data directory if it is of the format before, counts this boot, and gives the identity. To be
    /// called before anything is served.
    ///
    /// # Errors
    /// Meta, the position database or the directory cannot be read or written. What was done stays, and the next start
    /// goes on from there.
    pub(super) async fn begin(&self) -> anyhow::Result<Identity> {
        self.up_to(STEPS.len()).await?.ok_or_else(|| anyhow::anyhow!("this boot was not counted"))
    }

    /// The first so many steps.
    async fn up_to(&self, count: usize) -> anyhow::Result<Option<Identity>> {
        let chain = |error: mesh_base::BackendError| anyhow::anyhow!(error.chain());
        let mut identity = None;
        for step in &STEPS[..count] {
            match step {
                Step::TakeKey => {
                    if let Some(old) = self.positions.old_identity().map_err(chain)? {
                        let old = DeliveryIdKey(old.delivery_id_key);
                        let there = self.identities.adopt_delivery_id_key(&old).await.map_err(chain)?;
                        if there != old {
                            tracing::warn!(
                                "the position database has another key of delivery ids than Meta: \
                                 ids that were given under it are void"
                            );
                        }
                    }
                }
                Step::RenewKey => {
                    if self.data_dir.is_restored() {
                        self.identities.renew_delivery_id_key().await.map_err(chain)?;
                        self.data_dir.end_restored()?;
                        tracing::warn!(
                            "the data directory was restored from an older copy: delivery ids that were given before \
                             are void, what they stood for is handed out again"
                        );
                    }
                }
                Step::AlignNumbers => {
                    let groups: Vec<_> = self
                        .subscriptions
                        .groups()
                        .into_iter()
                        .map(|(id, stored)| (id, stored.record.id))
                        .collect();
                    let aligned = self.identities.align_group_numbers(&groups).await.map_err(chain)?;
                    if aligned != mesh_state::shared::NumbersAligned::default() {
                        let (reserved, released) = (aligned.reserved, aligned.released);
                        tracing::info!(reserved, released, "group numbers");
                    }
                }
                Step::CountBoot => {
                    identity =
                        Some(self.identities.begin(self.instance, self.positions).await.map_err(chain)?);
                }
                Step::RaiseMarker => {
                    if self.data_dir.is_old() {
                        self.data_dir.raise_format()?;
                        tracing::info!("the data directory has format 2 now: older releases refuse it");
                    }
                }
                Step::ForgetOld => {
                    if self.positions.old_identity().map_err(chain)?.is_some() {
                        self.positions.forget_old_identity().map_err(chain)?;
                    }
                }
            }
        }
        Ok(identity)
    }
}

#[cfg(test)]
mod tests;
