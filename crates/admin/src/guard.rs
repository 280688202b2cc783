//! The admin gate: who may do what on the administration port.
//!
//! Tokens have roles, each of which may do what the ones before it may: a viewer reads, an operator moves
//! deliveries and positions, an admin removes things. `eventmesh.admin.token` is an admin's; a token file gives
//! more of them and is read again when it changes; a token of its own may open metrics and nothing else. They are
//! kept and compared as SHA-256, every one of them each time. Without any token everything but health and
//! readiness is locked. What is refused, and what is changed, goes to the audit.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    body::Body,
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderValue, Method, Version,
    header::{AUTHORIZATION, CONNECTION},
};
use mesh_gate::{
    Action, AuditRecord, CredentialKind, LoadError, Outcome, Protocol, Reload, SecurityGate, WatchedFile,
};
use mesh_server::{ApiError, ErrorCode, Peer};
use parking_lot::RwLock;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// What the holder of a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AdminRole {
    /// Read.
    Viewer,
    /// And move deliveries and positions.
    Operator,
    /// And remove things.
    Admin,
}

impl AdminRole {
    /// The name in token files and documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// What a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: it is always open.
    Nothing,
    /// A viewer, or the token for metrics.
    Metrics,
    /// This role.
    Role(AdminRole),
}

/// Where the tokens are.
#[derive(Clone, Copy, Default)]
pub struct AdminTokens<'a> {
    /// The token of an admin.
    pub admin: Option<&'a str>,
    /// The token of an admin that a server made for itself.
    pub made: Option<&'a str>,
    /// The token that opens metrics only.
    pub metrics: Option<&'a str>,
    /// The token file: TOML of `[[token]]` with `name`, `value` or `sha256`, and `role`.
    pub file: Option<&'a Path>,
}

/// The tokens of the admin port; cheap to clone.
#[derive(Clone)]
pub struct AdminAccess(Arc<Inner>);

struct Inner {
    fixed: Vec<Credential>,
    metrics: Option<[u8; 32]>,
    file: Option<WatchedFile>,
    of_file: RwLock<Vec<Credential>>,
    locked: LockedAudit,
}

/// While the port is locked everybody may ask and nobody gets anything: that goes to the audit once in a while, with how
/// often it happened.
#[derive(Default)]
struct LockedAudit {
    next: AtomicU64,
    passed_over: AtomicU64,
}

impl LockedAudit {
    /// How long the audit hears nothing after it heard of one, in milliseconds.
    const SILENCE: u64 = 10_000;

    /// Whether the audit hears of this one, and of how many it did not hear before.
    fn hears(&self, elapsed: Duration) -> Option<u64> {
        let now = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let next = self.next.load(Ordering::Acquire);
        let is_first = now >= next
            && self
                .next
                .compare_exchange(next, now + Self::SILENCE, Ordering::AcqRel, Ordering::Acquire)
                .is_ok();
        if is_first {
            Some(self.passed_over.swap(0, Ordering::AcqRel))
        } else {
            self.passed_over.fetch_add(1, Ordering::AcqRel);
            None
        }
    }
}

/// A token with who holds it.
#[derive(Clone)]
struct Credential {
    name: Arc<str>,
    digest: [u8; 32],
    role: AdminRole,
}

/// Who was not, and who it was, where that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    error: ApiError,
    holder: Option<Holder>,
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        Self { error, holder: None }
    }
}

/// Who was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) name: Arc<str>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    #[serde(default)]
    token: Vec<toml::Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    value: Option<String>,
    sha256: Option<String>,
    role: AdminRole,
}

impl AdminAccess {
    /// Reads the tokens. Blocks.
    ///
    /// # Errors
    /// When the file cannot be read or used.
    pub fn load(tokens: AdminTokens<'_>) -> Result<Self, LoadError> {
        let given =
            |token: Option<&str>| token.map(str::trim).filter(|token| !token.is_empty()).map(digest_of);
        let fixed = [("eventmesh.admin.token", tokens.admin), ("admin.token", tokens.made)];
        let fixed = fixed.into_iter().filter_map(|(name, token)| {
            given(token).map(|digest| Credential { name: name.into(), digest, role: AdminRole::Admin })
        });
        let file = tokens.file.map(WatchedFile::new);
        let of_file = match &file {
            None => Vec::new(),
            Some(file) => parse(file.path(), &file.read()?)?,
        };
        Ok(Self(Arc::new(Inner {
            fixed: fixed.collect(),
            metrics: given(tokens.metrics),
            file,
            of_file: RwLock::new(of_file),
            locked: LockedAudit::default(),
        })))
    }

    /// Reads the file again if it changed. Blocks.
    ///
    /// # Errors
    /// When what is new cannot be used; the tokens there were hold.
    pub fn reload(&self) -> Result<Reload, LoadError> {
        let Some(file) = &self.0.file else { return Ok(Reload::Unchanged) };
        let Some(text) = file.read_if_changed()? else { return Ok(Reload::Unchanged) };
        *self.0.of_file.write() = parse(file.path(), &text)?;
        Ok(Reload::Changed)
    }

    /// Whether the holder of a token of these headers may read.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        let values = headers.get_all(AUTHORIZATION).iter().map(|value| value.as_bytes());
        self.check(values, Needs::Role(AdminRole::Viewer)).is_ok()
    }

    /// Who presents these `Authorization` values, if they may have what a route needs.
    fn check<'a>(&self, mut values: impl Iterator<Item = &'a [u8]>, needs: Needs) -> Result<Holder, Refused> {
        let of_file = self.0.of_file.read();
        let is_locked = self.0.fixed.is_empty() && of_file.is_empty();
        if is_locked && (needs != Needs::Metrics || self.0.metrics.is_none()) {
            let reason =
                "administration is locked: set eventmesh.admin.token and start again; waiting does not help";
            return Err(ApiError::new(ErrorCode::AdminLocked, reason).into());
        }
        let refused = || ApiError::new(ErrorCode::Unauthenticated, "the admin token is missing or wrong");
        let value = values.next().ok_or_else(refused)?;
        if values.next().is_some() {
            return Err(
                ApiError::new(ErrorCode::InvalidArgument, "more than one Authorization header").into()
            );
        }
        let presented = match value.split_first_chunk::<7>() {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"bearer ") => rest.trim_ascii(),
            _ => value.trim_ascii(),
        };
        let presented: [u8; 32] = Sha256::digest(presented).into();
        // All of them are compared, whichever fits.
        let mut holder = None;
        for credential in self.0.fixed.iter().chain(of_file.iter()) {
            if bool::from(credential.digest.ct_eq(&presented)) {
                holder = Some(credential);
            }
        }
        let for_metrics = self.0.metrics.is_some_and(|digest| bool::from(digest.ct_eq(&presented)));
        let (role, name) = match holder {
            Some(credential) => (Some(credential.role), &*credential.name),
            None if for_metrics => (None, "eventmesh.admin.security.metrics.token"),
            None => return Err(refused().into()),
        };
        let needed = match needs {
            Needs::Nothing | Needs::Metrics => AdminRole::Viewer,
            Needs::Role(needed) => needed,
        };
        let holder = Holder { name: name.into() };
        if role.is_some_and(|role| role >= needed) || (for_metrics && needs == Needs::Metrics) {
            return Ok(holder);
        }
        let text = format!("this needs a token with the role {}", needed.as_str());
        Err(Refused { error: ApiError::new(ErrorCode::Forbidden, text), holder: Some(holder) })
    }
}

fn digest_of(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn parse(path: &Path, text: &str) -> Result<Vec<Credential>, LoadError> {
    let unusable = |at: usize, problem: String| LoadError::Unusable {
        origin: format!("{}:{}", path.display(), 1 + text[..at.min(text.len())].matches('\n').count()),
        problem,
    };
    let file: TokenFile = toml::from_str(text).map_err(|error| {
        // The message of the parser may show the line, and with it a token.
        unusable(
            error.span().map_or(0, |span| span.start),
            "this is not a token file of the admin port".to_owned(),
        )
    })?;
    let mut credentials: Vec<Credential> = Vec::new();
    for spanned in file.token {
        let at = spanned.span().start;
        let Entry { name, value, sha256, role } = spanned.into_inner();
        if name.trim().is_empty() || credentials.iter().any(|other| *other.name == *name) {
            return Err(unusable(at, "a token needs a name that no other has".to_owned()));
        }
        let digest = match (value, sha256) {
            (Some(value), None) if value.trim().len() >= 16 && !value.contains("${") => {
                digest_of(value.trim())
            }
            (None, Some(hex)) => digest(&hex).ok_or_else(|| {
                unusable(at, format!("the sha256 of `{name}` is not 64 hexadecimal digits"))
            })?,
            (Some(_), None) => {
                let problem =
                    format!("the value of `{name}` has fewer than 16 bytes, or a placeholder in it");
                return Err(unusable(at, problem));
            }
            _ => return Err(unusable(at, format!("`{name}` needs either a value or a sha256"))),
        };
        if credentials.iter().any(|other| other.digest == digest) {
            return Err(unusable(at, format!("the token of `{name}` is another's too")));
        }
        credentials.push(Credential { name: name.into(), digest, role });
    }
    if credentials.is_empty() {
        return Err(unusable(0, "there is no [[token]] in it".to_owned()));
    }
    Ok(credentials)
}

fn digest(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16).ok()?;
    }
    Some(digest)
}

impl std::fmt::Debug for AdminAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminAccess").field("tokens", &self.0.of_file.read().len()).finish_non_exhaustive()
    }
}

/// Lets a request through whose token may have what the route needs.
pub(crate) async fn guard(
    access: AdminAccess,
    gate: SecurityGate,
    needs: Needs,
    request: Request<Body>,
    next: Next,
) -> Response {
    let values = request.headers().get_all(AUTHORIZATION).iter().map(|value| value.as_bytes());
    let checked = access.check(values, needs);
    audit(&access, &gate, &request, &checked);
    match checked {
        Ok(_) => {
            if let Some(peer) = request.extensions().get::<Peer>() {
                peer.make_known();
            }
            next.run(request).await
        }
        Err(Refused { error, holder }) => {
            let is_unknown = holder.is_none() && request.version() < Version::HTTP_2;
            let mut response = error.into_response();
            if is_unknown {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
    }
}

/// Parameters whose values are written down; of others, which nobody asked for, only that they were there.
const WRITTEN_DOWN: [&str; 13] = [
    "topic",
    "clientId",
    "tenant",
    "group",
    "kind",
    "id",
    "reason",
    "max",
    "dryRun",
    "to",
    "force",
    "deadLetters",
    "all",
];

/// What a request is about, without what may be a secret in the wrong place.
fn resource(request: &Request) -> String {
    let mut text = format!("{} {}", request.method(), request.uri().path());
    for (place, pair) in request.uri().query().unwrap_or_default().split('&').enumerate() {
        let name = pair.split('=').next().unwrap_or_default();
        if WRITTEN_DOWN.contains(&name) {
            text.push(if place == 0 { '?' } else { '&' });
            text.push_str(pair);
        } else if !pair.is_empty() {
            text.push_str(if place == 0 { "?\u{2026}" } else { "&\u{2026}" });
        }
    }
    text
}

fn audit(access: &AdminAccess, gate: &SecurityGate, request: &Request, checked: &Result<Holder, Refused>) {
    let (outcome, mut reason, holder) = match checked {
        Ok(holder) => (Outcome::Allowed, "", Some(holder)),
        Err(refused) => (Outcome::Denied, refused.error.message.as_str(), refused.holder.as_ref()),
    };
    let told;
    if checked.as_ref().is_err_and(|refused| refused.error.code == ErrorCode::AdminLocked) {
        let Some(before) = access.0.locked.hears(gate.clock().elapsed()) else { return };
        if before > 0 {
            told = format!("{reason} ({before} more were refused before this one)");
            reason = &told;
        }
    }
    let principal = holder.map(|holder| &*holder.name);
    // What only reads is no administration: sinks that take everything have it, the log at DEBUG.
    let reads = request.method() == Method::GET || request.method() == Method::HEAD;
    let operation = (!reads || outcome == Outcome::Denied).then_some(Action::Admin);
    let resource = resource(request);
    gate.audit(&AuditRecord {
        at: gate.clock().now(),
        outcome,
        filter: checked.as_ref().err().map(|_| "admin"),
        reason,
        operation,
        resource: &resource,
        tenant: gate.default_tenant().as_str(),
        principal,
        credential: if principal.is_some() { CredentialKind::Token } else { CredentialKind::None },
        remote: request.extensions().get::<Peer>().map(Peer::remote),
        protocol: Protocol::Admin,
        trace: request.headers().get("traceparent").and_then(|trace| trace.to_str().ok()),
    });
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const VIEWER: Needs = Needs::Role(AdminRole::Viewer);

    fn code(access: &AdminAccess, token: &str, needs: Needs) -> Result<Arc<str>, &'static str> {
        let checked = access.check([token.as_bytes()].into_iter(), needs);
        checked.map(|holder| holder.name).map_err(|refused| refused.error.code.as_str())
    }

    #[test]
    fn only_the_configured_token_opens_and_none_never_does() {
        // covers: U112
        let access = AdminAccess::load(AdminTokens { admin: Some("secret-token"), ..AdminTokens::default() });
        let access = access.expect("no file");
        for good in ["Bearer secret-token", "bearer secret-token", "secret-token"] {
            assert!(code(&access, good, Needs::Role(AdminRole::Admin)).is_ok());
        }
        for bad in ["", "Bearer ", "Bearer secret-toke", "Bearer secret-token2", "Basic secret-token"] {
            assert_eq!(code(&access, bad, VIEWER), Err("unauthenticated"), "{bad:?}");
        }
        assert!(access.check([].into_iter(), VIEWER).is_err());
        for blank in [None, Some(""), Some("  ")] {
            let locked =
                AdminAccess::load(AdminTokens { admin: blank, ..AdminTokens::default() }).expect("no file");
            for presented in ["", "Bearer ", "Bearer x"] {
                assert_eq!(code(&locked, presented, VIEWER), Err("admin_locked"));
            }
        }
    }

    #[test]
    fn a_role_may_what_the_ones_before_it_may_and_metrics_have_a_token_of_their_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens.toml");
        let hex: String = digest_of("operators-own-token").iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!(
            "[[token]]\nname = \"v\"\nvalue = \"viewers-own-token\"\nrole = \"viewer\"\n\
             [[token]]\nname = \"o\"\nsha256 = \"{hex}\"\nrole = \"operator\"\n"
        );
        fs::write(&path, &text).expect("written");
        let tokens =
            AdminTokens { metrics: Some("scrape-token"), file: Some(&path), ..AdminTokens::default() };
        let access = AdminAccess::load(tokens).expect("a file");
        let roles = [AdminRole::Viewer, AdminRole::Operator, AdminRole::Admin].map(Needs::Role);
        let may = |token| roles.map(|needs| code(&access, token, needs).is_ok());
        assert_eq!(may("viewers-own-token"), [true, false, false]);
        assert_eq!(may("operators-own-token"), [true, true, false]);
        assert_eq!(code(&access, "viewers-own-token", roles[2]), Err("forbidden"));
        assert_eq!(may("scrape-token"), [false; 3]);
        assert_eq!(code(&access, "scrape-token", roles[0]), Err("forbidden"));
        assert!(code(&access, "scrape-token", Needs::Metrics).is_ok());
        assert!(code(&access, "viewers-own-token", Needs::Metrics).is_ok());

        fs::write(&path, text.replace("viewer\"", "admin\"").replace("viewers-own", "somebodys-own"))
            .expect("written");
        assert_eq!(access.reload().expect("read"), Reload::Changed);
        assert_eq!(code(&access, "viewers-own-token", VIEWER), Err("unauthenticated"));
        fs::write(&path, "[[token]]\nname = \"v\"").expect("written");
        assert!(access.reload().is_err());
        assert!(code(&access, "operators-own-token", VIEWER).is_ok(), "what was there holds");
    }

    #[test]
    fn while_it_is_locked_the_audit_hears_of_some_and_how_many_it_did_not_hear_of() {
        let locked = LockedAudit::default();
        let at = |seconds| locked.hears(Duration::from_secs(seconds));
        assert_eq!(
            (at(0), at(0), at(9), at(10), at(10), at(100)),
            (Some(0), None, None, Some(2), None, Some(1))
        );
    }

    #[test]
    fn of_a_query_only_what_is_known_is_written_down() {
        let request = |uri: &str| Request::builder().uri(uri).body(Body::empty()).expect("legal");
        let written = resource(&request("/admin/dlq/browse?topic=t&token=secret&max=3&secret"));
        assert_eq!(written, "GET /admin/dlq/browse?topic=t&\u{2026}&max=3&\u{2026}");
        assert_eq!(resource(&request("/admin/topics?token=secret")), "GET /admin/topics?\u{2026}");
        assert_eq!(resource(&request("/admin/topics")), "GET /admin/topics");
    }

    #[test]
    fn who_may_not_is_named_where_that_is_known() {
        let tokens = AdminTokens {
            admin: Some("secret-token"),
            metrics: Some("scrape-token"),
            ..AdminTokens::default()
        };
        let access = AdminAccess::load(tokens).expect("no file");
        let refused =
            |token: &str| access.check([token.as_bytes()].into_iter(), VIEWER).expect_err("refused").holder;
        let name = refused("scrape-token").map(|holder| holder.name);
        assert_eq!(name.as_deref(), Some("eventmesh.admin.security.metrics.token"));
        assert_eq!(refused("another-token"), None);
    }

    #[test]
    fn a_token_file_that_is_not_whole_stops_the_start_and_shows_no_token() {
        // covers: U10
        let path = Path::new("tokens.toml");
        for bad in [
            "",
            "x = 1",
            "[[token]]\nname = \"a\"\nrole = \"viewer\"",
            "[[token]]\nname = \"a\"\nvalue = \"a-secret\"\nrole = \"viewer\"",
            "[[token]]\nname = \"a\"\nvalue = \"${A_SECRET_TOKEN_OF_MINE}\"\nrole = \"viewer\"",
            "[[token]]\nname = \"a\"\nvalue = \"a-secret-token-of-mine\"\nrole = \"root\"",
            "[[token]]\nname = \"a\"\nvalue = \"a-secret-token-of-mine\"\nroles = \"viewer\"",
            "[[token]]\nname = \"\"\nvalue = \"a-secret-token-of-mine\"\nrole = \"viewer\"",
            "[[token]]\nname = \"a\"\nvalue = \"a-secret-token-of-mine\"\nrole = \"viewer\"\n\
             [[token]]\nname = \"b\"\nvalue = \"a-secret-token-of-mine\"\nrole = \"admin\"",
            "[[token]]\nname = \"a\"\nsha256 = \"00\"\nrole = \"viewer\"",
        ] {
            let error = parse(path, bad).map(|_| ()).expect_err(bad).to_string();
            assert!(error.starts_with("tokens.toml:") && !error.contains("secret"), "{error}");
        }
    }
}
