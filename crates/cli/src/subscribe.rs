//! `eventmesh sub`: receives, prints or hands on, and acknowledges what was printed or done.
//!
//! An event is acknowledged after it was written to the standard output, or after the command that it was given to ended
//! well. What could not be written is not: it comes again. A subscription without `--group` is the process's own and goes
//! with it; a member of a group leaves when the command ends, and the group keeps its place.

use std::{process::Stdio, time::Duration};

use clap::{Args, ValueEnum};
use mesh_client::{
    AckMode, Client, Delivery, DeliveryId, Error, Event, Filter, Mode, Settled, Start, SubscribeRequest,
    UnsubscribeRequest,
};
use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt,
    process::Command,
    signal::unix::{Signal, SignalKind, signal},
};

use crate::{
    connect::{Connect, Form, Local},
    output::{print, shown},
    problem::{Failure, Outcome, Port, complain},
};

/// How long one poll waits.
const WAIT: Duration = Duration::from_secs(20);
/// How often the lock of an event is renewed while a command works on it, and for how long each time.
const RENEW_EVERY: Duration = Duration::from_secs(5);
const RENEWED_FOR: Duration = Duration::from_secs(30);
/// How long the end of the command waits for the server.
const LEAVING: Duration = Duration::from_secs(5);
/// How much a poll takes.
const AT_ONCE: u32 = 100;

/// Receives.
#[derive(Debug, Args)]
pub struct Subscribe {
    /// The topic
    topic: String,
    /// Share the events with everybody in this group, which keeps its place when nobody is there; without it this command
    /// gets every event, from now on
    #[arg(long)]
    group: Option<String>,
    /// The client id; drawn by chance without it
    #[arg(long, value_name = "ID")]
    client: Option<String>,
    /// Where a new group begins: `latest`, `earliest`, a time as 2026-12-01T08:00:00Z, or an offset where the topic has one
    /// partition
    #[arg(long, value_name = "PLACE", default_value = "latest")]
    from: String,
    /// Only events whose attribute is this, or begins so (NAME=BEGINNING*), or a filter as JSON; all must hold
    #[arg(long = "filter", value_name = "NAME=VALUE")]
    filters: Vec<String>,
    /// End after so many events
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Hand each event, as JSON on the standard input, to this command of the shell, one after another: it is acknowledged
    /// where that ends with 0, and comes again where it does not
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    /// When an event counts as done
    #[arg(long, value_enum, default_value_t = Ack::Done)]
    ack: Ack,
    #[command(flatten)]
    pub(crate) connect: Connect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ack {
    /// When it was printed, or the command ended well
    Done,
    /// When the server hands it out
    Auto,
}

/// Who is subscribed, to what.
struct Subscribed {
    client: Client,
    address: String,
    request: SubscribeRequest,
    id: String,
    leave: UnsubscribeRequest,
}

impl Subscribed {
    fn failure(&self, error: &Error) -> Failure {
        Failure::of_server(error, &self.address, Port::Traffic)
    }
}

/// What ends the command before it has what it wants.
struct Ended {
    interrupt: Signal,
    terminate: Signal,
}

impl Ended {
    fn new() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::other(format!("cannot wait for signals: {error}")));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

impl Subscribe {
    pub(crate) async fn run(self, local: &Local) -> Result<(), Failure> {
        let form = self.connect.form()?;
        let (client, address) = self.connect.traffic(local)?;
        let id = self.client.clone().unwrap_or_else(|| format!("cli-{}", uuid::Uuid::new_v4()));
        let mut ended = Ended::new()?;
        let mut leave = UnsubscribeRequest::new(&id).topic(&self.topic);
        if let Some(group) = &self.group {
            leave = leave.group(group);
        }
        let subscribed = Subscribed { client, address, request: self.request(&id)?, id, leave };
        let made = tokio::select! {
            made = subscribed.client.subscribe(&subscribed.request) => made,
            () = ended.wait() => return Ok(()),
        };
        made.map_err(|error| subscribed.failure(&error))?;
        let received = tokio::select! {
            received = self.receive(&subscribed, form) => received,
            () = ended.wait() => Ok(()),
        };
        let left = tokio::time::timeout(LEAVING, subscribed.client.unsubscribe(&subscribed.leave)).await;
        if !matches!(left, Ok(Ok(()))) {
            complain(&format!(
                "eventmesh sub: the subscription of {} to {} is still there: the server could not be told",
                subscribed.id, self.topic
            ));
        }
        received
    }

    fn request(&self, id: &str) -> Result<SubscribeRequest, Failure> {
        let mode = if self.group.is_some() { Mode::LoadBalance } else { Mode::Broadcast };
        let mut request = SubscribeRequest::new(id, &self.topic, mode);
        if let Some(group) = &self.group {
            request = request.group(group);
        }
        let filters = self.filters.iter().map(|text| filter(text)).collect::<Result<Vec<_>, _>>()?;
        if !filters.is_empty() {
            request = request.filters(&filters);
        }
        if self.ack == Ack::Auto {
            request = request.ack(AckMode::Auto);
        }
        Ok(match self.from.as_str() {
            "latest" => request,
            "earliest" => request.from(&Start::Earliest),
            place => request.from(&Start::Time(place.to_owned())),
        })
    }

    async fn receive(&self, subscribed: &Subscribed, form: Form) -> Result<(), Failure> {
        let mut left = self.count.unwrap_or(u64::MAX);
        let mut is_lost = false;
        while left > 0 {
            // A command works on one event at a time: what it has not begun others may take.
            let most = if self.exec.is_some() { 1 } else { AT_ONCE };
            let most = u32::try_from(left).unwrap_or(u32::MAX).min(most);
            let deliveries = match subscribed.client.poll(&subscribed.id, most, WAIT).await {
                Ok(deliveries) => deliveries,
                Err(error) => {
                    self.go_on_after(subscribed, error, &mut is_lost).await?;
                    continue;
                }
            };
            if is_lost {
                complain("eventmesh sub: the server is back");
                is_lost = false;
            }
            if !self.settle(subscribed, form, &deliveries).await? {
                return Ok(());
            }
            left -= (deliveries.len() as u64).min(left);
        }
        Ok(())
    }

    /// Waits where waiting helps, and subscribes again where the server has forgotten that.
    async fn go_on_after(
        &self,
        subscribed: &Subscribed,
        error: Error,
        is_lost: &mut bool,
    ) -> Result<(), Failure> {
        let forgotten = error.code() == Some("unknown_client");
        if !error.is_transient() && !forgotten {
            return Err(subscribed.failure(&error));
        }
        if !*is_lost {
            let why = subscribed.failure(&error).or_advice("");
            complain(&format!(
                "eventmesh sub: {}; trying again",
                why.to_string().lines().next().unwrap_or_default()
            ));
            *is_lost = true;
        }
        if forgotten {
            match subscribed.client.subscribe(&subscribed.request).await {
                Err(error) if !error.is_transient() => return Err(subscribed.failure(&error)),
                Ok(_) => return Ok(()),
                Err(_) => {}
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    /// Prints or hands on, and acknowledges. `false`: nobody reads the standard output any more.
    async fn settle(
        &self,
        subscribed: &Subscribed,
        form: Form,
        deliveries: &[Delivery],
    ) -> Result<bool, Failure> {
        let Some(command) = &self.exec else {
            let mut printed: Vec<DeliveryId> = Vec::with_capacity(deliveries.len());
            let mut is_read = true;
            for delivery in deliveries {
                is_read = print(&line(form, delivery))?;
                if !is_read {
                    break;
                }
                printed.push(delivery.into());
            }
            if self.ack == Ack::Done && !printed.is_empty() {
                acknowledge(subscribed, &printed).await;
            }
            return Ok(is_read);
        };
        for delivery in deliveries {
            let is_done = self.hand_to(subscribed, command, delivery).await?;
            if self.ack != Ack::Done {
                continue;
            }
            if is_done {
                acknowledge(subscribed, &[delivery.into()]).await;
            } else if let Err(error) =
                subscribed.client.nack(delivery, None, Some("the command failed")).await
            {
                complain(&format!("eventmesh sub: {}", subscribed.failure(&error)));
            }
        }
        Ok(true)
    }

    /// Whether the command ended with 0. The lock is renewed while it works.
    async fn hand_to(
        &self,
        subscribed: &Subscribed,
        command: &str,
        delivery: &Delivery,
    ) -> Result<bool, Failure> {
        let cannot = |error: std::io::Error| Failure::new(Outcome::Other, format!("--exec: {error}"));
        let mut child = Command::new("/bin/sh")
            .args(["-c", command])
            .stdin(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(cannot)?;
        if let Some(mut input) = child.stdin.take() {
            let mut event = delivery.event.json().to_vec();
            event.push(b'\n');
            // A command that does not read its input may still do well.
            drop(input.write_all(&event).await);
        }
        let mut renewals = tokio::time::interval_at(tokio::time::Instant::now() + RENEW_EVERY, RENEW_EVERY);
        loop {
            tokio::select! {
                ended = child.wait() => return ended.map(|status| status.success()).map_err(cannot),
                _ = renewals.tick() => {
                    if self.ack == Ack::Done
                        && let Err(error) = subscribed.client.extend(delivery, RENEWED_FOR).await
                    {
                        complain(&format!("eventmesh sub: the lock could not be renewed: {}", subscribed.failure(&error)));
                    }
                }
            }
        }
    }
}

/// Acknowledges; what fails is said and comes again.
async fn acknowledge(subscribed: &Subscribed, deliveries: &[DeliveryId]) {
    match subscribed.client.ack_many(deliveries).await {
        Ok(outcomes) => {
            let late = outcomes.iter().filter(|outcome| **outcome != Settled::Done).count();
            if late > 0 {
                complain(&format!("eventmesh sub: {late} events were done too late and come again"));
            }
        }
        Err(error) => complain(&format!(
            "eventmesh sub: {} events could not be acknowledged and come again: {}",
            deliveries.len(),
            subscribed.failure(&error)
        )),
    }
}

/// One event on a line.
fn line(form: Form, delivery: &Delivery) -> String {
    let event = &delivery.event;
    match form {
        Form::Json => {
            let parsed = serde_json::from_slice::<Value>(&event.json()).unwrap_or(Value::Null);
            let line = json!({
                "topic": delivery.topic, "partition": delivery.partition, "offset": delivery.offset,
                "attempt": delivery.attempt, "event": parsed,
            });
            format!("{line}\n")
        }
        Form::Table => format!(
            "{}/{}@{}  {}  {}  {}\n",
            shown(&delivery.topic),
            delivery.partition,
            delivery.offset,
            shown(event.event_type()),
            shown(event.id()),
            data(event)
        ),
    }
}

fn data(event: &Event) -> String {
    let bytes = event.data();
    match std::str::from_utf8(&bytes) {
        Ok(text) => shown(text),
        Err(_) => format!("({} bytes that are no text)", bytes.len()),
    }
}

/// `NAME=VALUE`, `NAME=BEGINNING*`, or JSON as the server takes it.
fn filter(text: &str) -> Result<Filter, Failure> {
    let json = if text.trim_start().starts_with('{') {
        serde_json::from_str(text)
            .map_err(|error| Failure::usage(format!("--filter: {text:?} is no JSON: {error}")))?
    } else {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--filter: {text:?} is not NAME=VALUE")))?;
        match value.strip_suffix('*') {
            Some(beginning) => json!({"prefix": {name.trim(): beginning}}),
            None => json!({"exact": {name.trim(): value}}),
        }
    };
    Filter::parse(&json).map_err(|error| Failure::usage(format!("--filter: {text:?}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_value_a_beginning_or_json() {
        let read =
            |text: &str| filter(text).map(|filter| filter.to_json()).map_err(|failure| failure.to_string());
        assert_eq!(read("type=order.placed"), Ok(json!({"exact": {"type": "order.placed"}})));
        assert_eq!(read("type=order.*"), Ok(json!({"prefix": {"type": "order."}})));
        assert_eq!(read(r#"{"not":{"exact":{"type":"a"}}}"#), Ok(json!({"not": {"exact": {"type": "a"}}})));
        for wrong in ["type", "{", r#"{"excat":{"type":"a"}}"#, "=a"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
