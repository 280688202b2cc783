//! A small HTTP client: kept-alive connections, a bound on every request, answers read whole.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// How long a request may take that names no bound of its own.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Reply {
    /// The body as JSON.
    ///
    /// # Errors
    /// When it is none.
    pub fn json(&self) -> Result<Value> {
        self.read()
    }

    /// The body as a type.
    ///
    /// # Errors
    /// When it is not one.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body).with_context(|| format!("cannot read the answer {self}"))
    }

    /// This answer, if it has that status.
    ///
    /// # Errors
    /// When it has another; the message has the answer.
    pub fn expect(self, status: u16) -> Result<Self> {
        ensure!(self.status == status, "expected {status}, got {self}");
        Ok(self)
    }

    /// This answer, if it has that status, that error code, and a message.
    ///
    /// # Errors
    /// When it has not.
    pub fn expect_error(self, status: u16, code: &str) -> Result<Self> {
        ensure!(self.status == status, "expected {status} {code}, got {self}");
        let json = self.json()?;
        ensure!(json["error"] == code, "expected {status} {code}, got {self}");
        ensure!(json["message"].as_str().is_some_and(|text| !text.is_empty()), "no message in {self}");
        Ok(self)
    }

    /// The error code of this answer; empty when it has none.
    pub fn code(&self) -> String {
        self.json().ok().and_then(|json| json["error"].as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl std::fmt::Display for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = String::from_utf8_lossy(&self.body);
        let shown: String = text.chars().take(600).collect();
        write!(f, "{} {shown}", self.status)
    }
}

/// The client; clones share its connections.
#[derive(Clone, Debug)]
pub struct Http(Client<HttpConnector, Full<Bytes>>);

impl Default for Http {
    fn default() -> Self {
        Self::new()
    }
}

impl Http {
    /// A client without connections.
    pub fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self(Client::builder(TokioExecutor::new()).build(connector))
    }

    /// Sends a request and reads the head of the answer.
    ///
    /// # Errors
    /// When there is no answer within `most`.
    pub async fn open(&self, request: Request<Full<Bytes>>, most: Duration) -> Result<Response<Incoming>> {
        let what = format!("{} {}", request.method(), request.uri().path());
        tokio::time::timeout(most, self.0.request(request))
            .await
            .with_context(|| format!("{what} had no answer within {most:?}"))?
            .with_context(|| format!("{what} had no answer"))
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// When there is no complete answer within `most`: whether the request took effect is then unknown.
    pub async fn send(&self, request: Request<Full<Bytes>>, most: Duration) -> Result<Reply> {
        let what = format!("{} {}", request.method(), request.uri().path());
        let exchange = async {
            let answer: Response<_> = self.0.request(request).await?;
            let (head, body) = answer.into_parts();
            let body = body.collect().await?.to_bytes();
            anyhow::Ok(Reply { status: head.status.as_u16(), headers: head.headers, body })
        };
        tokio::time::timeout(most, exchange)
            .await
            .with_context(|| format!("{what} had no answer within {most:?}"))?
            .with_context(|| format!("{what} had no complete answer"))
    }
}
