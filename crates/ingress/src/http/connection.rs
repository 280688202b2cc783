//! One connection: hyper drives the protocol, the watch says when it has kept us waiting too long.

use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body, extract::Request, response::Response};
use bytes::Bytes;
use http::Version;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::{body::Incoming, service::Service};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use mesh_gate::CertificateNames;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Service as _;

use super::{
    connection_tenants::ConnectionTenants,
    watch::{InFlight, LOOK_AGAIN, Watch},
};

/// Who is at the other end of a connection; in the extensions of each of its requests.
#[derive(Clone, Debug)]
pub struct Peer(Arc<AtOtherEnd>);

#[derive(Debug)]
struct AtOtherEnd {
    remote: SocketAddr,
    certificate: Option<Arc<CertificateNames>>,
    tenants: ConnectionTenants,
}

impl Peer {
    /// Its address.
    pub fn remote(&self) -> SocketAddr {
        self.0.remote
    }

    /// The certificate it showed.
    pub(super) fn certificate(&self) -> Option<&CertificateNames> {
        self.0.certificate.as_deref()
    }

    /// The tenants that the connection counts for.
    pub(super) fn tenants(&self) -> &ConnectionTenants {
        &self.0.tenants
    }
}

/// Serves a connection until it ends, is told to, or runs out of patience.
pub(super) async fn serve<S>(
    socket: S,
    remote: SocketAddr,
    certificate: Option<Arc<CertificateNames>>,
    watch: Arc<Watch>,
    protocol: &Builder<TokioExecutor>,
    router: Router,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let peer = Peer(Arc::new(AtOtherEnd { remote, certificate, tenants: ConnectionTenants::default() }));
    let service = Watched { router, peer, watch: watch.clone() };
    let mut connection = pin!(protocol.serve_connection_with_upgrades(TokioIo::new(socket), service));
    let mut timer = pin!(tokio::time::sleep(watch.left()));
    let mut finishing = false;
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                if let Err(error) = ended {
                    tracing::debug!(%remote, %error, "connection ended");
                }
                return Poll::Ready(());
            }
            watch.register(cx.waker());
            if watch.is_ending() {
                return Poll::Ready(());
            }
            if watch.is_finishing() && !finishing {
                finishing = true;
                connection.as_mut().graceful_shutdown();
                timer.as_mut().reset(tokio::time::Instant::now() + LOOK_AGAIN);
                continue;
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let left = watch.left();
            if left == Duration::ZERO {
                tracing::debug!(%remote, "connection kept us waiting too long; closed");
                return Poll::Ready(());
            }
            timer.as_mut().reset(tokio::time::Instant::now() + left);
        }
    })
    .await;
}

/// The router as hyper's service, with every request counted until its answer is written.
struct Watched {
    router: Router,
    peer: Peer,
    watch: Arc<Watch>,
}

impl Service<hyper::Request<Incoming>> for Watched {
    type Response = http::Response<WatchedBody>;
    type Error = std::convert::Infallible;
    type Future = Answering;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        let guard = self.watch.request(request.version() == Version::HTTP_2);
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(self.peer.clone());
        // A router is always ready.
        let answer = self.router.clone().call(request);
        Answering { answer, guard: Some(guard) }
    }
}

/// The router at work.
struct Answering {
    answer: axum::routing::future::RouteFuture<std::convert::Infallible>,
    guard: Option<InFlight>,
}

impl Future for Answering {
    type Output = Result<http::Response<WatchedBody>, std::convert::Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let answer: Poll<Result<Response, _>> = Pin::new(&mut this.answer).poll(cx);
        answer.map(|answer| {
            let guard = this.guard.take();
            answer.map(|answer| answer.map(|body| WatchedBody { body, _guard: guard }))
        })
    }
}

/// A body that keeps its request in flight.
struct WatchedBody {
    body: Body,
    _guard: Option<InFlight>,
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
