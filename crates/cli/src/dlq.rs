//! `eventmesh dlq`: what became a dead letter, and what becomes of it.

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use crate::{
    connect::{Admin, Connect, Form, Local},
    output::{answer, cell, list, print, shown},
    problem::{Failure, Outcome},
};

/// The most that the server shows or moves at once.
const MOST: u32 = 1_000;

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
pub enum DlqCommand {
    /// List the dead letters of a topic, the oldest first
    #[command(visible_alias = "list")]
    Browse(Browse),
    /// Show the dead letters that an event became, whole
    Show(Show),
    /// Give dead letters to the group that failed again
    Replay(Selected),
    /// Remove dead letters
    Discard(Selected),
}

/// Lists dead letters.
#[derive(Debug, Args)]
pub struct Browse {
    /// The topic that the events were published to
    topic: String,
    /// How many
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST)))]
    max: u32,
    #[command(flatten)]
    connect: Connect,
}

/// Shows some.
#[derive(Debug, Args)]
pub struct Show {
    /// The topic that the event was published to
    topic: String,
    /// The id of the event
    id: String,
    #[command(flatten)]
    connect: Connect,
}

/// Which dead letters: without a selector all of the topic, up to --max.
#[derive(Debug, Args)]
pub struct Selected {
    /// The topic that the events were published to
    topic: String,
    /// Only those of this group
    #[arg(long)]
    group: Option<String>,
    /// Only those of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Only those of the event with this id
    #[arg(long)]
    id: Option<String>,
    /// Only those that became dead letters for this reason
    #[arg(long, value_parser = ["attempts_exhausted", "rejected"])]
    reason: Option<String>,
    /// How many
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST)))]
    max: u32,
    /// Only say how many it would be
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connect: Connect,
}

impl DlqCommand {
    pub(crate) fn connect(&self) -> &Connect {
        match self {
            Self::Browse(Browse { connect, .. })
            | Self::Show(Show { connect, .. })
            | Self::Replay(Selected { connect, .. })
            | Self::Discard(Selected { connect, .. }) => connect,
        }
    }

    pub(crate) async fn run(self, local: &Local) -> Result<(), Failure> {
        let (form, admin) = (self.connect().form()?, self.connect().admin(local)?);
        match self {
            Self::Browse(Browse { topic, max, .. }) => {
                let letters = browse(&admin, &topic, max).await?;
                list(
                    form,
                    &letters,
                    &["dead at", "group", "id", "reason", "attempts", "last error"],
                    |letter| {
                        ["deadAt", "group", "eventId", "reason", "attempts", "lastError"]
                            .map(|name| cell(&letter[name]))
                            .to_vec()
                    },
                )
            }
            Self::Show(Show { topic, id, .. }) => show(&admin, form, &topic, &id).await,
            Self::Replay(selected) => selected.act(&admin, form, "replay", ["replayed", "wouldReplay"]).await,
            Self::Discard(selected) => {
                selected.act(&admin, form, "discard", ["discarded", "wouldDiscard"]).await
            }
        }
    }
}

async fn browse(admin: &Admin, topic: &str, max: u32) -> Result<Vec<Value>, Failure> {
    let query = [("topic", topic), ("max", &max.to_string())];
    match admin.client.get(&["dlq", "browse"], &query).await {
        Ok(Value::Array(letters)) => Ok(letters),
        Ok(other) => Err(Failure::other(format!("the server answered {other}"))),
        Err(error) => Err(admin.failure(&error)),
    }
}

async fn show(admin: &Admin, form: Form, topic: &str, id: &str) -> Result<(), Failure> {
    let mut letters = browse(admin, topic, MOST).await?;
    let all = letters.len();
    letters.retain(|letter| letter["eventId"] == *id);
    if letters.is_empty() {
        let text = format!("no dead letter of {topic} is of an event with the id {}", shown(id));
        let text = if all < MOST as usize { text } else { format!("{text}, among the oldest {MOST}") };
        return Err(Failure::new(Outcome::Missing, text)
            .advice(format!("`eventmesh dlq browse {topic}` shows which there are.")));
    }
    for letter in &letters {
        let text = match form {
            Form::Json => format!("{letter}\n"),
            // JSON writes control characters out; what turns the direction of text around is written out here.
            Form::Table => {
                let pretty = serde_json::to_string_pretty(letter).unwrap_or_else(|_| letter.to_string());
                pretty.lines().map(|line| format!("{}\n", shown(line))).collect()
            }
        };
        if !print(&text)? {
            break;
        }
    }
    Ok(())
}

impl Selected {
    async fn act(&self, admin: &Admin, form: Form, what: &str, counts: [&str; 2]) -> Result<(), Failure> {
        let mut body = Map::new();
        body.insert("topic".to_owned(), self.topic.as_str().into());
        body.insert("max".to_owned(), self.max.into());
        for (name, value) in
            [("group", &self.group), ("tenant", &self.tenant), ("id", &self.id), ("reason", &self.reason)]
        {
            if let Some(value) = value {
                body.insert(name.to_owned(), value.as_str().into());
            }
        }
        if self.dry_run {
            body.insert("dryRun".to_owned(), true.into());
        }
        let done = admin.client.post(&["dlq", what], &[], &Value::Object(body)).await;
        let done = done.map_err(|error| admin.failure(&error))?;
        answer(form, &done, |done| {
            let mut text = if self.dry_run {
                format!("would {what} {}; nothing was changed\n", done[counts[1]])
            } else {
                format!("{} {}\n", counts[0], done[counts[0]])
            };
            for (name, why) in [
                ("groupGone", "stay: their group is gone"),
                ("bodyGone", "stay: their event is gone"),
                ("filtered", "stay: the filters of their group do not want them"),
            ] {
                if let Some(number) = done[name].as_u64().filter(|number| *number > 0) {
                    text.push_str(&format!("{number} {why}\n"));
                }
            }
            text
        })
    }
}
