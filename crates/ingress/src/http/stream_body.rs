//! The body of a stream: pulls from the client's mailbox when the connection has room, and only then.
//!
//! Nothing is buffered here. What was pulled counts as written; dropping the body (the client is gone, or did
//! not read for too long) ends the stream, and the rest returns. Silence is broken by a comment, and a last
//! comment says why the server ends a stream.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame};
use mesh_delivery::{ClientStream, Delivery, Waiting};
use mesh_frame::{Epoch, single_line};
use mesh_server::{AnswerShare, charged};
use tokio::time::{Instant, Sleep, sleep};

use super::{
    delivery_json::{DeliveryWriter, size_of},
    edge::HttpEdge,
};

/// How much is written at once, about.
const FRAME_BYTES: usize = 64 << 10;
/// How long to wait when too much is being sent already.
const BUDGET_PAUSE: Duration = Duration::from_millis(100);

/// The body.
pub(super) struct StreamBody {
    edge: HttpEdge,
    answers: AnswerShare,
    /// `None`: it ended.
    stream: Option<ClientStream>,
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    silence: Pin<Box<Sleep>>,
    over_budget: Option<Pin<Box<Sleep>>>,
}

impl StreamBody {
    /// The body of a stream, whose writes count for what `answers` is the share of.
    pub(super) fn new(edge: HttpEdge, answers: AnswerShare, stream: ClientStream) -> Self {
        let stop = edge.stop().clone();
        Self {
            stream: Some(stream),
            stop: Box::pin(async move { stop.wait().await }),
            silence: Box::pin(sleep(edge.stream_keep_alive())),
            over_budget: None,
            answers,
            edge,
        }
    }

    /// The next thing to write.
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(stream) = &self.stream else { return Poll::Ready(None) };
        if self.stop.as_mut().poll(cx).is_ready() {
            let reason = self.stream.take().map_or("", ClientStream::stop);
            return self.last(reason);
        }
        if self.over_budget.as_mut().is_some_and(|pause| pause.as_mut().poll(cx).is_ready()) {
            self.over_budget = None;
        }
        while self.over_budget.is_none() {
            match stream.poll_waiting(cx) {
                Poll::Pending => break,
                Poll::Ready(Waiting::Closed(reason)) => return self.last(reason),
                Poll::Ready(Waiting::Comment(word)) => return Poll::Ready(Some(comment(word))),
                Poll::Ready(Waiting::Items { first, all }) => {
                    let bytes = all.min(FRAME_BYTES).max(first);
                    let Some(lease) = self.answers.take(bytes) else {
                        let mut pause = Box::pin(sleep(BUDGET_PAUSE));
                        if pause.as_mut().poll(cx).is_pending() {
                            self.over_budget = Some(pause);
                        }
                        continue;
                    };
                    let deliveries = stream.take(bytes);
                    if !deliveries.is_empty() {
                        let text = written(&deliveries, self.edge.intake().epoch());
                        return Poll::Ready(Some(charged(text, lease)));
                    }
                }
            }
        }
        self.silence.as_mut().poll(cx).map(|()| Some(comment("keep-alive")))
    }

    /// The last comment; the stream ends with it.
    fn last(&mut self, reason: &str) -> Poll<Option<Bytes>> {
        self.stream = None;
        Poll::Ready(Some(comment(reason)))
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let polled = this.poll_bytes(cx);
        if let Poll::Ready(Some(_)) = polled {
            let silence = this.edge.stream_keep_alive();
            this.silence.as_mut().reset(Instant::now() + silence);
        }
        polled.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

fn comment(word: &str) -> Bytes {
    format!(": {word}\n\n").into()
}

/// Events whose id is the delivery's, so that it can be settled by it.
fn written(deliveries: &[Delivery], epoch: Epoch) -> Vec<u8> {
    let bytes = deliveries.iter().map(|delivery| size_of(delivery) + delivery.id.len() + 16).sum();
    let mut text = Vec::with_capacity(bytes);
    let mut writer = DeliveryWriter::new(epoch);
    for delivery in deliveries {
        text.extend_from_slice(b"id: ");
        text.extend_from_slice(delivery.id.as_bytes());
        text.extend_from_slice(b"\ndata: ");
        writer.push(&mut text, delivery, &single_line(delivery.record.json().clone()));
        text.extend_from_slice(b"\n\n");
    }
    text
}
