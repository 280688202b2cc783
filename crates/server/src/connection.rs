//! One connection: hyper drives HTTP/1, `http2` drives HTTP/2, the watch says when it has kept us waiting too long.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{body::Body, extract::Request, response::Response};
use bytes::Bytes;
use futures_util::{FutureExt as _, future::Either};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use mesh_base::{Counter, Stop};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    Answers, ErrorCode, Hosts, Peer, PeerCertificate, head, hosts,
    http2::{self, Http2Settings},
    preface::is_http2,
    refuse,
    watch::{InFlight, LOOK_AGAIN, Watch},
};

/// Who answers requests that are for this server.
#[derive(Clone)]
pub(crate) struct Guarded<A> {
    pub(crate) hosts: Option<Hosts>,
    pub(crate) foreign: Counter,
    pub(crate) answers: A,
}

impl<A: Answers> Guarded<A> {
    /// No `async fn`, which would keep room for the request beside that of the future that has it.
    fn answer<'a>(
        &'a self,
        request: Request,
        peer: &'a Peer,
    ) -> Either<impl Future<Output = Response> + Send + 'a, impl Future<Output = Response> + Send + 'a> {
        let refusal = head::refusal(&request).or_else(|| {
            hosts::refusal(self.hosts.as_ref(), request.version(), request.headers(), request.uri())
        });
        match refusal {
            None => Either::Left(self.answers.answer(request, peer)),
            Some(error) => {
                if error.code == ErrorCode::Forbidden {
                    self.foreign.inc();
                }
                // In a box: hardly any request takes this room.
                Either::Right(Box::pin(async move {
                    let (parts, body) = request.into_parts();
                    refuse(error, &parts, body, false).await
                }))
            }
        }
    }
}

/// What the requests of a connection share.
struct Served<A> {
    answers: Guarded<A>,
    peer: Peer,
    watch: Arc<Watch>,
}

/// How connections are served, whatever they speak.
#[derive(Clone, Debug)]
pub(crate) struct Protocols {
    pub(crate) http1: http1::Builder,
    pub(crate) http2: Http2Settings,
}

/// Serves a connection until it ends, is told to, or runs out of patience.
pub(crate) async fn serve<S, A>(
    socket: S,
    remote: SocketAddr,
    certificate: Option<PeerCertificate>,
    watch: Arc<Watch>,
    protocols: &Protocols,
    answers: Guarded<A>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Answers,
{
    let peer = Peer::new(remote, certificate, watch.clone());
    let served = Arc::new(Served { answers, peer, watch: watch.clone() });
    let (is_http2, socket) = match until(&watch, remote, || {}, is_http2(socket)).await {
        Some(Ok(told)) => told,
        Some(Err(error)) => {
            tracing::debug!(%remote, %error, "connection ended");
            return;
        }
        None => return,
    };
    let ended = if is_http2 {
        let finish = Stop::new();
        let finishing = || finish.signal();
        let service = |request| served.clone().answer(request, true);
        // Apart from the task: most connections speak HTTP/1 and should not hold room for this.
        let serving = Box::pin(http2::serve(socket, protocols.http2, finish.clone(), service));
        let ended = until(&watch, remote, finishing, serving).await;
        ended.map(|ended| ended.map_err(|error| error.to_string()))
    } else {
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            served.clone().answer(request.map(Body::new), false).map(Ok::<_, Infallible>)
        });
        let connection = protocols.http1.serve_connection(TokioIo::new(socket), service).with_upgrades();
        let finish = AtomicBool::new(false);
        let mut connection = pin!(connection);
        let serving = poll_fn(|cx| {
            if finish.swap(false, Ordering::Relaxed) {
                connection.as_mut().graceful_shutdown();
            }
            connection.as_mut().poll(cx)
        });
        let ended = until(&watch, remote, || finish.store(true, Ordering::Relaxed), serving).await;
        ended.map(|ended| ended.map_err(|error| error.to_string()))
    };
    if let Some(Err(error)) = ended {
        tracing::debug!(%remote, error, "connection ended");
    }
}

/// Drives a connection to its end. `None`: it ran out of patience, or was told to end at once. `finish` is called when it is
/// told to end after what is under way, and the connection is looked at again.
async fn until<F: Future>(
    watch: &Watch,
    remote: SocketAddr,
    finish: impl Fn(),
    serving: F,
) -> Option<F::Output> {
    let mut serving = pin!(serving);
    let mut timer = pin!(tokio::time::sleep(watch.left()));
    let mut finishing = false;
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(ended) = serving.as_mut().poll(cx) {
                return Poll::Ready(Some(ended));
            }
            watch.register(cx.waker());
            if watch.is_ending() {
                return Poll::Ready(None);
            }
            if watch.is_finishing() && !finishing {
                finishing = true;
                finish();
                timer.as_mut().reset(tokio::time::Instant::now() + LOOK_AGAIN);
                continue;
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let left = watch.left();
            if left == Duration::ZERO && !finishing && !watch.is_known() {
                // It is told, where it speaks HTTP/2, and given a moment to read it.
                watch.end(false);
                continue;
            }
            if left == Duration::ZERO {
                tracing::debug!(%remote, "connection kept us waiting too long; closed");
                return Poll::Ready(None);
            }
            timer.as_mut().reset(tokio::time::Instant::now() + left);
        }
    })
    .await
}

impl<A: Answers> Served<A> {
    /// The answer to a request, which is in flight until its answer is written.
    fn answer(
        self: Arc<Self>,
        request: Request,
        http2: bool,
    ) -> impl Future<Output = http::Response<WatchedBody>> + Send + 'static {
        let guard = self.watch.request(http2);
        async move {
            let answer = self.answers.answer(request, &self.peer).await;
            answer.map(|body| WatchedBody { body, _guard: guard })
        }
    }
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
