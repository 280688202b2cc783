//! Members of a group, and the number by which lanes know them.

use mesh_frame::{ClientId, SubscriptionId, TenantId};
use xxhash_rust::xxh3::xxh3_64;

use crate::lane::Member;

/// A member as its group knows it.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The id its subscribe was answered with.
    pub subscription: SubscriptionId,
    /// What may be handed out to it and not settled.
    pub max_in_flight: u32,
}

/// The member that a client is.
pub(crate) fn member_of(tenant: &TenantId, client: &ClientId) -> Member {
    let mut bytes = Vec::with_capacity(tenant.as_str().len() + client.as_str().len() + 1);
    bytes.extend_from_slice(tenant.as_str().as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(client.as_str().as_bytes());
    // 0 is "nobody" in a row.
    Member(xxh3_64(&bytes).max(1))
}
