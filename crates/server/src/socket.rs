//! The socket of a connection as hyper sees it: it tells the watch what moves, and holds the connection's
//! place among all connections until it is closed, also after an upgrade.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
};

use crate::watch::Watch;

/// A socket that is watched.
#[derive(Debug)]
pub(crate) struct WatchedSocket {
    stream: TcpStream,
    watch: Arc<Watch>,
    _place: OwnedSemaphorePermit,
}

impl WatchedSocket {
    pub(crate) fn new(stream: TcpStream, watch: Arc<Watch>, place: OwnedSemaphorePermit) -> Self {
        Self { stream, watch, _place: place }
    }

    /// Whether the client begins as one does that speaks HTTP without TLS. Waits for its first byte, and leaves it.
    pub(crate) async fn speaks_plain_http(&self) -> io::Result<bool> {
        let mut first = [0];
        // A handshake begins with the byte 22, a request with the letter of a method.
        Ok(self.stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase())
    }
}

impl AsyncRead for WatchedSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let result = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            this.watch.bytes_came();
        }
        result
    }
}

impl AsyncWrite for WatchedSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.watch.writing(result.is_pending());
        result
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.watch.writing(result.is_pending());
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
