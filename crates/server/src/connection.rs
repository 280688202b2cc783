//! One connection: hyper drives the protocol, the watch says when it has kept us waiting too long.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::Version;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    Answers, Peer, PeerCertificate,
    watch::{InFlight, LOOK_AGAIN, Watch},
};

/// What the requests of a connection share.
struct Served<A> {
    answers: A,
    peer: Peer,
    watch: Arc<Watch>,
}

/// Serves a connection until it ends, is told to, or runs out of patience.
pub(crate) async fn serve<S, A>(
    socket: S,
    remote: SocketAddr,
    certificate: Option<PeerCertificate>,
    watch: Arc<Watch>,
    protocol: &Builder<TokioExecutor>,
    answers: A,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Answers,
{
    let peer = Peer::new(remote, certificate);
    let served = Arc::new(Served { answers, peer, watch: watch.clone() });
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (served, http2) = (served.clone(), request.version() == Version::HTTP_2);
        // In flight until its answer is written.
        let guard = served.watch.request(http2);
        async move {
            let answer = served.answers.answer(request.map(Body::new), &served.peer).await;
            Ok::<_, Infallible>(answer.map(|body| WatchedBody { body, _guard: guard }))
        }
    });
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

/// A body that keeps its request in flight.
struct WatchedBody {
    body: Body,
    _guard: InFlight,
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
