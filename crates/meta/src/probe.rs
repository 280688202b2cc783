//! Whether a backend's conditional changes hold: asked once at boot of the server that is configured.
//!
//! There are servers that answer every compare-and-set with yes. Ownership, tasks and dead letters would be
//! wrong on such a one without anybody noticing, so a boot that finds one stops and names it.

use bytes::Bytes;
use mesh_base::BackendError;

use crate::{MetaStore, PutIfAbsent, Remove, Swap};

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the backend may not keep its word"]
pub enum Probe {
    /// Conditional changes hold.
    Holds,
    /// A change was made although its condition did not hold; the name of the primitive.
    Broken(&'static str),
    /// Another instance used the key meanwhile: nothing can be said.
    Disturbed,
}

impl MetaStore {
    /// Tries each conditional change with a condition that does not hold. `key` must be this process's own;
    /// it is removed before and afterwards.
    ///
    /// # Errors
    /// `Unavailable` when the backend does not answer.
    pub async fn probe(&self, key: &str) -> Result<Probe, BackendError> {
        self.delete(key).await?;
        let found = self.probe_free_key(key).await?;
        self.delete(key).await?;
        Ok(found)
    }

    async fn probe_free_key(&self, key: &str) -> Result<Probe, BackendError> {
        let [first, second, wrong] = [&b"first"[..], b"second", b"wrong"].map(Bytes::from_static);
        if let Swap::Swapped(_) = self.try_acquire(key, &wrong, second.clone()).await? {
            return Ok(Probe::Broken("try_acquire of a key that is not there"));
        }
        let PutIfAbsent::Written(_) = self.put_if_absent(key, first.clone()).await? else {
            return Ok(Probe::Disturbed);
        };
        if let PutIfAbsent::Written(_) = self.put_if_absent(key, second.clone()).await? {
            return Ok(Probe::Broken("put_if_absent"));
        }
        if let Swap::Swapped(_) = self.try_acquire(key, &wrong, second).await? {
            return Ok(Probe::Broken("try_acquire"));
        }
        if let Remove::Removed(_) = self.try_remove(key, &wrong).await? {
            return Ok(Probe::Broken("try_remove"));
        }
        let there = self.get(key).await?;
        Ok(if there.is_some_and(|there| there.value == first) { Probe::Holds } else { Probe::Disturbed })
    }
}
