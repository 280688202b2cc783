//! A bare client of server-sent events: reads the text of one event after the other.

use anyhow::{Context as _, bail, ensure};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// An open stream.
pub(crate) struct Events {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
    filled: usize,
}

impl Events {
    /// Opens a stream of `host:port`.
    pub(crate) async fn open(address: &str, path: &str) -> anyhow::Result<Self> {
        let mut stream =
            TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut events = Self { stream, buffer: vec![0; 4 << 10], start: 0, filled: 0 };
        let head = events.until(b"\r\n\r\n").await?;
        ensure!(head.starts_with(b"HTTP/1.1 200"), "{path}: {}", String::from_utf8_lossy(head));
        Ok(events)
    }

    /// The text of the next event or comment. Between events stand the lengths of chunks, which are read along:
    /// an event is looked through for what is known to be in it.
    pub(crate) async fn next(&mut self) -> anyhow::Result<&[u8]> {
        self.until(b"\n\n").await
    }

    async fn until(&mut self, end: &[u8]) -> anyhow::Result<&[u8]> {
        let mut searched = self.start;
        loop {
            if let Some(place) = memchr::memmem::find(&self.buffer[searched..self.filled], end) {
                let text = self.start..searched + place;
                self.start = text.end + end.len();
                return Ok(&self.buffer[text]);
            }
            searched = self.filled.saturating_sub(end.len() - 1).max(self.start);
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.filled, 0);
                self.filled -= self.start;
                searched -= self.start;
                self.start = 0;
            }
            if self.filled == self.buffer.len() {
                self.buffer.resize(2 * self.filled, 0);
            }
            match self.stream.read(&mut self.buffer[self.filled..]).await? {
                0 => bail!("the server ended the stream"),
                read => self.filled += read,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn events_are_found_however_they_are_cut() -> anyhow::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let serve = async {
            let (mut stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            // A request that was not read would break the connection off instead of ending it.
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                stream.read_buf(&mut request).await?;
            }
            let long = "x".repeat(9_000);
            let text =
                format!("HTTP/1.1 200 OK\r\n\r\n5\r\nid: 1\ndata: a\n\n\r\n7\r\nid: 2\ndata: {long}\n\n");
            for part in text.as_bytes().chunks(7) {
                stream.write_all(part).await?;
            }
            anyhow::Ok(())
        };
        let read = async {
            let mut events = Events::open(&address, "/").await?;
            assert!(events.next().await?.ends_with(b"id: 1\ndata: a"));
            assert_eq!(events.next().await?.len(), 9_000 + "\r\n7\r\nid: 2\ndata: ".len());
            assert!(events.next().await.is_err(), "it ended");
            anyhow::Ok(())
        };
        tokio::try_join!(serve, read)?;
        Ok(())
    }
}
