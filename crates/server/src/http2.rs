//! HTTP/2 on one connection, on the `h2` crate itself.
//!
//! hyper's server keeps the half of a stream that answers to itself, and so nobody can send `100 Continue` there: a client
//! that waits to be asked for its body waits for ever. Here a body that somebody reads asks for itself. Otherwise it is what
//! hyper does: streams are answered side by side, a client that does not read holds up its own stream, a peer that does not
//! answer a ping is gone.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, UNIX_EPOCH},
};

use axum::{body::Body, extract::Request};
use bytes::Bytes;
use h2::{Ping, RecvStream, SendStream, server::SendResponse};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, DATE, EXPECT, TRANSFER_ENCODING, UPGRADE},
};
use http_body::{Body as HttpBody, Frame, SizeHint};
use mesh_base::{Clock, Stop};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
    time::Instant,
};

use crate::head;

/// Streams at once. Each can hold a head before anybody knows whose it is.
const STREAMS: u32 = 128;
/// The largest list of headers that is read, by RFC 9113's count: 32 bytes more for each.
const HEADERS: u32 = (head::READ + 32 * head::READ_FIELDS) as u32;
/// What may be on its way to us before it is read: of a stream, and of the connection.
const WINDOW: u32 = 1 << 20;

/// How a connection is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Http2Settings {
    /// How often the peer is asked whether it is there.
    pub(crate) ping_every: Duration,
    /// How long it has to answer.
    pub(crate) pong_within: Duration,
    /// How long an answer may stand still because its client makes no room for it, whatever its connection does.
    pub(crate) write: Duration,
    /// What answers are dated by.
    pub(crate) clock: Clock,
}

/// Serves a connection until the peer or `finish` ends it; after `finish` what is under way is still answered. `answer` is
/// called for each request, in a task of its own that ends with the connection.
pub(crate) async fn serve<S, F, R, B>(
    socket: S,
    settings: Http2Settings,
    finish: Stop,
    answer: F,
) -> Result<(), h2::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Fn(Request) -> R,
    R: Future<Output = http::Response<B>> + Send + 'static,
    B: HttpBody<Data = Bytes, Error: Send> + Send + 'static,
{
    let mut connection = h2::server::Builder::new()
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADERS)
        .handshake::<_, Bytes>(socket)
        .await?;
    let mut pings = connection.ping_pong().expect("it is taken once");
    let mut is_finishing = false;
    let mut waits_for_pong = false;
    let mut timer = std::pin::pin!(tokio::time::sleep(settings.ping_every));
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            next = connection.accept() => match next {
                None => return Ok(()),
                Some(Err(error)) => return Err(error),
                Some(Ok((request, respond))) => {
                    let stream = Answering {
                        respond: Arc::new(Mutex::new(respond)),
                        clock: settings.clock,
                        patience: settings.write,
                    };
                    let request = stream.received(request);
                    streams.spawn(stream.run(answer(request)));
                }
            },
            _ = streams.join_next(), if !streams.is_empty() => {}
            () = finish.wait(), if !is_finishing => {
                is_finishing = true;
                connection.graceful_shutdown();
            }
            pong = poll_fn(|cx| pings.poll_pong(cx)), if waits_for_pong => {
                pong?;
                waits_for_pong = false;
                timer.as_mut().reset(Instant::now() + settings.ping_every);
            }
            () = &mut timer => {
                if waits_for_pong {
                    tracing::debug!("the peer of an HTTP/2 connection does not answer");
                    connection.abrupt_shutdown(h2::Reason::NO_ERROR);
                    return Ok(());
                }
                pings.send_ping(Ping::opaque())?;
                waits_for_pong = true;
                timer.as_mut().reset(Instant::now() + settings.pong_within);
            }
        }
    }
}

/// One stream on its way to its answer.
struct Answering {
    respond: Arc<Mutex<SendResponse<Bytes>>>,
    clock: Clock,
    patience: Duration,
}

impl Answering {
    /// The request with the body that the routes read.
    fn received(&self, request: http::Request<RecvStream>) -> Request {
        let (parts, stream) = request.into_parts();
        let declared =
            parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let waits = parts
            .headers
            .get(EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let asks = (waits && !stream.is_end_stream()).then(|| self.respond.clone());
        Request::from_parts(parts, Body::new(Received { stream, declared, asks }))
    }

    /// Answers, unless the client takes the request back first.
    async fn run<B>(self, answer: impl Future<Output = http::Response<B>>)
    where
        B: HttpBody<Data = Bytes>,
    {
        let answered = tokio::select! {
            response = answer => response,
            _ = poll_fn(|cx| self.respond.lock().poll_reset(cx)) => return,
        };
        if let Err(error) = self.send(answered).await {
            tracing::debug!(%error, "an HTTP/2 stream ended before its answer was written");
        }
    }

    async fn send<B>(&self, response: http::Response<B>) -> Result<(), h2::Error>
    where
        B: HttpBody<Data = Bytes>,
    {
        let (mut head, body) = response.into_parts();
        let mut body = std::pin::pin!(body);
        self.complete(&mut head.headers, head.status, &*body);
        let ends = body.is_end_stream();
        let mut stream = self.respond.lock().send_response(http::Response::from_parts(head, ()), ends)?;
        if ends {
            return Ok(());
        }
        loop {
            let frame = tokio::select! {
                frame = poll_fn(|cx| body.as_mut().poll_frame(cx)) => frame,
                reason = poll_fn(|cx| stream.poll_reset(cx)) => {
                    reason?;
                    return Ok(());
                }
            };
            match frame {
                None => return stream.send_data(Bytes::new(), true),
                Some(Err(_)) => {
                    stream.send_reset(h2::Reason::INTERNAL_ERROR);
                    return Ok(());
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        let ends = body.is_end_stream();
                        if !send_data(&mut stream, data, ends, self.patience).await? {
                            return Ok(());
                        }
                        if ends {
                            return Ok(());
                        }
                    }
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            return stream.send_trailers(trailers);
                        }
                    }
                },
            }
        }
    }

    /// Puts in what every answer has, and takes out what HTTP/2 has frames for.
    fn complete(&self, headers: &mut HeaderMap, status: StatusCode, body: &impl HttpBody) {
        for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE] {
            headers.remove(name);
        }
        for name in ["keep-alive", "proxy-connection"] {
            headers.remove(name);
        }
        if !headers.contains_key(DATE) {
            let now = UNIX_EPOCH + Duration::from_millis(self.clock.now().0);
            if let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(now)) {
                headers.insert(DATE, date);
            }
        }
        let has_none = status.is_informational() || status == StatusCode::NO_CONTENT;
        if let Some(length) =
            body.size_hint().exact().filter(|_| !has_none && !headers.contains_key(CONTENT_LENGTH))
        {
            headers.insert(CONTENT_LENGTH, length.into());
        }
    }
}

/// Sends bytes as the client makes room for them; `false`: it made none for so long that the stream was reset, or the stream
/// is no longer one that takes data.
async fn send_data(
    stream: &mut SendStream<Bytes>,
    mut data: Bytes,
    ends: bool,
    patience: Duration,
) -> Result<bool, h2::Error> {
    if data.is_empty() {
        return stream.send_data(data, ends).map(|()| true);
    }
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        if stream.capacity() == 0 {
            match tokio::time::timeout(patience, room(stream)).await {
                Ok(Ok(true)) => {}
                Ok(other) => return other,
                Err(_elapsed) => {
                    tracing::debug!("an HTTP/2 stream whose client does not read was reset");
                    stream.send_reset(h2::Reason::CANCEL);
                    return Ok(false);
                }
            }
        }
        let part = data.split_to(stream.capacity().min(data.len()));
        stream.send_data(part, ends && data.is_empty())?;
    }
    Ok(true)
}

/// Waits for room; `false`: the stream takes no more data.
async fn room(stream: &mut SendStream<Bytes>) -> Result<bool, h2::Error> {
    while stream.capacity() == 0 {
        match poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(capacity) => drop(capacity?),
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// The body of a request. The first read asks the client for it, if the client waits for that.
struct Received {
    stream: RecvStream,
    declared: Option<u64>,
    asks: Option<Arc<Mutex<SendResponse<Bytes>>>>,
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let this = self.get_mut();
        match this.stream.poll_data(cx) {
            Poll::Ready(Some(Ok(data))) => {
                this.asks = None;
                this.declared = this.declared.map(|left| left.saturating_sub(data.len() as u64));
                // It has been taken: the client may send as much more.
                this.stream.flow_control().release_capacity(data.len())?;
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error))),
            Poll::Ready(None) => match this.stream.poll_trailers(cx) {
                Poll::Ready(Ok(Some(trailers))) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                Poll::Ready(Ok(None)) => Poll::Ready(None),
                Poll::Ready(Err(error)) => Poll::Ready(Some(Err(error))),
                Poll::Pending => Poll::Pending,
            },
            Poll::Pending => {
                if let Some(asks) = this.asks.take() {
                    let mut go_on = http::Response::new(());
                    *go_on.status_mut() = StatusCode::CONTINUE;
                    // A stream that is gone by now is noticed by the next read.
                    drop(asks.lock().send_informational(go_on));
                }
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.declared.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
