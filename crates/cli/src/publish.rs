//! `eventmesh pub`: events from the command line, a file or the standard input.

use std::{
    io::{IsTerminal, Read},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use futures_util::{StreamExt, stream};
use mesh_client::{Client, Event, OutgoingEvent, Published, parse_event};
use serde_json::{Value, json};

use crate::{
    connect::{Connect, Form, Local},
    output::{print, shown},
    problem::{Failure, Port},
};

/// How many publishes without a rate are under way together where their order says nothing.
const AT_ONCE: usize = 16;

/// Publishes.
#[derive(Debug, Args)]
pub struct Publish {
    /// The topic
    topic: String,
    /// The data, or a whole event as JSON; `-` or nothing is the standard input
    #[arg(conflicts_with = "file")]
    data: Option<String>,
    /// A file with the data, or with a whole event as JSON
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Publish each line of the input as an event of its own
    #[arg(long)]
    lines: bool,
    /// Publish it so many times; without --id each has an id of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// So many a second
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    rate: Option<f64>,
    /// The key: events of one key are delivered in order
    #[arg(long)]
    key: Option<String>,
    /// The type of the event [default: eventmesh.cli]
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// The source of the event [default: /eventmesh/cli]
    #[arg(long, value_name = "URI-REFERENCE")]
    source: Option<String>,
    /// The id of the event, unique for its source; with --count and --lines a number follows it
    #[arg(long)]
    id: Option<String>,
    /// The media type of the data; without it JSON is JSON, other text is text/plain, and bytes are application/octet-stream
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// A further attribute, as often as needed
    #[arg(long = "attribute", value_name = "NAME=VALUE")]
    attributes: Vec<String>,
    #[command(flatten)]
    pub(crate) connect: Connect,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("must be a number above 0".to_owned()),
    }
}

impl Publish {
    pub(crate) async fn run(self, local: &Local) -> Result<(), Failure> {
        let form = self.connect.form()?;
        let (client, address) = self.connect.traffic(local)?;
        let inputs = self.inputs()?;
        let total = self.count.saturating_mul(inputs.len() as u64);
        let several = total > 1;
        let made = (0..self.count).flat_map(|_| inputs.iter()).zip(1_u64..);
        // All of what is typed once is looked at before anything of it is sent.
        for (place, input) in inputs.iter().enumerate() {
            self.event(input, several.then_some(place as u64 + 1))?;
        }
        let publish = |(input, number): (&Vec<u8>, u64)| {
            let event = self.event(input, several.then_some(number));
            let (client, topic, address) = (&client, &self.topic, &address);
            async move { send(client, address, topic, &event?).await }
        };
        match self.rate {
            None => {
                // Lines, and the events of a key, are stored in the order in which they come.
                let at_once = if inputs.len() == 1 && self.key.is_none() { AT_ONCE } else { 1 };
                let mut published = stream::iter(made).map(publish).buffered(at_once);
                while let Some(published) = published.next().await {
                    if !told(form, &published?)? {
                        return Ok(());
                    }
                }
            }
            Some(rate) => {
                let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
                for one in made {
                    ticks.tick().await;
                    if !told(form, &publish(one).await?)? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// What is to be published, at least one.
    fn inputs(&self) -> Result<Vec<Vec<u8>>, Failure> {
        let whole = match (&self.data, &self.file) {
            (Some(data), _) if data != "-" => data.clone().into_bytes(),
            (None, Some(path)) => std::fs::read(path)
                .map_err(|error| Failure::usage(format!("--file: {}: {error}", path.display())))?,
            (None, None) if std::io::stdin().is_terminal() => {
                return Err(Failure::usage("there is nothing to publish").advice(
                    "Give the data behind the topic, a file with --file, or something on the standard input.",
                ));
            }
            _ => {
                let mut input = Vec::new();
                std::io::stdin()
                    .read_to_end(&mut input)
                    .map_err(|error| Failure::other(format!("cannot read the standard input: {error}")))?;
                input
            }
        };
        if !self.lines {
            return Ok(vec![whole]);
        }
        let lines: Vec<Vec<u8>> = whole
            .split(|byte| *byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line).to_vec())
            .filter(|line| !line.is_empty())
            .collect();
        if lines.is_empty() { Err(Failure::usage("there are no lines to publish")) } else { Ok(lines) }
    }

    /// The event that an input is. `number`: which of several.
    fn event(&self, input: &[u8], number: Option<u64>) -> Result<Event, Failure> {
        let json = serde_json::from_slice::<Value>(input).ok();
        let refused = |error: &mesh_client::Error| Failure::of_server(error, "", Port::Traffic);
        if let Some(Value::Object(members)) = &json
            && self.content_type.is_none()
            && ["specversion", "id", "source", "type"].iter().all(|name| members.contains_key(*name))
        {
            // It is published as it is: an option that would change it is a slip.
            let options = [
                ("--key", self.key.is_some()),
                ("--type", self.event_type.is_some()),
                ("--source", self.source.is_some()),
                ("--id", self.id.is_some()),
                ("--attribute", !self.attributes.is_empty()),
            ];
            if let Some((option, _)) = options.iter().find(|(_, is_given)| *is_given) {
                return Err(Failure::usage(format!(
                    "the data is a whole event, which {option} does not change"
                ))
                .advice(
                    "Leave the option out, or say with --content-type application/json that it is data.",
                ));
            }
            return parse_event(input).map_err(|error| refused(&error));
        }
        let id = match (&self.id, number) {
            (Some(id), Some(number)) => format!("{id}-{number}"),
            (Some(id), None) => id.clone(),
            (None, _) => uuid::Uuid::new_v4().to_string(),
        };
        let mut event = OutgoingEvent::new(
            id,
            self.source.as_deref().unwrap_or("/eventmesh/cli"),
            self.event_type.as_deref().unwrap_or("eventmesh.cli"),
        );
        if let Some(key) = &self.key {
            event = event.partition_key(key);
        }
        for attribute in &self.attributes {
            let (name, value) = attribute
                .split_once('=')
                .ok_or_else(|| Failure::usage(format!("--attribute: {attribute:?} is not NAME=VALUE")))?;
            event = event.attribute(name.trim(), value);
        }
        let text = std::str::from_utf8(input).ok();
        event = match (&self.content_type, text) {
            (None, Some(text)) if json.is_some() => event.json(text),
            (None, Some(text)) => event.text("text/plain", text),
            (None, None) => event.binary("application/octet-stream", input),
            (Some(kind), Some(text)) if is_json(kind) => {
                if json.is_none() {
                    return Err(Failure::usage(format!(
                        "the data is no JSON, and --content-type says {kind}"
                    )));
                }
                event.attribute("datacontenttype", kind).json(text)
            }
            (Some(kind), Some(text)) if kind.starts_with("text/") => event.text(kind, text),
            (Some(kind), _) => event.binary(kind, input),
        };
        event.check().map_err(|error| refused(&error))
    }
}

fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    essence.ends_with("/json") || essence.ends_with("+json")
}

async fn send(client: &Client, address: &str, topic: &str, event: &Event) -> Result<Published, Failure> {
    client
        .publish_event(topic, event)
        .await
        .map_err(|error| Failure::of_server(&error, address, Port::Traffic))
}

/// Says where it is stored. `false`: nobody reads that any more.
fn told(form: Form, published: &Published) -> Result<bool, Failure> {
    let Published { topic, partition, offset, .. } = published;
    match form {
        Form::Table => print(&format!("{}/{partition}@{offset}\n", shown(topic))),
        Form::Json => {
            print(&format!("{}\n", json!({"topic": topic, "partition": partition, "offset": offset})))
        }
    }
}
