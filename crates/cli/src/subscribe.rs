//! `eventmesh sub`: receives, prints or hands on, and acknowledges what was printed or done.
//!
//! An event is acknowledged after it was written to the standard output, or after the command that it was given to ended
//! well. What could not be written is not: it comes again. A signal ends the command once what it has in hand is printed, or
//! the command under way has ended; an output that nobody reads, or a second signal, is not waited for. A subscription without `--group` is the process's own and goes
//! with it; a member of a group leaves when the command ends, and the group keeps its place.

use std::{
    io::IsTerminal,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

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
const RENEW_FIRST: Duration = Duration::from_millis(500);
const RENEW_EVERY: Duration = Duration::from_secs(5);
const RENEWED_FOR: Duration = Duration::from_secs(30);
/// How long the end of the command waits for the server.
const LEAVING: Duration = Duration::from_secs(5);
/// How long the end of the command waits for the standard output to take what is in hand.
const LAST_LINES: Duration = Duration::from_secs(1);
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
    #[arg(long, visible_alias = "max", value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
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
    hang_up: Signal,
    /// Whether a signal has come.
    asked: bool,
}

/// What became of an event that a command was given.
enum Handed {
    Done,
    Failed,
    /// A second signal came first.
    Left,
}

impl Ended {
    fn new() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::other(format!("cannot wait for signals: {error}")));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            asked: false,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
        self.asked = true;
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
        let made = made.map_err(|error| subscribed.failure(&error))?;
        if self.from != "latest" && !made.created {
            complain(&format!(
                "eventmesh sub: the group {0} of {1} was there and goes on where it is; `eventmesh group seek {1} {0} --to {2}` moves it",
                self.group.as_deref().unwrap_or(&subscribed.id),
                self.topic,
                self.from
            ));
        }
        // A person before an empty screen is told what it waits for; a script is not.
        if std::io::stderr().is_terminal() {
            complain(&format!("eventmesh sub: waiting for events of {}; Ctrl-C ends it", self.topic));
        }
        let received = self.receive(&subscribed, form, &mut ended).await;
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

    async fn receive(&self, subscribed: &Subscribed, form: Form, ended: &mut Ended) -> Result<(), Failure> {
        let mut left = self.count.unwrap_or(u64::MAX);
        let mut is_lost = false;
        while left > 0 && !ended.asked {
            // A command works on one event at a time: what it has not begun others may take.
            let most = if self.exec.is_some() { 1 } else { AT_ONCE };
            let most = u32::try_from(left).unwrap_or(u32::MAX).min(most);
            let polled = tokio::select! {
                polled = subscribed.client.poll(&subscribed.id, most, WAIT) => polled,
                () = ended.wait() => return Ok(()),
            };
            let deliveries = match polled {
                Ok(deliveries) => deliveries,
                Err(error) => {
                    tokio::select! {
                        goes_on = self.go_on_after(subscribed, error, &mut is_lost) => goes_on?,
                        () = ended.wait() => return Ok(()),
                    }
                    continue;
                }
            };
            if is_lost {
                complain("eventmesh sub: the server is back");
                is_lost = false;
            }
            match &self.exec {
                Some(command) => self.hand_on(subscribed, command, &deliveries, ended).await?,
                None if self.print(subscribed, form, &deliveries, ended).await? => {}
                None => return Ok(()),
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

    /// Prints, and acknowledges what was printed. `false`: nobody reads the standard output any more.
    async fn print(
        &self,
        subscribed: &Subscribed,
        form: Form,
        deliveries: &[Delivery],
        ended: &mut Ended,
    ) -> Result<bool, Failure> {
        let lines: Vec<String> = deliveries.iter().map(|delivery| line(form, delivery)).collect();
        let printed = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&printed);
        // The reader of a pipe may stand still; signals are heard all the same.
        let mut printing = tokio::task::spawn_blocking(move || {
            for line in lines {
                if !print(&line)? {
                    return Ok(false);
                }
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Ok(true)
        });
        let is_read = loop {
            let most = if ended.asked { LAST_LINES } else { Duration::MAX };
            tokio::select! {
                done = &mut printing => {
                    break done.unwrap_or_else(|error| Err(Failure::other(format!("cannot print: {error}"))));
                }
                () = ended.wait(), if !ended.asked => {}
                () = tokio::time::sleep(most) => break Ok(false),
            }
        };
        let printed: Vec<DeliveryId> =
            deliveries.iter().take(printed.load(Ordering::Relaxed)).map(DeliveryId::from).collect();
        if self.ack == Ack::Done && !printed.is_empty() {
            acknowledge(subscribed, &printed).await;
        }
        is_read
    }

    /// Hands each on, and acknowledges where the command did well.
    async fn hand_on(
        &self,
        subscribed: &Subscribed,
        command: &str,
        deliveries: &[Delivery],
        ended: &mut Ended,
    ) -> Result<(), Failure> {
        for delivery in deliveries {
            match self.hand_to(subscribed, command, delivery, ended).await? {
                // What nobody finished goes back when the subscription ends.
                Handed::Left => return Ok(()),
                _ if self.ack != Ack::Done => {}
                Handed::Done => acknowledge(subscribed, &[delivery.into()]).await,
                Handed::Failed => {
                    if let Err(error) =
                        subscribed.client.nack(delivery, None, Some("the command failed")).await
                    {
                        complain(&format!("eventmesh sub: {}", subscribed.failure(&error)));
                    }
                }
            }
        }
        Ok(())
    }

    /// How the command ended. The lock is renewed while it works; a signal lets it end, a second one does not.
    async fn hand_to(
        &self,
        subscribed: &Subscribed,
        command: &str,
        delivery: &Delivery,
        ended: &mut Ended,
    ) -> Result<Handed, Failure> {
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
        let mut renewals = tokio::time::interval_at(tokio::time::Instant::now() + RENEW_FIRST, RENEW_EVERY);
        loop {
            tokio::select! {
                exited = child.wait() => {
                    let did_well = exited.map_err(cannot)?.success();
                    return Ok(if did_well { Handed::Done } else { Handed::Failed });
                }
                () = wait_again(ended) => return Ok(Handed::Left),
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

/// Waits for the second signal.
async fn wait_again(ended: &mut Ended) {
    if !ended.asked {
        ended.wait().await;
    }
    ended.wait().await;
}

/// Acknowledges; what fails is said and comes again.
async fn acknowledge(subscribed: &Subscribed, deliveries: &[DeliveryId]) {
    match subscribed.client.ack_many(deliveries).await {
        Ok(outcomes) => {
            let late = outcomes.iter().filter(|outcome| **outcome != Settled::Done).count();
            if late > 0 {
                complain(&format!(
                    "eventmesh sub: {late} events were acknowledged too late: they come again, or are done"
                ));
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
