//! Keys of the security gate: what it does with an objection, and the filters that object.

use crate::config::{
    declared::{Fallback, Group, keys},
    kind::{Count, File, Names, Span, Switch, Text},
};

pub mod audit;
pub mod jwt;
pub mod quota;
pub mod tls;

/// This group.
pub const GROUP: Group = Group {
    title: "Security gate",
    about: "Who may do what (docs/security.md). No filter set: every request is allowed. A filter that is configured \
            and cannot be loaded stops the start.",
};

keys! {
    FAIL_CLOSED: Switch = Switch,
    "eventmesh.security.gate.failClosed", Fallback::Value("false"),
    "Whether a request that a filter denies, or cannot judge, is refused; with `false` it is allowed, counted and \
     audited. `true` stops the start while no filter is configured: there would be nothing to check against.";

    TOKEN_FILE: File = File,
    "eventmesh.security.gate.token.file", Fallback::Unset("no tokens"),
    "The tokens: TOML of `[[token]]` with `name`, `value` or `sha256`, `tenant`, `principal`, `roles`.", never_blank;

    CERTIFICATE_FILE: File = File,
    "eventmesh.security.gate.certificate.file", Fallback::Unset("client certificates say nothing"),
    "Who holds which client certificate: TOML of `[[certificate]]` with `commonName` or `san`, `tenant`, \
     `principal`, `roles`. Needs TLS that asks for client certificates.", never_blank;

    ACL_FILE: File = File,
    "eventmesh.security.gate.acl.file", Fallback::Unset("no rules are asked"),
    "The access rules: TOML of `[[rule]]` with `principal`, `role` or `tenant`, `resource`, `action`, `effect`, \
     `priority`.", never_blank;

    SIGNATURE_FILE: File = File,
    "eventmesh.security.gate.signature.file", Fallback::Unset("signatures are not asked for"),
    "The keys of signed requests: TOML of `[[key]]` with `id`, `tenant`, `principal`, `algorithm`, `secret` or \
     `publicKey`. With it every request must be signed (RFC 9421).", never_blank;

    SIGNATURE_LEGACY: Switch = Switch,
    "eventmesh.security.gate.signature.legacy", Fallback::Value("false"),
    "Whether a publish that is not signed is accepted when each event carries a signature in `emsignature`. It \
     covers the id, the source and the type only, and does not end.";

    SIGNATURE_WINDOW: Span = Span { min_ms: 1_000, max_ms: 3_600_000, zero_means: None },
    "eventmesh.security.gate.signature.window", Fallback::Value("5m"),
    "How old a signature may be.";

    SIGNATURE_NONCES: Count = Count { min: 1_000, max: 100_000_000 },
    "eventmesh.security.gate.signature.maxNonces", Fallback::Value("100000"),
    "How many nonces are remembered. A key that has used its share of them waits until one has had its time.";

    RELOAD: Span = Span { min_ms: 100, max_ms: 3_600_000, zero_means: None },
    "eventmesh.security.reload.interval", Fallback::Value("2s"),
    "How often the files of the gate, of TLS and of the admin tokens are looked at for changes.";

    CORS_ORIGINS: Names = Names { of: "an origin like https://app.example, or *", is_one: super::super::kind::is_origin },
    "eventmesh.http.cors.origins", Fallback::Unset("pages of other origins may not call"),
    "The origins, with commas between them, whose pages may call the traffic port. `*` is every one.";
}

/// What a text of any kind accepts.
pub(super) const ANY: Text = Text { accepted: "a text" };
