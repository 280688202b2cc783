//! Which protocol a connection speaks, by its first bytes, which the protocol's server then reads again.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// What every connection of HTTP/2 begins with (RFC 9113, 3.4), with TLS and without.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A socket of which something was read already.
#[derive(Debug)]
pub(crate) struct Rewound<S> {
    before: Bytes,
    socket: S,
}

/// Reads as much as it takes to tell; `true`: it is HTTP/2.
///
/// # Errors
/// The connection broke. One that ended before it said anything is none of HTTP/2.
pub(crate) async fn is_http2<S>(mut socket: S) -> io::Result<(bool, Rewound<S>)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut read = [0; HTTP2.len()];
    let mut length = 0;
    while length < HTTP2.len() && read[..length] == HTTP2[..length] {
        match socket.read(&mut read[length..]).await? {
            0 => break,
            more => length += more,
        }
    }
    Ok((read[..length] == *HTTP2, Rewound { before: Bytes::copy_from_slice(&read[..length]), socket }))
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.before.is_empty() {
            return Pin::new(&mut this.socket).poll_read(cx, buffer);
        }
        let length = this.before.len().min(buffer.remaining());
        buffer.put_slice(&this.before[..length]);
        this.before.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn the_protocol_is_told_by_the_first_bytes_and_nothing_of_them_is_lost() {
        let long = [HTTP2, b"more"].concat();
        for (sent, expected) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], false),
            (b"P", false),
            (b"PRI * HTTP/1.1\r\n\r\n", false),
            (b"POST / HTTP/1.1\r\n\r\n", false),
            (b"", false),
            (HTTP2, true),
            (&long, true),
        ] {
            for chunk in [1, 5, 100] {
                let (mut client, server) = duplex(chunk);
                let bytes = sent.to_vec();
                let sending = async move {
                    client.write_all(&bytes).await.expect("it is read");
                    drop(client);
                };
                let reading = async {
                    let (is_http2, mut socket) = is_http2(server).await.expect("it does not break");
                    let mut all = Vec::new();
                    socket.read_to_end(&mut all).await.expect("it does not break");
                    (is_http2, all)
                };
                let ((), (told, all)) = tokio::join!(sending, reading);
                assert_eq!((told, &all[..]), (expected, sent), "{sent:?} by {chunk}");
            }
        }
    }
}
