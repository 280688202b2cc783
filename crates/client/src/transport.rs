//! One request and its answer, and the loop around it that tries again.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use tokio::time::timeout;

use crate::{Error, RetryPolicy, retry::Retries};

/// The largest answer that is read: a poll's is at most 8 MiB of events, or one large event.
const LARGEST_ANSWER: usize = 64 << 20;

/// Where requests go and how.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    credential: Option<HeaderValue>,
    pub(crate) request_timeout: Duration,
}

/// A request that can be sent more than once.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) body: Bytes,
    /// How long the server may take by design, over the time that a request has.
    pub(crate) extra: Duration,
}

impl Call {
    pub(crate) fn get(path: String) -> Self {
        Self { method: Method::GET, path, content_type: None, body: Bytes::new(), extra: Duration::ZERO }
    }

    pub(crate) fn delete(path: String) -> Self {
        Self { method: Method::DELETE, ..Self::get(path) }
    }

    pub(crate) fn post(path: String, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self {
            method: Method::POST,
            path,
            content_type: Some(content_type),
            body: body.into(),
            extra: Duration::ZERO,
        }
    }
}

impl Transport {
    /// `trusted`: whose certificates are trusted over `https`.
    pub(crate) fn new(
        base: String,
        credential: Option<HeaderValue>,
        trusted: RootCertStore,
        connect_timeout: Duration,
        request_timeout: Duration,
    ) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(connect_timeout));
        connector.enforce_http(false);
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has cipher suites of both versions")
            .with_root_certificates(trusted)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .build(connector);
        Self { http, base, credential, request_timeout }
    }

    /// Sends until there is an answer that is not worth another try; gives the body of a success.
    pub(crate) async fn send(&self, call: &Call, policy: RetryPolicy) -> Result<Bytes, Error> {
        let mut retries = Retries::new(policy, call.extra);
        loop {
            let most = self.request_timeout.saturating_add(call.extra).min(retries.left());
            match self.once(call, most).await {
                Ok(body) => return Ok(body),
                Err(error) => retries.wait(error).await?,
            }
        }
    }

    /// Sends once.
    pub(crate) async fn once(&self, call: &Call, most: Duration) -> Result<Bytes, Error> {
        let exchange = async {
            let answer = self.open(call, "application/json").await?;
            let body = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    Error::Answer(format!("it is larger than {LARGEST_ANSWER} bytes"))
                } else {
                    Error::Lost(error)
                }
            })?;
            Ok(body.to_bytes())
        };
        timeout(most, exchange).await.map_err(|_| Error::Timeout(most))?
    }

    /// Sends once and gives the answer with its body still to come; a refusal is read.
    pub(crate) async fn open(&self, call: &Call, accept: &'static str) -> Result<Response<Incoming>, Error> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{}{}", self.base, call.path))
            .header(header::ACCEPT, accept);
        if let Some(content_type) = call.content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        if let Some(credential) = &self.credential {
            request = request.header(header::AUTHORIZATION, credential.clone());
        }
        let request = request
            .body(Full::new(call.body.clone()))
            .map_err(|error| Error::Invalid(format!("the request cannot be made: {error}")))?;
        let answer = self.http.request(request).await.map_err(|error| {
            if error.is_connect() { Error::Connect(error.into()) } else { Error::Lost(error.into()) }
        })?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, 1 << 20).collect().await.map(|body| body.to_bytes());
        Err(refusal(head.status, &head.headers, &body.unwrap_or_default()))
    }
}

fn refusal(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Error {
    #[derive(Deserialize)]
    struct Body {
        error: String,
        #[serde(default)]
        message: String,
    }
    let retry_after = retry_after(headers);
    let (code, message) = match serde_json::from_slice::<Body>(body) {
        Ok(body) => (body.error, body.message),
        Err(_) => (String::new(), String::from_utf8_lossy(body).chars().take(300).collect()),
    };
    Error::Refused { status: status.as_u16(), code, message, retry_after }
}

/// How long the server asks to wait: in seconds, or until a date of HTTP, which is read against the server's own
/// clock where the answer shows it. A date that has passed asks for nothing.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let asked = text(header::RETRY_AFTER)?;
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(asked).ok()?;
    let now = text(header::DATE).and_then(|date| httpdate::parse_http_date(date).ok());
    Some(until.duration_since(now.unwrap_or_else(system_time)).unwrap_or_default())
}

#[expect(clippy::disallowed_methods, reason = "an application's clock is the system's")]
fn system_time() -> SystemTime {
    SystemTime::now()
}

/// A value for a query: everything but letters, digits and `-._~` percent-encoded.
pub(crate) fn encode(text: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let digits = [byte >> 4, byte & 15].map(|digit| char::from(HEX[usize::from(digit)]));
            encoded.extend(['%', digits[0], digits[1]]);
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_asks_is_read_as_seconds_or_as_a_date_by_its_own_clock() {
        const DATE: &str = "Mon, 30 Nov 2026 14:22:30 GMT";
        let of = |asked: &'static str, date: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(asked));
            headers.extend(date.map(|date| (header::DATE, HeaderValue::from_static(date))));
            retry_after(&headers)
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (asked, date, expected) in [
            ("7", None, seconds(7)),
            (" 7 ", Some(DATE), seconds(7)),
            ("Mon, 30 Nov 2026 14:23:00 GMT", Some(DATE), seconds(30)),
            ("Monday, 30-Nov-26 14:22:31 GMT", Some(DATE), seconds(1)),
            ("Mon Nov 30 14:22:32 2026", Some(DATE), seconds(2)),
            ("Mon, 30 Nov 2026 14:22:00 GMT", Some(DATE), seconds(0)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", None, seconds(0)),
            ("soon", Some(DATE), None),
            ("-1", None, None),
        ] {
            assert_eq!(of(asked, date), expected, "{asked:?} {date:?}");
        }
        let far = of("Fri, 31 Dec 9999 23:59:59 GMT", None).expect("a date");
        assert!(far > Duration::from_secs(365 * 86_400), "without the server's clock the system's is taken");
    }
}
