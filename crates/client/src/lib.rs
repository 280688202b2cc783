//! The client library: publish events, subscribe, receive by poll or by stream, and settle what came.
//!
//! * [`Client`] is one server's address with connections that are kept; clones share them.
//! * [`OutgoingEvent`] is what is published, [`Delivery`] what is received, [`SubscribeRequest`] what is wanted.
//! * [`DeliveryStream`] receives as the server pushes and finds its way back when the connection is lost.
//! * [`AdminClient`] asks the admin port.
//! * [`Acker`] gathers acknowledgements, so that a busy consumer does not pay a request for each.
//! * [`Error`] says how a call can end, with the server's status, code and words.
//!
//! Delivery is at least once: what is not acknowledged comes again, so handlers are written for repeats.
//! Requests that can be repeated safely are, within [`RetryPolicy::deadline`]; publishing is repeated only
//! where [`RetryPublish::Always`] asks for it. Nothing here spawns a task of its own; what must be driven is a
//! future for the caller to drive ([`AckerWork::run`]). It needs a Tokio runtime with time and network.
//!
//! ```no_run
//! use std::time::Duration;
//! use mesh_client::{Client, Mode, OutgoingEvent, SubscribeRequest};
//!
//! # async fn example() -> Result<(), mesh_client::Error> {
//! let client = Client::new("http://127.0.0.1:10105")?;
//! client.subscribe(&SubscribeRequest::new("printer", "orders", Mode::LoadBalance)).await?;
//! let event = OutgoingEvent::new("1", "/shop", "order.placed").json(r#"{"total":42}"#);
//! client.publish("orders", &event).await?;
//! for delivery in client.poll("printer", 10, Duration::from_secs(5)).await? {
//!     println!("{}", delivery.event.id());
//!     client.ack(&delivery).await?;
//! }
//! # Ok(())
//! # }
//! ```

mod acker;
mod admin;
mod client;
mod delivery;
mod error;
mod event;
mod retry;
mod settle;
mod sse;
mod stream;
mod subscribe;
mod transport;

pub use acker::{AckTotals, Acker, AckerSettings, AckerWork};
pub use admin::AdminClient;
pub use client::{Client, ClientBuilder};
pub use delivery::{Delivery, DeliveryId, Gap};
pub use error::Error;
pub use event::{OutgoingEvent, Published, parse_event};
pub use mesh_frame::{Event, Filter};
pub use retry::{RetryPolicy, RetryPublish};
pub use settle::{MOST_AT_ONCE, Settled};
pub use stream::DeliveryStream;
pub use subscribe::{AckMode, Mode, Start, SubscribeRequest, Subscription, UnsubscribeRequest};
