//! Keys of signed tokens.

use mesh_frame::TenantId;

use crate::config::{
    declared::{Fallback, Group, keys},
    keys::security::ANY,
    kind::{File, KeySetUrl, Name, Names, Span, Text, no_blank},
};

/// This group.
pub const GROUP: Group = Group {
    title: "Signed tokens",
    about: "Tokens of an issuer (JWT). A source of keys switches them on; then issuer and audience are needed too.",
};

const MINUTE_MS: u64 = 60_000;

keys! {
    KEY_SET_FILE: File = File,
    "eventmesh.security.gate.token.jwt.jwks.file", Fallback::Unset("no key set from a file"),
    "The issuer's key set (JWKS).", never_blank;

    KEY_SET_URL: KeySetUrl = KeySetUrl,
    "eventmesh.security.gate.token.jwt.jwks.url", Fallback::Unset("no key set is fetched"),
    "Where the issuer publishes its key set. Its query is masked wherever it is shown.", never_blank;

    REFRESH: Span = Span { min_ms: 10_000, max_ms: 24 * 60 * MINUTE_MS, zero_means: None },
    "eventmesh.security.gate.token.jwt.jwks.refresh", Fallback::Value("5m"),
    "How often it is fetched. An unknown key makes it be fetched sooner, once in 30 seconds.";

    MAX_STALE: Span = Span { min_ms: MINUTE_MS, max_ms: 7 * 24 * 60 * MINUTE_MS, zero_means: None },
    "eventmesh.security.gate.token.jwt.jwks.maxStale", Fallback::Value("1h"),
    "For how long the last key set holds when it cannot be fetched again.";

    KEY_SET_CA: File = File,
    "eventmesh.security.gate.token.jwt.jwks.ca.file", Fallback::Unset("the authorities that the system trusts"),
    "Who signs the certificate of the key set's host, PEM.", never_blank;

    SECRET_FILE: File = File,
    "eventmesh.security.gate.token.jwt.secret.file", Fallback::Unset("no shared secret"),
    "The shared secret for HS256: a text, or Base64 after `base64:`; 32 bytes or more.", never_blank;

    ALGORITHMS: Names = Names { of: "HS256, RS256, ES256 or EdDSA", is_one: no_blank },
    "eventmesh.security.gate.token.jwt.algorithms", Fallback::Unset("RS256, ES256 and EdDSA with a key set, HS256 with a secret"),
    "The algorithms that are accepted, with commas between them.", never_blank;

    ISSUER: Text = ANY,
    "eventmesh.security.gate.token.jwt.issuer", Fallback::Unset("signed tokens are not accepted"),
    "What `iss` must be, to the letter.", never_blank;

    AUDIENCE: Names = Names { of: "an audience", is_one: no_blank },
    "eventmesh.security.gate.token.jwt.audience", Fallback::Unset("signed tokens are not accepted"),
    "The audiences, with commas between them, of which one must be in `aud`.", never_blank;

    LEEWAY: Span = Span { min_ms: 0, max_ms: 300_000, zero_means: Some("none") },
    "eventmesh.security.gate.token.jwt.leeway", Fallback::Value("30s"),
    "By how much `exp` and `nbf` may be off.";

    TENANT: Name<TenantId> = Name { read: TenantId::new, accepted: "1 to 255 bytes without control characters" },
    "eventmesh.security.gate.token.jwt.tenant", Fallback::Unset("a token that names no tenant is refused"),
    "The tenant of a token that names none.", never_blank;

    TENANT_CLAIM: Text = ANY,
    "eventmesh.security.gate.token.jwt.claim.tenant", Fallback::Value("tenant"),
    "The claim with the tenant; a dotted path reaches into objects.", never_blank;

    PRINCIPAL_CLAIM: Text = ANY,
    "eventmesh.security.gate.token.jwt.claim.principal", Fallback::Value("sub"),
    "The claim with the principal.", never_blank;

    ROLES_CLAIM: Text = ANY,
    "eventmesh.security.gate.token.jwt.claim.roles", Fallback::Value("roles"),
    "The claim with the roles, such as `realm_access.roles`; `scope` takes the scopes of the token for its roles.", never_blank;
}
