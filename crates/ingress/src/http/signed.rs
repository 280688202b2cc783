//! The head of a request as signatures cover it.

use http::{HeaderName, HeaderValue, request::Parts};
use mesh_gate::SignedHead;

/// Whether a header decides what a request means: which event it is, and how its body is read. Of the others the routes read,
/// `Authorization` is checked against the signature's principal, `Host` and `Origin` can only refuse, and an encoding of the
/// body is refused whatever it is.
fn is_speaking(name: &str) -> bool {
    name == "content-type" || name.starts_with("ce-")
}

/// Gives the head to what looks at its signature.
pub(super) fn with_head<T>(parts: &Parts, verify: impl FnOnce(&SignedHead<'_>) -> T) -> T {
    let header = |name: &str| -> Vec<&[u8]> {
        let values: Vec<&[u8]> = parts.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
        match parts.uri.authority() {
            // HTTP/2 has it in the target.
            Some(authority) if values.is_empty() && name == "host" => vec![authority.as_str().as_bytes()],
            _ => values,
        }
    };
    let names = parts.headers.keys().map(HeaderName::as_str);
    let speaking: Vec<&str> = names.filter(|name| is_speaking(name)).collect();
    verify(&SignedHead {
        speaking: &speaking,
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query(),
        header: &header,
    })
}
