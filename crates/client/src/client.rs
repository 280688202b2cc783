//! The client: one method a route, and the builder.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Uri};
use mesh_frame::Event;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::{
    AdminClient, Delivery, DeliveryId, DeliveryStream, Error, OutgoingEvent, Published, RetryPolicy,
    RetryPublish, Settled, SubscribeRequest, Subscription, UnsubscribeRequest,
    delivery::unreadable,
    settle::{self, Verb},
    subscribe::milliseconds,
    transport::{Call, Transport, encode},
};

/// The longest wait of one poll, which the server holds to as well.
const LONGEST_POLL: Duration = Duration::from_secs(60);

/// A client of one server; clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {
    transport: Transport,
    retry: RetryPolicy,
    silence: Duration,
}

/// Settings of a [`Client`].
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    base: String,
    credential: Option<String>,
    authorities: Option<String>,
    connect_timeout: Duration,
    request_timeout: Duration,
    silence: Duration,
    retry: RetryPolicy,
}

impl ClientBuilder {
    /// What goes into the `Authorization` header of every request, for example `Bearer …`. None.
    #[must_use]
    pub fn credential(self, credential: impl Into<String>) -> Self {
        Self { credential: Some(credential.into()), ..self }
    }

    /// Who signs the server's certificate over `https`, as PEM, instead of whom the system trusts.
    #[must_use]
    pub fn authorities(self, pem: impl Into<String>) -> Self {
        Self { authorities: Some(pem.into()), ..self }
    }

    /// How long a connection may take to be made. 5 s.
    #[must_use]
    pub fn connect_timeout(self, most: Duration) -> Self {
        Self { connect_timeout: most, ..self }
    }

    /// How long one try of a request may take; a poll's own waiting time comes on top. 30 s.
    #[must_use]
    pub fn request_timeout(self, most: Duration) -> Self {
        Self { request_timeout: most, ..self }
    }

    /// After how long without a word a stream counts as lost; the server speaks every 15 s. 45 s.
    #[must_use]
    pub fn stream_silence(self, most: Duration) -> Self {
        Self { silence: most, ..self }
    }

    /// How requests are retried.
    #[must_use]
    pub fn retry(self, policy: RetryPolicy) -> Self {
        Self { retry: policy, ..self }
    }

    /// The client. No connection is made before the first request.
    ///
    /// # Errors
    /// [`Error::Address`], [`Error::Credential`] and [`Error::Authorities`] when these cannot be used.
    pub fn build(self) -> Result<Client, Error> {
        let (retry, silence) = (self.retry, self.silence);
        Ok(Client { transport: self.transport()?, retry, silence })
    }

    /// A client of the admin port, whose address this is. The settings of retries and streams do nothing for it.
    ///
    /// # Errors
    /// As [`ClientBuilder::build`].
    pub fn build_admin(self) -> Result<AdminClient, Error> {
        self.transport().map(AdminClient::new)
    }

    fn transport(self) -> Result<Transport, Error> {
        let base = self.base.trim_end_matches('/').to_owned();
        let is_usable = base.parse::<Uri>().is_ok_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
                && uri.query().is_none()
                && !base.contains('@')
        });
        if !is_usable {
            return Err(Error::Address(self.base));
        }
        let credential = self.credential.map(|text| {
            HeaderValue::from_str(&text).map(|mut value| {
                value.set_sensitive(true);
                value
            })
        });
        let credential = credential.transpose().map_err(|_| Error::Credential)?;
        let trusted = match &self.authorities {
            _ if base.starts_with("http:") => RootCertStore::empty(),
            Some(pem) => authorities(pem)?,
            None => {
                let mut trusted = RootCertStore::empty();
                trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                trusted
            }
        };
        Ok(Transport::new(base, credential, trusted, self.connect_timeout, self.request_timeout))
    }
}

/// The certificates of a PEM text; without any there would be nobody to trust.
fn authorities(pem: &str) -> Result<RootCertStore, Error> {
    let mut trusted = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|_| Error::Authorities)?;
        trusted.add(certificate).map_err(|_| Error::Authorities)?;
    }
    if trusted.is_empty() { Err(Error::Authorities) } else { Ok(trusted) }
}

impl Client {
    /// A client of the traffic port at `base`, such as `http://127.0.0.1:10105`, with the default settings.
    ///
    /// # Errors
    /// [`Error::Address`] when it is no such address.
    pub fn new(base: impl Into<String>) -> Result<Self, Error> {
        Self::builder(base).build()
    }

    /// Settings of a client of the traffic port at `base`.
    pub fn builder(base: impl Into<String>) -> ClientBuilder {
        ClientBuilder {
            base: base.into(),
            credential: None,
            authorities: None,
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            silence: Duration::from_secs(45),
            retry: RetryPolicy::default(),
        }
    }

    /// Stores one event; it is on the server's disk when this returns.
    ///
    /// # Errors
    /// [`Error::Invalid`] before anything is sent; else what the server or the connection says. After
    /// [`Error::Lost`], [`Error::Timeout`] and 503 `storage_unavailable` the event may have been stored. It is
    /// sent again only with [`RetryPublish::Always`].
    pub async fn publish(&self, topic: &str, event: &OutgoingEvent) -> Result<Published, Error> {
        self.publish_event(topic, &event.check()?).await
    }

    /// Stores one event that is there as a whole already, as [`parse_event`](crate::parse_event) gives it.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub async fn publish_event(&self, topic: &str, event: &Event) -> Result<Published, Error> {
        let path = format!("/events/publish?topic={}", encode(topic));
        let body = event.json();
        let answer = self.send_publish(&Call::post(path, "application/cloudevents+json", body)).await?;
        serde_json::from_slice(&answer).map_err(unreadable)
    }

    /// Stores many events, all or none. An empty list is done at once.
    ///
    /// # Errors
    /// As [`publish`](Self::publish); a refusal names the event by its index, from 0.
    pub async fn publish_batch(&self, topic: &str, events: &[OutgoingEvent]) -> Result<(), Error> {
        if events.is_empty() {
            return Ok(());
        }
        let mut body = vec![b'['];
        for (index, event) in events.iter().enumerate() {
            if index > 0 {
                body.push(b',');
            }
            let event = event.check().map_err(|error| Error::Invalid(format!("event {index}: {error}")))?;
            event.write_json(&mut body);
        }
        body.push(b']');
        let path = format!("/events/publish-batch?topic={}", encode(topic));
        self.send_publish(&Call::post(path, "application/cloudevents-batch+json", body)).await.map(drop)
    }

    /// Makes a client a member of a group. Again with the same request it changes nothing. Events that are
    /// stored after this returned are not missed.
    ///
    /// # Errors
    /// 409 `group_conflict` when other members rely on other settings, and whatever else the server or the
    /// connection says.
    pub async fn subscribe(&self, request: &SubscribeRequest) -> Result<Subscription, Error> {
        let call = Call::post("/events/subscribe".to_owned(), "application/json", request.json());
        serde_json::from_slice(&self.send(&call).await?).map_err(unreadable)
    }

    /// Ends memberships; what the client had goes to others at once. A client that the server does not know is
    /// unsubscribed already.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn unsubscribe(&self, request: &UnsubscribeRequest) -> Result<(), Error> {
        let call = Call::post("/events/unsubscribe".to_owned(), "application/json", request.json());
        match self.send(&call).await {
            Ok(_) => Ok(()),
            Err(Error::Refused { status: 404, code, .. }) if code == "unknown_client" => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Takes up to `max` deliveries (at most 1,000), and waits up to `timeout` (at most 60 s) for the first.
    /// Comes back without any at the end of the time.
    ///
    /// A poll whose answer is lost has taken deliveries with it: they come again when their lock runs out.
    ///
    /// # Errors
    /// 404 `unknown_client` when there is no subscription, 410 `subscription_expired` when it was ended, and
    /// whatever else the server or the connection says.
    pub async fn poll(&self, client_id: &str, max: u32, timeout: Duration) -> Result<Vec<Delivery>, Error> {
        let timeout = timeout.min(LONGEST_POLL);
        let (client_id, wait) = (encode(client_id), milliseconds(timeout));
        let path = format!("/events/poll?clientId={client_id}&max={max}&timeoutMs={wait}");
        let call = Call { extra: timeout, ..Call::get(path) };
        Delivery::parse_list(&self.send(&call).await?)
    }

    /// Receives as the server pushes. Nothing is sent before the first [`DeliveryStream::next`].
    pub fn stream(&self, client_id: &str) -> DeliveryStream {
        DeliveryStream::new(self.transport.clone(), self.retry, self.silence, client_id)
    }

    /// Finishes a delivery: it does not come again. Safe to repeat.
    ///
    /// # Errors
    /// What the server or the connection says; the delivery then comes again unless it took effect.
    pub async fn ack(&self, delivery: impl Into<DeliveryId>) -> Result<Settled, Error> {
        settle::one(&self.transport, self.retry, &Verb::Ack, delivery.into()).await
    }

    /// Finishes many deliveries; the outcomes have their order.
    ///
    /// # Errors
    /// As [`ack`](Self::ack); of a list over [`MOST_AT_ONCE`](crate::MOST_AT_ONCE) a part may have taken effect.
    pub async fn ack_many(&self, deliveries: &[DeliveryId]) -> Result<Vec<Settled>, Error> {
        settle::many(&self.transport, self.retry, &Verb::Ack, deliveries).await
    }

    /// Gives a delivery back: it comes again after `delay`, or after the group's backoff without one; after its
    /// last attempt it is a dead letter.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn nack(
        &self,
        delivery: impl Into<DeliveryId>,
        delay: Option<Duration>,
        reason: Option<&str>,
    ) -> Result<Settled, Error> {
        let verb = Verb::Nack { delay, reason: reason.map(str::to_owned) };
        settle::one(&self.transport, self.retry, &verb, delivery.into()).await
    }

    /// Gives many deliveries back; the outcomes have their order.
    ///
    /// # Errors
    /// As [`ack_many`](Self::ack_many).
    pub async fn nack_many(
        &self,
        deliveries: &[DeliveryId],
        delay: Option<Duration>,
        reason: Option<&str>,
    ) -> Result<Vec<Settled>, Error> {
        let verb = Verb::Nack { delay, reason: reason.map(str::to_owned) };
        settle::many(&self.transport, self.retry, &verb, deliveries).await
    }

    /// Keeps a delivery for another `by` from now, 1 s to 12 h.
    ///
    /// # Errors
    /// As [`ack`](Self::ack). [`Settled::Unknown`] means that it is not this client's any more.
    pub async fn extend(&self, delivery: impl Into<DeliveryId>, by: Duration) -> Result<Settled, Error> {
        settle::one(&self.transport, self.retry, &Verb::Extend { by }, delivery.into()).await
    }

    /// Keeps many deliveries; the outcomes have their order.
    ///
    /// # Errors
    /// As [`ack_many`](Self::ack_many).
    pub async fn extend_many(&self, deliveries: &[DeliveryId], by: Duration) -> Result<Vec<Settled>, Error> {
        settle::many(&self.transport, self.retry, &Verb::Extend { by }, deliveries).await
    }

    /// Makes a delivery a dead letter now; the dead letter is stored when this returns.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn reject(
        &self,
        delivery: impl Into<DeliveryId>,
        reason: Option<&str>,
    ) -> Result<Settled, Error> {
        let verb = Verb::Reject { reason: reason.map(str::to_owned) };
        settle::one(&self.transport, self.retry, &verb, delivery.into()).await
    }

    /// Makes many deliveries dead letters; the outcomes have their order.
    ///
    /// # Errors
    /// As [`ack_many`](Self::ack_many).
    pub async fn reject_many(
        &self,
        deliveries: &[DeliveryId],
        reason: Option<&str>,
    ) -> Result<Vec<Settled>, Error> {
        let verb = Verb::Reject { reason: reason.map(str::to_owned) };
        settle::many(&self.transport, self.retry, &verb, deliveries).await
    }

    /// Sends a request that may be repeated.
    pub(crate) async fn send(&self, call: &Call) -> Result<Bytes, Error> {
        self.transport.send(call, self.retry).await
    }

    async fn send_publish(&self, call: &Call) -> Result<Bytes, Error> {
        match self.retry.publish {
            RetryPublish::Always => self.send(call).await,
            RetryPublish::Never => self.transport.once(call, self.transport.request_timeout).await,
        }
    }
}
