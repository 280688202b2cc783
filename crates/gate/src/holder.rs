//! Whom a credential in a file belongs to: `tenant`, `principal` and `roles` of its entry.

use mesh_frame::TenantId;

use crate::{CredentialKind, Identity, Principal, entries::Entry, filter::LoadError};

/// Takes the holder out of an entry. Tenant and principal must be there, roles need not.
pub(crate) fn of(entry: &mut Entry, credential: CredentialKind) -> Result<Identity, LoadError> {
    let tenant = entry.required("tenant")?;
    let tenant = TenantId::new(&tenant)
        .map_err(|error| entry.unusable(format!("`tenant` is not the name of a tenant: {error}")))?;
    let principal = entry.required("principal")?;
    let principal = principal_of(&principal)
        .ok_or_else(|| entry.unusable("`principal` must have 1 to 255 bytes, none a control".into()))?;
    Ok(Identity {
        tenant,
        principal: Some(principal),
        roles: entry.texts("roles")?,
        credential,
        expires_at: None,
        entry: None,
    })
}

/// A principal of this name, which follows the rule of tenants: 1–255 bytes without control characters.
pub(crate) fn principal_of(name: &str) -> Option<Principal> {
    TenantId::new(name).is_ok().then(|| Principal::new(name))
}
