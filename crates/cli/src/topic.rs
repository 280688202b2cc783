//! `eventmesh topic`: what topics there are, and changing that.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::{
    connect::{Connect, Local},
    output::{answer, cell, list, table},
    problem::Failure,
};

/// What to do with topics.
#[derive(Debug, Subcommand)]
pub enum TopicCommand {
    /// List every topic
    List(List),
    /// Show the partitions of a topic, its groups and its settings
    Show(Show),
    /// Make a topic, or give it more partitions
    Make(Make),
    /// Delete a topic with its events
    Delete(Delete),
}

/// Lists topics.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    connect: Connect,
}

/// Shows one.
#[derive(Debug, Args)]
pub struct Show {
    /// The topic
    topic: String,
    #[command(flatten)]
    connect: Connect,
}

/// Makes one.
#[derive(Debug, Args)]
pub struct Make {
    /// The topic
    topic: String,
    /// How many partitions it has; the server's default for a new one
    #[arg(long, value_name = "NUMBER")]
    partitions: Option<u32>,
    #[command(flatten)]
    connect: Connect,
}

/// Deletes one.
#[derive(Debug, Args)]
pub struct Delete {
    /// The topic
    topic: String,
    /// Also when it has groups; they go with it
    #[arg(long)]
    force: bool,
    /// Also its dead letters
    #[arg(long)]
    dead_letters: bool,
    #[command(flatten)]
    connect: Connect,
}

impl TopicCommand {
    pub(crate) fn connect(&self) -> &Connect {
        match self {
            Self::List(List { connect })
            | Self::Show(Show { connect, .. })
            | Self::Make(Make { connect, .. })
            | Self::Delete(Delete { connect, .. }) => connect,
        }
    }

    pub(crate) async fn run(self, local: &Local) -> Result<(), Failure> {
        let (form, admin) = (self.connect().form()?, self.connect().admin(local)?);
        match self {
            Self::List(_) => {
                let topics =
                    admin.client.get(&["topics"], &[]).await.map_err(|error| admin.failure(&error))?;
                let topics = topics.as_array().map_or(&[][..], Vec::as_slice);
                list(form, topics, &["topic", "partitions", "groups"], |topic| {
                    ["topic", "partitions", "groups"].map(|name| cell(&topic[name])).to_vec()
                })
            }
            Self::Show(Show { topic, .. }) => {
                let shown = admin.client.get(&["topics", &topic], &[]).await.map_err(|error| {
                    admin.failure(&error).or_advice("`eventmesh topic list` shows which there are.")
                })?;
                answer(form, &shown, people)
            }
            Self::Make(Make { topic, partitions, .. }) => {
                let mut body = json!({ "topic": topic });
                if let Some(partitions) = partitions {
                    body["partitions"] = partitions.into();
                }
                let made = admin
                    .client
                    .post(&["topics"], &[], &body)
                    .await
                    .map_err(|error| admin.failure(&error))?;
                answer(form, &made, |made| {
                    let warning =
                        made["warning"].as_str().map_or_else(String::new, |text| format!("{text}\n"));
                    format!("{} has {} partitions\n{warning}", cell(&made["topic"]), made["partitions"])
                })
            }
            Self::Delete(Delete { topic, force, dead_letters, .. }) => {
                let query: Vec<(&str, &str)> = [("force", force), ("deadLetters", dead_letters)]
                    .into_iter()
                    .filter_map(|(name, on)| on.then_some((name, "true")))
                    .collect();
                let deleted = admin.client.delete(&["topics", &topic], &query).await.map_err(|error| {
                    let failure = admin.failure(&error);
                    if error.code() == Some("groups_exist") {
                        failure.advice("--force removes them with it.")
                    } else {
                        failure.or_advice("`eventmesh topic list` shows which there are.")
                    }
                })?;
                answer(form, &deleted, |deleted| {
                    format!(
                        "{} is deleted, and {} groups with it\n",
                        cell(&deleted["topic"]),
                        deleted["groups"]
                    )
                })
            }
        }
    }
}

fn people(topic: &Value) -> String {
    let all = |name: &str| topic[name].as_array().cloned().unwrap_or_default();
    let partitions: Vec<Vec<String>> = all("partitions")
        .iter()
        .map(|partition| ["partition", "start", "end", "bytes"].map(|name| cell(&partition[name])).to_vec())
        .collect();
    let groups: Vec<Vec<String>> = all("groups")
        .iter()
        .map(|group| ["group", "kind", "tenant"].map(|name| cell(&group[name])).to_vec())
        .collect();
    format!(
        "{}\n{}\nsettings: {}\ndead letters: {}\n",
        table(&["partition", "start", "end", "bytes"], &partitions),
        table(&["group", "kind", "tenant"], &groups),
        topic["settings"],
        topic["deadLetters"]
    )
}
