//! A client that speaks TLS: HTTP/1.1 or HTTP/2 as the handshake agrees, one connection at a time, seen from inside.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::{net::TcpStream, task::JoinSet, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{Authority, Pair, Reply, http::PATIENCE};

/// The protocol above TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// What connections are made with.
#[derive(Clone, Debug)]
pub struct SecureClient(Arc<ClientConfig>);

/// One connection.
#[derive(Debug)]
pub struct SecureConnection {
    sender: Sender,
    /// The server's certificate, as it was shown.
    pub certificate: Vec<u8>,
    port: u16,
    _driver: JoinSet<()>,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl SecureClient {
    /// A client that trusts an authority, and shows a certificate if it has one.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub fn new(trusts: &Authority, shows: Option<&Pair>, speaks: Speaks) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(trusts.pem().as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let mut config = match shows {
            None => builder.with_no_client_auth(),
            Some(pair) => builder.with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes())?],
                PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?,
            )?,
        };
        let protocol: &[u8] = match speaks {
            Speaks::Http1 => b"http/1.1",
            Speaks::Http2 => b"h2",
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// A handshake and nothing more.
    ///
    /// # Errors
    /// When one side refuses the other.
    pub async fn handshake(&self, port: u16) -> Result<TlsStream<TcpStream>> {
        let socket = TcpStream::connect(("127.0.0.1", port)).await?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from("localhost")?;
        let shaking = TlsConnector::from(self.0.clone()).connect(name, socket);
        Ok(timeout(PATIENCE, shaking).await.context("the TLS handshake took too long")??)
    }

    /// A connection that requests can be sent on.
    ///
    /// # Errors
    /// When one side refuses the other, or they agree on no protocol.
    pub async fn connect(&self, port: u16) -> Result<SecureConnection> {
        let stream = self.handshake(port).await?;
        let session = stream.get_ref().1;
        let certificate = session.peer_certificates().and_then(<[_]>::first).context("a certificate")?;
        let certificate = certificate.to_vec();
        let agreed = session.alpn_protocol().map(<[u8]>::to_vec);
        let mut driver = JoinSet::new();
        let io = TokioIo::new(stream);
        let sender = match agreed.as_deref() {
            Some(b"http/1.1") => {
                let (sender, connection) = http1::handshake(io).await?;
                driver.spawn(async move { drop(connection.await) });
                Sender::Http1(sender)
            }
            Some(b"h2") => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
                driver.spawn(async move { drop(connection.await) });
                Sender::Http2(sender)
            }
            other => bail!("the handshake agreed on {other:?}"),
        };
        Ok(SecureConnection { sender, certificate, port, _driver: driver })
    }

    /// One request on a connection of its own.
    ///
    /// # Errors
    /// When there is no connection or no complete answer.
    pub async fn call(
        &self,
        port: u16,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Reply> {
        self.connect(port).await?.call(method, path, headers, body).await
    }
}

impl SecureConnection {
    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// When there is no complete answer.
    pub async fn call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Reply> {
        let answer = self.open(method, path, headers, body).await?;
        let (head, body) = answer.into_parts();
        let body = timeout(PATIENCE, body.collect()).await.context("the answer took too long")??;
        Ok(Reply { status: head.status.as_u16(), headers: head.headers, body: body.to_bytes() })
    }

    /// Sends a request and reads the head of the answer.
    ///
    /// # Errors
    /// When there is none.
    pub async fn open(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Response<Incoming>> {
        let host = format!("localhost:{}", self.port);
        let mut request = Request::builder().method(method);
        request = match &self.sender {
            Sender::Http1(_) => request.uri(path).header("host", &host),
            Sender::Http2(_) => request.uri(format!("https://{host}{path}")),
        };
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).context("the test made an illegal request")?;
        let sending = async {
            Ok::<_, hyper::Error>(match &mut self.sender {
                Sender::Http1(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await?
                }
                Sender::Http2(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await?
                }
            })
        };
        Ok(timeout(PATIENCE, sending).await.with_context(|| format!("{method} {path} had no answer"))??)
    }
}

/// What comes of a body until a text was in it that many times, its end, or `most`; and whether it has ended.
pub async fn read_body_until(
    body: &mut Incoming,
    text: &str,
    times: usize,
    most: Duration,
) -> (String, bool) {
    let mut got = String::new();
    let mut has_ended = false;
    let reading = async {
        while got.matches(text).count() < times {
            match body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        got.push_str(&String::from_utf8_lossy(&bytes));
                    }
                }
                Some(Err(_)) | None => {
                    has_ended = true;
                    break;
                }
            }
        }
    };
    drop(timeout(most, reading).await);
    (got, has_ended)
}
