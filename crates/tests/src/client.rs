//! The calls of both ports, typed where every test wants the same, raw where a test wants to see the answer.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::{Delivery, EventStream, Http, Reply, Subscribe, http::PATIENCE};

/// The admin token of every server of the tests.
pub const TOKEN: &str = "token-of-the-tests-0123456789";

/// The media type of one event.
const EVENT: &str = "application/cloudevents+json";
/// The media type of several.
const BATCH: &str = "application/cloudevents-batch+json";

/// A client of one server; clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: Http,
    traffic: u16,
    admin: u16,
    authorization: Option<String>,
}

impl Client {
    /// A client of the server on these ports of loopback.
    pub fn new(traffic: u16, admin: u16) -> Self {
        Self { http: Http::new(), traffic, admin, authorization: None }
    }

    /// A client of the same server with connections of its own, which presents a token on the traffic port.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { http: Http::new(), authorization: Some(format!("Bearer {token}")), ..self.clone() }
    }

    /// Any request to the traffic port.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
        most: Duration,
    ) -> Result<Reply> {
        let mut headers = headers.to_vec();
        if let Some(authorization) = &self.authorization {
            headers.push(("authorization", authorization));
        }
        self.request(self.traffic, method, path, &headers, body.into(), most).await
    }

    async fn request(
        &self,
        port: u16,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
        most: Duration,
    ) -> Result<Reply> {
        let mut request = Request::builder().method(method).uri(format!("http://127.0.0.1:{port}{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).context("the test made an illegal request")?;
        self.http.send(request, most).await
    }

    /// Publishes a body with a content type to a topic.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn publish_bytes(
        &self,
        topic: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Result<Reply> {
        let path = format!("/events/publish?topic={}", encode(topic));
        self.call("POST", &path, &[("content-type", content_type)], body, PATIENCE).await
    }

    /// Publishes one event.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn publish(&self, topic: &str, event: &Value) -> Result<Reply> {
        self.publish_bytes(topic, EVENT, event.to_string()).await
    }

    /// Publishes each event and sees it accepted.
    ///
    /// # Errors
    /// When one is not.
    pub async fn published(&self, topic: &str, events: impl IntoIterator<Item = Value>) -> Result<()> {
        for event in events {
            self.publish(topic, &event).await?.expect(202)?;
        }
        Ok(())
    }

    /// Publishes several events at once.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn publish_batch(&self, topic: &str, events: &[Value]) -> Result<Reply> {
        let path = format!("/events/publish-batch?topic={}", encode(topic));
        let body = serde_json::to_vec(events).context("events are JSON")?;
        self.call("POST", &path, &[("content-type", BATCH)], body, PATIENCE).await
    }

    /// Posts JSON.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Reply> {
        self.call("POST", path, &[("content-type", "application/json")], body.to_string(), PATIENCE).await
    }

    /// Gets a path of the traffic port.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn get(&self, path: &str) -> Result<Reply> {
        self.call("GET", path, &[], Bytes::new(), PATIENCE).await
    }

    /// Subscribes.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn subscribe(&self, subscribe: &Subscribe) -> Result<Reply> {
        self.post("/events/subscribe", &subscribe.body()).await
    }

    /// Subscribes and sees it accepted; gives the answer's body.
    ///
    /// # Errors
    /// When it is not.
    pub async fn subscribed(&self, subscribe: &Subscribe) -> Result<Value> {
        self.subscribe(subscribe).await?.expect(200)?.json()
    }

    /// Ends a client's subscriptions to a topic.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn unsubscribe(&self, client: &str, topic: &str) -> Result<Reply> {
        self.post("/events/unsubscribe", &json!({"clientId": client, "topic": topic})).await
    }

    /// Polls; gives whatever is answered.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn poll_reply(&self, client: &str, max: u32, timeout_ms: u64) -> Result<Reply> {
        let path = format!("/events/poll?clientId={}&max={max}&timeoutMs={timeout_ms}", encode(client));
        let most = PATIENCE + Duration::from_millis(timeout_ms.min(60_000));
        self.call("GET", &path, &[], Bytes::new(), most).await
    }

    /// Polls and sees it answered.
    ///
    /// # Errors
    /// When it is not, or not with deliveries.
    pub async fn poll(&self, client: &str, max: u32, timeout_ms: u64) -> Result<Vec<Delivery>> {
        self.poll_reply(client, max, timeout_ms).await?.expect(200)?.read()
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// When there is no answer, or another than 200.
    pub async fn stream(&self, client: &str) -> Result<EventStream> {
        let uri = format!("http://127.0.0.1:{}/events/stream?clientId={}", self.traffic, encode(client));
        let request = Request::get(uri).body(Full::default()).context("the test made an illegal request")?;
        let answer = self.http.open(request, PATIENCE).await?;
        ensure!(answer.status() == 200, "a stream of {client} was answered {}", answer.status());
        Ok(EventStream::new(answer.into_body()))
    }

    /// Polls until `count` deliveries have come.
    ///
    /// # Errors
    /// When they have not within `most`, or a poll is refused; the message has what came.
    pub async fn receive(&self, client: &str, count: usize, most: Duration) -> Result<Vec<Delivery>> {
        let end = tokio::time::Instant::now() + most;
        let mut got = Vec::new();
        while got.len() < count {
            let left = end.saturating_duration_since(tokio::time::Instant::now());
            let ids = || got.iter().map(Delivery::id).collect::<Vec<_>>();
            ensure!(!left.is_zero(), "{client} waited {most:?} for {count} deliveries; got {:?}", ids());
            let wait = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).clamp(1, 500);
            let max = u32::try_from(count - got.len()).unwrap_or(1_000).min(1_000);
            got.extend(self.poll(client, max, wait).await?);
        }
        Ok(got)
    }

    /// Acknowledges one delivery.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn ack(&self, delivery: &str) -> Result<Reply> {
        self.post("/events/ack", &json!({"deliveryId": delivery})).await
    }

    /// Acknowledges several deliveries at once.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn ack_many(&self, deliveries: &[String]) -> Result<Reply> {
        self.post("/events/ack", &json!({"deliveryId": deliveries})).await
    }

    /// Acknowledges deliveries and sees every one done.
    ///
    /// # Errors
    /// When one is not.
    pub async fn acked<'a>(&self, deliveries: impl IntoIterator<Item = &'a Delivery>) -> Result<()> {
        for delivery in deliveries {
            self.ack(&delivery.delivery_id).await?.expect(200)?;
        }
        Ok(())
    }

    /// Gets a path of the admin port with the token.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn admin(&self, path: &str) -> Result<Reply> {
        let token = format!("Bearer {TOKEN}");
        self.admin_with("GET", path, &[("authorization", &token)]).await
    }

    /// Any request without a body to the admin port.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn admin_with(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Result<Reply> {
        self.request(self.admin, method, path, headers, Bytes::new(), Duration::from_secs(10)).await
    }

    /// Any request to the admin port.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn admin_call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Reply> {
        self.request(self.admin, method, path, headers, body.into(), PATIENCE).await
    }

    /// A request to the admin port with the token and a JSON body.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn administer(&self, method: &str, path: &str, body: &Value) -> Result<Reply> {
        let token = format!("Bearer {TOKEN}");
        let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
        self.request(self.admin, method, path, &headers, body.to_string().into(), PATIENCE).await
    }

    /// One number of `/admin/metrics`.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn number(&self, name: &str) -> Result<u64> {
        let metrics = self.admin("/admin/metrics").await?.expect(200)?.json()?;
        metrics[name].as_u64().with_context(|| format!("no {name} in {metrics}"))
    }

    /// Deliveries that are handed out and unfinished.
    ///
    /// # Errors
    /// When the metrics are not there.
    pub async fn pending(&self) -> Result<u64> {
        self.number("pendingDeliveries").await
    }

    /// The sum of all series of a metric in the Prometheus text.
    ///
    /// # Errors
    /// When there is no such series.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let reply = self.admin("/metrics").await?.expect(200)?;
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        let series = |line: &&str| line.split(['{', ' ']).next() == Some(name);
        let values: Vec<f64> =
            text.lines().filter(series).filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        ensure!(!values.is_empty(), "no series of {name} in the metrics");
        Ok(values.iter().sum())
    }

    /// How far every group of a topic is: `group#partition` to the floor.
    ///
    /// # Errors
    /// When it is not answered.
    pub async fn offsets(&self, topic: &str) -> Result<BTreeMap<String, u64>> {
        let path = format!("/admin/offsets?topic={}", encode(topic));
        let offsets: BTreeMap<String, String> = self.admin(&path).await?.expect(200)?.read()?;
        offsets
            .into_iter()
            .map(|(key, text)| Ok((key, text.parse().with_context(|| format!("offset {text:?}"))?)))
            .collect()
    }

    /// The dead letters of a topic, at most 1,000.
    ///
    /// # Errors
    /// When they are not answered.
    pub async fn dead_letters(&self, topic: &str) -> Result<Vec<Value>> {
        let path = format!("/admin/dlq/browse?topic={}&max=1000", encode(topic));
        self.admin(&path).await?.expect(200)?.read()
    }
}

/// A value for a query: everything but letters, digits and `-._~` percent-encoded.
pub(crate) fn encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte))
            }
            other => write!(encoded, "%{other:02X}").expect("a string takes everything"),
        }
        encoded
    })
}
