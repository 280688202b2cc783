//! A strict reader of one stream of server-sent events, over HTTP/1.1 with chunks.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

/// No event is waited for longer than this.
const PATIENCE: Duration = Duration::from_secs(20);

/// One block of the stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Block {
    Comment(String),
    Event { id: String, data: serde_json::Value },
}

/// An open stream.
pub(crate) struct Sse {
    stream: TcpStream,
    pub(crate) head: String,
    raw: Vec<u8>,
    text: String,
    ended: bool,
}

impl Sse {
    pub(crate) async fn open(address: SocketAddr, client: &str) -> Self {
        Self::open_with(address, client, "", None).await
    }

    /// With more headers, each ending in a line break, and a receive buffer of that size.
    pub(crate) async fn open_with(
        address: SocketAddr,
        client: &str,
        headers: &str,
        buffer: Option<u32>,
    ) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        if let Some(bytes) = buffer {
            socket.set_recv_buffer_size(bytes).expect("a buffer");
        }
        let mut stream = socket.connect(address).await.expect("a connection");
        let request = format!("GET /events/stream?clientId={client} HTTP/1.1\r\nHost: t\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.expect("the server reads");
        let mut sse =
            Self { stream, head: String::new(), raw: Vec::new(), text: String::new(), ended: false };
        loop {
            if let Some(end) = sse.raw.windows(4).position(|window| window == b"\r\n\r\n") {
                let rest = sse.raw.split_off(end + 4);
                sse.head = String::from_utf8(std::mem::replace(&mut sse.raw, rest)).expect("text");
                return sse;
            }
            assert!(sse.fill(PATIENCE).await, "closed in the head: {:?}", sse.raw);
        }
    }

    /// `false`: closed, or nothing came in time.
    async fn fill(&mut self, within: Duration) -> bool {
        let reading = self.stream.read_buf(&mut self.raw);
        matches!(tokio::time::timeout(within, reading).await, Ok(Ok(bytes)) if bytes > 0)
    }

    fn decode(&mut self) {
        while let Some(line) = self.raw.windows(2).position(|window| window == b"\r\n") {
            let size = std::str::from_utf8(&self.raw[..line]).expect("a size");
            let size = usize::from_str_radix(size, 16).expect("a size");
            if self.raw.len() < line + size + 4 {
                return;
            }
            let rest = self.raw.split_off(line + size + 4);
            let chunk = std::mem::replace(&mut self.raw, rest);
            self.text.push_str(std::str::from_utf8(&chunk[line + 2..line + 2 + size]).expect("UTF-8"));
            self.ended |= size == 0;
        }
    }

    /// The next block; `None` when there is none in time, or the stream ended.
    pub(crate) async fn next_within(&mut self, within: Duration) -> Option<Block> {
        loop {
            self.decode();
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let block = parse(block);
                self.text = rest.to_owned();
                return Some(block);
            }
            if self.ended || !self.fill(within).await {
                return None;
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Block {
        self.next_within(PATIENCE).await.expect("a block in time")
    }

    /// The next delivery; comments are passed over.
    pub(crate) async fn delivery(&mut self) -> serde_json::Value {
        loop {
            if let Block::Event { id, data } = self.next().await {
                assert_eq!(data["deliveryId"], id);
                return data;
            }
        }
    }

    /// The ids of the next events.
    pub(crate) async fn events(&mut self, count: usize) -> Vec<String> {
        let mut ids = Vec::with_capacity(count);
        while ids.len() < count {
            ids.push(self.delivery().await["event"]["id"].as_str().expect("an id").to_owned());
        }
        ids
    }

    /// Everything until the stream ends.
    pub(crate) async fn rest(&mut self) -> Vec<Block> {
        let mut blocks = Vec::new();
        while let Some(block) = self.next_within(PATIENCE).await {
            blocks.push(block);
        }
        assert!(self.ended, "it was cut: {blocks:?}");
        blocks
    }
}

fn parse(block: &str) -> Block {
    if let Some(comment) = block.strip_prefix(':') {
        assert!(!comment.contains('\n'), "{block}");
        return Block::Comment(comment.trim().to_owned());
    }
    let lines: Vec<&str> = block.split('\n').collect();
    let [id, data] = lines[..] else { panic!("an id and one line of data: {block}") };
    let data = data.strip_prefix("data: ").unwrap_or_else(|| panic!("{block}"));
    Block::Event {
        id: id.strip_prefix("id: ").unwrap_or_else(|| panic!("{block}")).to_owned(),
        data: serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}")),
    }
}
