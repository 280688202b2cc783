//! The body of a poll's answer: it knows whether its deliveries were taken for sending.
//!
//! Dropped before hyper took the bytes (the client is gone, the connection broke), the deliveries go back
//! uncounted. The share of the budget is held until the bytes themselves are gone.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use mesh_delivery::Answer;
use mesh_server::{AnswerLease, charged};

/// The body.
#[derive(Debug)]
pub(super) struct PollBody {
    answer: Answer,
    text: Bytes,
}

impl PollBody {
    pub(super) fn new(answer: Answer, text: Vec<u8>, lease: AnswerLease) -> Self {
        Self { answer, text: charged(text, lease) }
    }
}

impl Body for PollBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if this.text.is_empty() {
            return Poll::Ready(None);
        }
        this.answer.delivered();
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.text)))))
    }

    fn is_end_stream(&self) -> bool {
        self.text.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.text.len() as u64)
    }
}
