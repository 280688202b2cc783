//! What fetches key sets. The client that speaks HTTPS is not in this crate.

use std::{fmt, future::Future, pin::Pin};

use thiserror::Error;

/// Why a key set could not be fetched, for the operator.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct FetchFailed(pub String);

/// What is fetched, later.
pub type Fetching<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, FetchFailed>> + Send + 'a>>;

/// Fetches the documents of issuers.
pub trait KeyFetcher: fmt::Debug + Send + Sync {
    /// The body that a GET of `url` is answered with, if the status is 200 and the body has `most` bytes or fewer.
    /// The certificate of the host is verified. Redirects are not followed. The caller bounds the time and drops
    /// the future when it is over.
    fn fetch<'a>(&'a self, url: &'a str, most: usize) -> Fetching<'a>;
}
