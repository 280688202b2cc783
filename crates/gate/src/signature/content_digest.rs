//! `Content-Digest` (RFC 9530): whether the body is the one that was signed.

use ring::digest::{SHA256, SHA512, digest};
use sfv::ListEntry;

use super::{SignedHead, input::dictionary};

/// Checks the body against every digest that is known here, SHA-256 and SHA-512; one must be there.
pub(super) fn check(head: &SignedHead<'_>, body: &[u8]) -> Result<(), &'static str> {
    let digests = dictionary(head, "content-digest")?.ok_or("the header Content-Digest is missing")?;
    let mut is_known = false;
    for (name, algorithm) in [("sha-256", &SHA256), ("sha-512", &SHA512)] {
        let Some(given) = digests.get(name) else { continue };
        let given = match given {
            ListEntry::Item(item) => item.bare_item.as_byte_sequence(),
            ListEntry::InnerList(_) => None,
        };
        if given != Some(digest(algorithm, body).as_ref()) {
            return Err("the body is not the one of Content-Digest");
        }
        is_known = true;
    }
    if is_known { Ok(()) } else { Err("Content-Digest has neither sha-256 nor sha-512") }
}
