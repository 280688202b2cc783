//! A listener that answers each connection's one request with the next line of a script.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

pub(crate) struct Scripted {
    listener: TcpListener,
}

/// What happens to a request that was read.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    /// It is answered with a status, headers (each with its line end) and a body.
    Answer(u16, &'static str, &'static str),
    /// The connection is closed without an answer.
    Lost,
    /// These bytes are written and the connection is closed.
    Raw(&'static str),
    /// These bytes are written and nothing more; the connection stays open to the end of the script.
    Silence(&'static str),
}

impl Scripted {
    pub(crate) async fn new() -> Result<Self> {
        Ok(Self { listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await? })
    }

    pub(crate) fn address(&self) -> Result<String> {
        Ok(format!("http://{}", self.listener.local_addr()?))
    }

    /// Plays the script to its end; gives the requests as they came.
    pub(crate) async fn play(&self, script: &[Step]) -> Result<Vec<String>> {
        let (mut requests, mut silent) = (Vec::new(), Vec::new());
        for step in script {
            let (mut socket, _) = self.listener.accept().await?;
            requests.push(request(&mut socket).await?);
            match step {
                Step::Answer(status, headers, body) => {
                    let length = body.len();
                    let text = format!(
                        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
                    );
                    socket.write_all(text.as_bytes()).await?;
                }
                Step::Raw(text) => socket.write_all(text.as_bytes()).await?,
                Step::Silence(text) => {
                    socket.write_all(text.as_bytes()).await?;
                    silent.push(socket);
                }
                Step::Lost => {}
            }
        }
        Ok(requests)
    }
}

async fn request(socket: &mut TcpStream) -> Result<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.map_or(Ok(0), |text| text.trim().parse()).context("a length")?;
            if body.len() >= length {
                return Ok(text);
            }
        }
        anyhow::ensure!(socket.read_buf(&mut bytes).await? > 0, "the request ended early: {text}");
    }
}
