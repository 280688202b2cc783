//! A bare connection, for clients that do not behave.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// One connection.
#[derive(Debug)]
pub struct Raw(TcpStream);

impl Raw {
    /// Connects to a port of loopback.
    ///
    /// # Errors
    /// When nobody accepts.
    pub async fn connect(port: u16) -> Result<Self> {
        let stream = timeout(Duration::from_secs(5), TcpStream::connect(("127.0.0.1", port)))
            .await
            .context("connecting took longer than 5 s")??;
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    /// Ends the connection as a process that crashes does: with a reset, whatever was under way.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn reset(self) -> Result<()> {
        Ok(self.0.set_zero_linger()?)
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// When the other side has closed.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.0.write_all(bytes).await?)
    }

    /// What comes until the other side closes. `None`: it had not closed after `most`.
    ///
    /// A reset counts as the end: what came before it is given.
    pub async fn read_to_end(&mut self, most: Duration) -> Option<String> {
        let mut got = Vec::new();
        let reading = async {
            let mut chunk = [0; 8_192];
            while let Ok(length @ 1..) = self.0.read(&mut chunk).await {
                got.extend_from_slice(&chunk[..length]);
            }
        };
        timeout(most, reading).await.ok()?;
        Some(String::from_utf8_lossy(&got).into_owned())
    }

    /// The head of an answer, or as much of it as comes within `most`.
    pub async fn read_head(&mut self, most: Duration) -> String {
        let mut got = Vec::new();
        let reading = async {
            let mut byte = [0];
            while !got.ends_with(b"\r\n\r\n") {
                match self.0.read(&mut byte).await {
                    Ok(1..) => got.push(byte[0]),
                    Ok(0) | Err(_) => break,
                }
            }
        };
        drop(timeout(most, reading).await);
        String::from_utf8_lossy(&got).into_owned()
    }

    /// What comes until a text was in it that many times, the end, or `most`.
    pub async fn read_until(&mut self, text: &str, times: usize, most: Duration) -> String {
        let mut got = String::new();
        let reading = async {
            let mut chunk = [0; 8_192];
            while got.matches(text).count() < times {
                match self.0.read(&mut chunk).await {
                    Ok(length @ 1..) => got.push_str(&String::from_utf8_lossy(&chunk[..length])),
                    Ok(0) | Err(_) => break,
                }
            }
        };
        drop(timeout(most, reading).await);
        got
    }
}
