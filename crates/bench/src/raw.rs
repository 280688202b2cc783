//! A bare HTTP/1.1 client connection: writes prepared bytes, reads a whole answer.

use anyhow::{Context as _, bail};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// A kept connection.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

/// An answer: its status and where its body is in the connection's buffer.
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a [u8],
}

impl Connection {
    /// Connects to `host:port`.
    pub(crate) async fn open(address: &str) -> anyhow::Result<Self> {
        let stream =
            TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; 16 << 10], filled: 0 })
    }

    /// Sends a prepared request and reads its answer, which must carry a `Content-Length`.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        self.filled = 0;
        let (status, start, length) = loop {
            if self.filled == self.buffer.len() {
                self.buffer.resize(2 * self.filled, 0);
            }
            let read = self.stream.read(&mut self.buffer[self.filled..]).await?;
            if read == 0 {
                bail!("the server closed the connection");
            }
            self.filled += read;
            if let Some(head) = head(&self.buffer[..self.filled])? {
                break head;
            }
        };
        let end = start + length;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        while self.filled < end {
            let read = self.stream.read(&mut self.buffer[self.filled..end]).await?;
            if read == 0 {
                bail!("the server closed the connection within an answer");
            }
            self.filled += read;
        }
        Ok(Answer { status, body: &self.buffer[start..end] })
    }
}

/// A prepared POST.
pub(crate) fn post(address: &str, path: &str, kind: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Status, start of the body and its length, once the head is complete.
fn head(bytes: &[u8]) -> anyhow::Result<Option<(u16, usize, usize)>> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..end]).context("a head that is not text")?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|status| status.parse().ok());
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok());
    Ok(Some((status.context("no status")?, end + 4, length.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_complete() {
        assert_eq!(head(b"HTTP/1.1 202 Accepted\r\ncontent-le").expect("so far"), None);
        let whole = b"HTTP/1.1 202 Accepted\r\ncontent-length: 5\r\n\r\nhello";
        assert_eq!(head(whole).expect("whole"), Some((202, whole.len() - 5, 5)));
    }
}
