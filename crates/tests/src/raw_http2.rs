//! A bare HTTP/2 connection, for clients that do not behave: it says what it is told, reads nothing that it is not asked to,
//! and answers pings.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout_at},
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The setting of that name.
const INITIAL_WINDOW_SIZE: u16 = 4;

/// What the server has said so far.
#[derive(Debug, Default)]
pub struct Heard {
    /// Streams whose answer has begun.
    pub answered: Vec<u32>,
    /// Streams that the server has reset.
    pub reset: Vec<u32>,
    /// What came of the bodies.
    pub bodies: BTreeMap<u32, Vec<u8>>,
    /// Whether it said that the connection ends.
    pub goaway: bool,
    /// Whether the connection has ended.
    pub ended: bool,
}

/// One connection.
#[derive(Debug)]
pub struct RawHttp2 {
    stream: TcpStream,
    next: u32,
    /// What the server has said so far.
    pub heard: Heard,
}

impl RawHttp2 {
    /// Connects to a port of loopback, with so much room for the answer of each stream.
    ///
    /// # Errors
    /// When nobody accepts.
    pub async fn connect(port: u16, window: u32) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let mut connection = Self { stream, next: 1, heard: Heard::default() };
        connection.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
        let mut settings = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
        settings.extend_from_slice(&window.to_be_bytes());
        connection.frame(SETTINGS, 0, 0, &settings).await?;
        Ok(connection)
    }

    /// Sends the head of a request without a body; its stream.
    ///
    /// # Errors
    /// When the other side has closed.
    pub async fn get(&mut self, target: &str, headers: &[(&str, &str)]) -> Result<u32> {
        let mut block = pseudo(target);
        for (name, value) in headers {
            literal(&mut block, name, value);
        }
        self.head(&block, true).await
    }

    /// Sends the head of a request that names the same header again and again, a byte each time, and leaves the stream open.
    ///
    /// # Errors
    /// When the other side has closed.
    pub async fn get_with_references(&mut self, target: &str, references: usize) -> Result<u32> {
        let mut block = pseudo(target);
        // `accept-encoding: gzip, deflate` in the table that everybody has.
        block.resize(block.len() + references, 0x80 | 16);
        self.head(&block, false).await
    }

    async fn head(&mut self, block: &[u8], ends: bool) -> Result<u32> {
        ensure!(block.len() <= 16_384, "the head does not fit into one frame");
        let stream = self.next;
        self.next += 2;
        let flags = END_HEADERS | if ends { END_STREAM } else { 0 };
        self.frame(HEADERS, flags, stream, block).await?;
        Ok(stream)
    }

    async fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<()> {
        let length = u32::try_from(payload.len())?.to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags];
        bytes.extend_from_slice(&stream.to_be_bytes());
        bytes.extend_from_slice(payload);
        Ok(self.stream.write_all(&bytes).await?)
    }

    /// Listens until `enough` says so, the connection ends, or `most` is over; `true`: it was enough.
    ///
    pub async fn listen(&mut self, most: Duration, enough: impl Fn(&Heard) -> bool) -> bool {
        let end = Instant::now() + most;
        while !enough(&self.heard) {
            if self.heard.ended {
                return false;
            }
            let mut head = [0; 9];
            match timeout_at(end, self.stream.read_exact(&mut head)).await {
                Err(_elapsed) => return false,
                Ok(Err(_)) => {
                    self.heard.ended = true;
                    continue;
                }
                Ok(Ok(_)) => {}
            }
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let mut payload = vec![0; length];
            if self.stream.read_exact(&mut payload).await.is_err() {
                self.heard.ended = true;
                continue;
            }
            self.hear(head[3], head[4], stream, payload).await;
        }
        true
    }

    async fn hear(&mut self, kind: u8, flags: u8, stream: u32, payload: Vec<u8>) {
        let is_answer = flags & ACK != 0;
        match kind {
            // What cannot be answered any more is followed by the end.
            SETTINGS if !is_answer => drop(self.frame(SETTINGS, ACK, 0, &[]).await),
            PING if !is_answer => drop(self.frame(PING, ACK, 0, &payload).await),
            HEADERS => self.heard.answered.push(stream),
            RST_STREAM => self.heard.reset.push(stream),
            DATA => self.heard.bodies.entry(stream).or_default().extend(payload),
            GOAWAY => self.heard.goaway = true,
            _ => {}
        }
    }
}

/// What begins every head.
fn pseudo(target: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in
        [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", target)]
    {
        literal(&mut block, name, value);
    }
    block
}

/// A header that goes into no table (RFC 7541, 6.2.2).
fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        length(block, text.len());
        block.extend_from_slice(text.as_bytes());
    }
}

/// A length in seven bits and what is more behind them (RFC 7541, 5.1).
fn length(block: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(127) else {
        block.push(u8::try_from(length).expect("below 127"));
        return;
    };
    block.push(127);
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).expect("seven bits") | 128);
        rest /= 128;
    }
    block.push(u8::try_from(rest).expect("seven bits"));
}
