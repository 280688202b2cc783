//! The admin gate: one token, compared in constant time.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::header::AUTHORIZATION;
use mesh_ingress::http::{ApiError, ErrorCode};
use subtle::ConstantTimeEq;

/// The token of the admin port, if one is configured.
#[derive(Clone, Default)]
pub struct AdminToken(Option<std::sync::Arc<str>>);

impl AdminToken {
    /// The configured token. `None` locks everything but health and readiness.
    pub fn new(token: Option<&str>) -> Self {
        Self(token.filter(|token| !token.trim().is_empty()).map(Into::into))
    }

    /// Whether a request carries the token.
    pub(crate) fn admits(&self, headers: &http::HeaderMap) -> bool {
        self.check(headers.get_all(AUTHORIZATION).iter().map(|value| value.as_bytes())).is_ok()
    }

    /// Whether a request with these `Authorization` values may go on.
    fn check<'a>(&self, mut values: impl Iterator<Item = &'a [u8]>) -> Result<(), ApiError> {
        let Some(token) = &self.0 else {
            return Err(ApiError::new(
                ErrorCode::AdminLocked,
                "no admin token is configured (eventmesh.admin.token): only health and readiness are open",
            ));
        };
        let refused = || ApiError::new(ErrorCode::Unauthenticated, "the admin token is missing or wrong");
        let value = values.next().ok_or_else(refused)?;
        if values.next().is_some() {
            return Err(ApiError::new(ErrorCode::InvalidArgument, "more than one Authorization header"));
        }
        let presented = match value.split_first_chunk::<7>() {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"bearer ") => rest.trim_ascii(),
            _ => value.trim_ascii(),
        };
        if bool::from(presented.ct_eq(token.as_bytes())) { Ok(()) } else { Err(refused()) }
    }
}

impl std::fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "AdminToken(set)" } else { "AdminToken(none)" })
    }
}

/// Lets a request through that carries the token.
pub(crate) async fn guard(State(token): State<AdminToken>, request: Request, next: Next) -> Response {
    let values = request.headers().get_all(AUTHORIZATION).iter().map(|value| value.as_bytes());
    match token.check(values) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_configured_token_opens_and_none_never_does() {
        // covers: U112
        let token = AdminToken::new(Some("secret-token"));
        for good in [&b"Bearer secret-token"[..], b"bearer secret-token", b"secret-token"] {
            assert!(token.check([good].into_iter()).is_ok());
        }
        for bad in
            [&b""[..], b"Bearer ", b"Bearer secret-toke", b"Bearer secret-token2", b"Basic secret-token"]
        {
            assert!(token.check([bad].into_iter()).is_err(), "{bad:?}");
        }
        assert!(token.check([].into_iter()).is_err());
        for blank in [None, Some(""), Some("  ")] {
            let locked = AdminToken::new(blank);
            for presented in [&b""[..], b"Bearer ", b"Bearer x"] {
                assert!(locked.check([presented].into_iter()).is_err());
            }
        }
    }
}
