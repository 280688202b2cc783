//! What a server serves: something that answers requests, whichever way it finds out how.

use std::{convert::Infallible, future::Future};

use axum::{Router, extract::Request, response::Response};
use tower::Service as _;

use crate::Peer;

/// Answers the requests of a server.
pub trait Answers: Clone + Send + Sync + 'static {
    /// The answer to a request of this peer.
    fn answer(&self, request: Request, peer: &Peer) -> impl Future<Output = Response> + Send;
}

/// A router of axum: its handlers find the [`Peer`] in the extensions.
impl Answers for Router {
    async fn answer(&self, mut request: Request, peer: &Peer) -> Response {
        request.extensions_mut().insert(peer.clone());
        // A router is always ready.
        let answered: Result<Response, Infallible> = self.clone().call(request).await;
        match answered {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}
