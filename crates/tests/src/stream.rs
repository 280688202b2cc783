//! An open stream of deliveries, read one by one.

use anyhow::{Context, Result};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::Delivery;

/// A stream that was answered 200.
#[derive(Debug)]
pub struct EventStream {
    body: Incoming,
    got: Vec<u8>,
}

impl EventStream {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, got: Vec::new() }
    }

    /// Whether a comment with this in it comes before the stream ends. Deliveries before it are skipped.
    ///
    /// # Errors
    /// When what comes is no text.
    pub async fn told(&mut self, word: &str) -> Result<bool> {
        loop {
            while let Some(end) = self.got.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = self.got.drain(..end + 2).collect();
                let text = std::str::from_utf8(&event)?;
                if text.lines().any(|line| line.starts_with(':') && line.contains(word)) {
                    return Ok(true);
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.got.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Some(Err(_)) | None => return Ok(false),
            }
        }
    }

    /// The next delivery; `None`: the stream has ended, in whatever way.
    ///
    /// # Errors
    /// When what comes is no delivery.
    pub async fn next(&mut self) -> Result<Option<Delivery>> {
        loop {
            while let Some(end) = self.got.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = self.got.drain(..end + 2).collect();
                let text = String::from_utf8_lossy(&event);
                if let Some(data) = text.lines().find_map(|line| line.strip_prefix("data: ")) {
                    let delivery = serde_json::from_str(data)
                        .with_context(|| format!("a stream carried {data}, which is no delivery"))?;
                    return Ok(Some(delivery));
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.got.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }
}
